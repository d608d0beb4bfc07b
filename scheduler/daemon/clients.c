/* scheduler/daemon/clients.c - connections. A client that is slow, floods, or sends invalid messages harms only itself.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "scheduler/daemon/daemon.h"
#include "base/process.h"

/* Bytes of unread answers, beside one longer answer: a list of 256 processes has about 100 KiB. */
#define OUT_MOST ((size_t)1 << 20)
#define OUT_STEP 4096
/* How long a DNN's connection may leave messages unread while its socket is full; a process that was stopped connects
 * again when it continues. */
#define UNREAD_MS 10000
/* How long a connection that is no DNN's may stay; swapnetctl asks once. */
#define GUEST_MS 10000
/* A process says hello once a connection, and connects once a second at most: more than this many in a row, and then
 * one in so long, is a flood. Each costs a look at the process, a division of the total and a record of the leases. */
#define HELLOS 16
#define HELLO_MS 250
/* Lines of one client before the next one's turn. */
#define TURN 16
#define ACCEPTS 64
#define ACCEPT_PAUSE_MS 100
#define SAY_ACCEPT_MS 60000

int64_t swd_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static struct swd_link *link_of(const struct swn_client_lease *p)
{
    return p->user;
}

/* ---- sending ---- */

void swd_send(struct swd_client *c, const char *line, size_t len)
{
    size_t need = c->out_have + len + 1;
    if (need > OUT_MOST && c->out_have) {
        c->failed = 1;
        return;
    }
    if (need > c->out_room) {
        size_t room = (need + OUT_STEP - 1) / OUT_STEP * OUT_STEP;
        char *out = realloc(c->out, room);
        if (!out) {
            c->failed = 1;
            return;
        }
        c->out = out;
        c->out_room = room;
    }
    memcpy(c->out + c->out_have, line, len);
    c->out[c->out_have + len] = '\n';
    c->out_have = need;
}

static void send_message(struct swd_client *c, const struct swn_wire *m)
{
    char line[4096];
    int n = swn_wire_encode(m, line, sizeof line);
    if (n > 0)
        swd_send(c, line, (size_t)n);
    else
        c->failed = 1;
}

static void listen_for(struct swd *d, struct swd_client *c)
{
    /* An ended connection is not read any more: epoll would report its end again and again. */
    struct epoll_event ev = {.events = (c->ended ? 0u : EPOLLIN | EPOLLRDHUP) | (c->out_have ? EPOLLOUT : 0u),
                             .data.ptr = c};
    epoll_ctl(d->epoll_fd, EPOLL_CTL_MOD, c->fd, &ev);
}

/* Sends what fits. Returns the number of bytes sent. */
static size_t send_some(struct swd_client *c)
{
    size_t sent = 0;
    while (sent < c->out_have && !c->failed) {
        ssize_t n = send(c->fd, c->out + sent, c->out_have - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0)
            sent += (size_t)n;
        else if (n < 0 && errno == EAGAIN)
            break;
        else if (n < 0 && errno != EINTR)
            c->failed = 1;
    }
    if (sent)
        memmove(c->out, c->out + sent, c->out_have - sent);
    c->out_have -= sent;
    return sent;
}

/* Queues the lease as it is now, behind all other messages. A slow client gets only the newest of the leases that came
 * meanwhile: the older ones no longer matter, and sending them would delay it further. */
static void put_offer(struct swd_client *c)
{
    const struct swn_client_lease *p = c->party;
    struct swn_wire m = {.op = SWN_WIRE_LEASE, .has = SWN_HAS_SEQ | SWN_HAS_BUDGET};
    if (!c->offered || c->out_have)
        return;
    c->offered = 0;
    if (!p)
        return;
    m.seq = p->seq;
    m.budget = p->lease;
    send_message(c, &m);
}

/* lease_too: sends the lease as well, which must be on record by then. */
static void flush(struct swd *d, struct swd_client *c, int lease_too)
{
    int had = c->out_have || c->offered;
    size_t sent = send_some(c);
    if (lease_too) {
        put_offer(c);
        sent += send_some(c);
    }
    if (!c->out_have && c->out_room > OUT_STEP) {
        free(c->out);
        c->out = NULL;
        c->out_room = 0;
    }
    if (sent || !c->unread_ms)
        c->unread_ms = swd_now_ms();
    if (!c->out_have)
        c->unread_ms = 0;
    if (!c->out_have && c->ended)
        c->failed = 1;
    if (had)
        listen_for(d, c);
}

void swd_flush(struct swd *d, struct swd_client *c)
{
    flush(d, c, 1);
}

/* The lease is sent when the book is on record and all earlier messages have been sent. */
void swd_offer(void *user, struct swn_client_lease *p)
{
    (void)user;
    if (link_of(p)->client)
        link_of(p)->client->offered = 1;
}

/* ---- processes ---- */

void swd_watch(struct swd *d, struct swn_client_lease *p)
{
    struct swd_link *link = calloc(1, sizeof *link);
    p->user = link;
    if (!link)
        return;
    link->daemon = d;
    link->pidfd = swn_process_watch(p->pid);
    /* The lowest bit tells a client lease from a client. */
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = (uint64_t)(uintptr_t)p | 1};
    if (link->pidfd >= 0 && epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, link->pidfd, &ev)) {
        close(link->pidfd); /* then the daemon checks the process once a second */
        link->pidfd = -1;
    }
}

int swd_is_dead(const struct swn_client_lease *p)
{
    struct pollfd fd = {.fd = link_of(p)->pidfd, .events = POLLIN};
    return poll(&fd, 1, 0) == 1 && fd.revents & POLLIN;
}

void swd_gone(struct swd *d, struct swn_client_lease *p)
{
    struct swd_link *link = link_of(p);
    if (link->client) {
        link->client->party = NULL;
        link->client->failed = 1;
    }
    if (link->pidfd >= 0)
        close(link->pidfd);
    free(link);
    p->user = NULL;
    p->attached = 0;
    d->cpus_changed = d->unbalanced = 1;
    swn_book_leave(&d->book, p);
}

/* Whether the process no longer holds memory: it is dead, and its memory is free before the pidfd says so; or it has
 * become another program, which may live for long and holds nothing. (exec ends the other threads and frees the memory
 * before it closes descriptors.) */
static int is_gone(const struct swn_client_lease *p)
{
    return !swn_process_lives(p->pid, p->start) ||
           (p->has_library && !swn_process_has_thread(p->pid, SWN_CLIENT_THREAD));
}

void swd_check_pids(struct swd *d)
{
    for (struct swn_client_lease *p = d->book.first, *next; p; p = next) {
        next = p->next;
        if ((!p->attached && is_gone(p)) || (link_of(p)->pidfd < 0 && !swn_process_lives(p->pid, p->start)))
            swd_gone(d, p);
    }
}

int swd_programs_of(const struct swd *d, pid_t pid, pid_t list[SWD_PROGRAMS])
{
    int n = swn_process_programs(pid, list, SWD_PROGRAMS), kept = 0;
    for (int i = 0; i < n; i++) {
        const struct swn_client_lease *p = d->book.first;
        while (p && p->pid != list[i])
            p = p->next;
        if (!p)
            list[kept++] = list[i];
    }
    return kept;
}

int swd_memory_of(const struct swd *d, pid_t pid, uint64_t *bytes)
{
    pid_t programs[SWD_PROGRAMS];
    uint64_t more;
    int err = swn_process_own_memory(pid, bytes);
    for (int i = err ? 0 : swd_programs_of(d, pid, programs); i-- > 0;)
        if (!swn_process_own_memory(programs[i], &more))
            *bytes += more;
    return err;
}

/* ---- what a process says ---- */

static void refuse(struct swd_client *c, const char *text)
{
    struct swn_wire m = {.op = SWN_WIRE_ERROR, .has = SWN_HAS_TEXT};
    snprintf(m.text, sizeof m.text, "%s", text);
    send_message(c, &m);
    c->ended = 1;
}

/* Root and the daemon's own user are exempt from the quota of one user: an administrator must always be able to
 * connect. */
static int is_ruler(const struct ucred *peer)
{
    return peer->uid == 0 || peer->uid == geteuid();
}

/* A process keeps its place in the book without a connection, so a user who starts many processes must not fill the
 * book, either. */
static int too_many(const struct swd *d, const struct ucred *peer)
{
    size_t n = 0;
    for (const struct swn_client_lease *p = d->book.first; p; p = p->next)
        n += p->uid == peer->uid;
    return !is_ruler(peer) && (d->book.count >= d->options.clients || n >= d->options.clients_per_user);
}

/* The kernel names the process that connected. It may be dead, its connection left to a child, and its number another
 * process's, of another user even, who would get what this one asks for. */
static int check_owner(const struct swd_client *c, uint64_t start)
{
    uid_t owner;
    int err = swn_process_user(c->peer.pid, &owner);
    return err ? err : owner != c->peer.uid || start > c->since_ticks ? -EOWNERDEAD : 0;
}

/* Asked by number alone, before anything is looked up: /proc sums up all threads of a process for each look. Each hello
 * moves hello_ms ahead by HELLO_MS. */
static int says_hello_too_often(const struct swd *d, pid_t pid)
{
    struct swn_client_lease *p = d->book.first;
    while (p && p->pid != pid)
        p = p->next;
    if (!p)
        return 0;
    int64_t now = swd_now_ms(), *hello_ms = &link_of(p)->hello_ms;
    if (*hello_ms < now)
        *hello_ms = now;
    if (*hello_ms - now > (HELLOS - 1) * HELLO_MS)
        return 1;
    *hello_ms += HELLO_MS;
    return 0;
}

/* The process behind the connection, as the kernel names it; the pid that the process states does not count. */
static struct swn_client_lease *identify(struct swd *d, struct swd_client *c, uint64_t *in_memory)
{
    uint64_t start;
    if (says_hello_too_often(d, c->peer.pid)) {
        refuse(c, "too many connections of this process one after the other");
        return NULL;
    }
    int err = c->peer.pid <= 0 ? -ESRCH : swn_process_start(c->peer.pid, &start);
    if (!err)
        err = check_owner(c, start);
    if (err == -EOWNERDEAD) {
        refuse(c, "the process that connected has ended, or become another user's");
        return NULL;
    }
    /* Pages of files are no lease's: whoever maps a large one would have its claim believed. */
    if (!err && (err = swd_memory_of(d, c->peer.pid, in_memory)) == -ENODATA)
        err = swn_process_resident(c->peer.pid, in_memory);
    if (err) {
        char text[SWN_WIRE_TEXT];
        snprintf(text, sizeof text, "swapnetd cannot look at this process now: %s", strerror(-err));
        refuse(c, err == -ENOENT || err == -ESRCH
                      ? "this process is not to be seen from swapnetd: another PID namespace?"
                      : text);
        return NULL;
    }
    struct swn_client_lease *p = swn_book_find(&d->book, c->peer.pid, start);
    if (p) {
        struct swd_client *before = link_of(p)->client;
        if (before && before != c) { /* it connected again before the daemon saw the old connection end */
            before->party = NULL;
            before->failed = 1;
        }
    } else if (d->book.draining) {
        refuse(c, "swapnetd is draining: nobody new");
        return NULL;
    } else if (too_many(d, &c->peer)) {
        refuse(c, "too many processes");
        return NULL;
    } else if ((p = swn_book_join(&d->book, c->peer.pid, start, 0))) {
        p->uid = c->peer.uid;
        swd_watch(d, p);
        if (!p->user) {
            swn_book_leave(&d->book, p);
            p = NULL;
        }
    }
    if (!p)
        refuse(c, "swapnetd is out of memory");
    return p;
}

static void welcome(struct swd *d, struct swd_client *c)
{
    struct swn_wire m = {.op = SWN_WIRE_WELCOME, .has = SWN_HAS_VERSION | SWN_HAS_TOTAL, .version = SWN_WIRE_VERSION};
    m.total = d->book.total;
    send_message(c, &m);
}

static void hello(struct swd *d, struct swd_client *c, const struct swn_wire *m)
{
    uint64_t in_memory;
    struct swn_client_lease *p = c->party ? NULL : identify(d, c, &in_memory);
    if (!p)
        return;
    /* The process obeys the last lease that reached it. */
    swn_book_claim(&d->book, p, m->has & SWN_HAS_LEASE ? m->lease : 0, in_memory);
    p->attached = 1;
    p->has_library = swn_process_has_thread(p->pid, SWN_CLIENT_THREAD) == 1;
    link_of(p)->client = c;
    c->party = p;
    swn_client_lease_hear(p, m);
    welcome(d, c);
    d->book.dirty = d->unbalanced = d->cpus_changed = 1;
}

static void from_process(struct swd *d, struct swd_client *c, const struct swn_wire *m)
{
    struct swn_client_lease *p = c->party;
    if (!p) {
        refuse(c, "this connection has not said hello");
        return;
    }
    if (m->has & SWN_HAS_RESIDENT)
        p->resident = m->resident;
    switch (m->op) {
    case SWN_WIRE_UPDATE:
        /* A limit that the user set is not a measurement, so it calls for a new division. */
        d->unbalanced |= (m->has & SWN_HAS_CAP && m->cap != p->own_cap) ||
                         (m->has & SWN_HAS_URGENCY && (m->urgency > p->own_urgency || m->urgency < p->own_urgency));
        swn_client_lease_hear(p, m);
        d->drifted = 1;
        break;
    case SWN_WIRE_ACK:
        d->unbalanced |= swn_book_ack(&d->book, p, m->seq);
        break;
    case SWN_WIRE_REFUSE:
        d->unbalanced |= swn_book_refuse(&d->book, p, m->seq, m->minimum, m->lease);
        break;
    default: /* bye */
        c->party = NULL;
        link_of(p)->client = NULL;
        swd_gone(d, p);
        c->ended = 1;
    }
}

static void take_line(struct swd *d, struct swd_client *c, const char *line, size_t len)
{
    static struct swn_wire m;
    char why[SWN_WIRE_TEXT];
    if (swn_wire_decode(&m, line, len, why)) {
        swd_answer_error(c, why);
        return;
    }
    if (m.op == SWN_WIRE_HELLO)
        hello(d, c, &m);
    else if (m.op == SWN_WIRE_UPDATE || m.op == SWN_WIRE_ACK || m.op == SWN_WIRE_REFUSE || m.op == SWN_WIRE_BYE)
        from_process(d, c, &m);
    else
        swd_answer(d, c, &m);
}

/* ---- connections ---- */

static size_t connections_of(const struct swd *d, uid_t uid)
{
    size_t n = 0;
    for (const struct swd_client *c = d->clients; c; c = c->next)
        n += c->peer.uid == uid;
    return n;
}

static int admitted(struct swd *d, const struct ucred *peer)
{
    uint64_t most = d->options.clients;
    if (!is_ruler(peer) && (d->client_count + 8 >= most || connections_of(d, peer->uid) >= d->options.clients_per_user))
        return 0;
    return d->client_count < most;
}

/* 1: there may be more. */
static int accept_one(struct swd *d)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    int fd = accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* The connection stays pending, and epoll would report it again at once. */
            int64_t now = swd_now_ms();
            if (now >= d->say_accept_after_ms) {
                swd_say("cannot accept connections: %s; it tries again ten times a second", strerror(errno));
                d->say_accept_after_ms = now + SAY_ACCEPT_MS;
            }
            d->accept_after_ms = now + ACCEPT_PAUSE_MS;
            epoll_ctl(d->epoll_fd, EPOLL_CTL_DEL, d->listen_fd, NULL);
        }
        return 0;
    }
    struct swd_client *c = NULL;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) || !admitted(d, &peer) || !(c = calloc(1, sizeof *c))) {
        static const char full[] = "{\"schema\":1,\"op\":\"error\",\"error\":\"too many connections\","
                                   "\"text\":\"too many connections\"}\n";
        (void)!send(fd, full, sizeof full - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        close(fd);
        return 1;
    }
    c->fd = fd;
    c->peer = peer;
    c->since_ms = swd_now_ms();
    c->since_ticks = swn_process_ticks();
    swn_lines_init(&c->in);
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
    if (epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, fd, &ev)) {
        close(fd);
        free(c);
        return 1;
    }
    c->next = d->clients;
    d->clients = c;
    d->client_count++;
    return 1;
}

/* Many a round: one that connects in a loop fills the queue, and others could not get into it. */
void swd_accept(struct swd *d)
{
    for (int i = 0; i < ACCEPTS && accept_one(d); i++)
        ;
}

void swd_readable(struct swd *d, struct swd_client *c)
{
    size_t len;
    char *line;
    for (int turn = 0; turn < TURN && !c->failed && !c->ended; turn++) {
        int rc = swn_lines_fill(&c->in, c->fd, swd_now_ms());
        if (rc == -EAGAIN)
            return;
        if (rc < 0) {
            if (rc == -EMSGSIZE)
                swd_answer_error(c, "the request is longer than 65536 bytes");
            /* A requester that shuts down its sending side still waits for the answer. */
            if (rc == -EMSGSIZE || (rc == -EPIPE && c->out_have && !c->party))
                c->ended = 1;
            else
                c->failed = 1;
            return;
        }
        while (!c->failed && !c->ended && (line = swn_lines_next(&c->in, &len)))
            take_line(d, c, line, len);
    }
}

static void drop(struct swd *d, struct swd_client *c)
{
    struct swn_client_lease *p = c->party;
    if (p) {
        link_of(p)->client = NULL;
        p->attached = 0;
        d->unbalanced = 1;
        if (is_gone(p))
            swd_gone(d, p);
    }
    close(c->fd);
    swn_lines_free(&c->in);
    free(c->out);
    free(c);
    d->client_count--;
}

static int64_t due(const struct swd_client *c)
{
    int64_t line = swn_lines_deadline(&c->in);
    int64_t patience = !c->party ? c->since_ms + GUEST_MS : c->unread_ms ? c->unread_ms + UNREAD_MS : -1;
    return line < 0 ? patience : patience < 0 || line < patience ? line : patience;
}

void swd_reap(struct swd *d)
{
    int64_t now = swd_now_ms();
    for (struct swd_client **link = &d->clients; *link;) {
        struct swd_client *c = *link;
        int64_t when = due(c);
        /* If the daemon itself was stopped, the socket may have room by now. */
        if (when >= 0 && now >= when && c->out_have) {
            flush(d, c, 0);
            when = due(c);
        }
        if (!c->failed && (when < 0 || now < when)) {
            link = &c->next;
            continue;
        }
        *link = c->next;
        drop(d, c);
    }
}

int64_t swd_deadline(const struct swd *d)
{
    int64_t first = d->next_tick_ms;
    for (const struct swd_client *c = d->clients; c; c = c->next) {
        int64_t when = due(c);
        if (when >= 0 && when < first)
            first = when;
    }
    return d->accept_after_ms && d->accept_after_ms < first ? d->accept_after_ms : first;
}
