/* scheduler/daemon/swapnetd.c - the daemon's one loop. After every round the daemon puts the new leases on record, and
 * only then sends them. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "scheduler/daemon/daemon.h"
#include "base/cpu_binding.h"
#include "scheduler/protocol/systemd.h"
#include "base/process.h"
#include "base/size.h"
#include "base/errmsg.h"

#define TICK_MS 1000
#define EVENTS 64
/* A total that follows memory moves in steps of at least this part of itself. */
#define LEAST_MOVE 32

void swd_say(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    swn_one_line(text);
    fprintf(stderr, "swapnetd: %s\n", text);
}

/* ---- once a second ---- */

enum look { FIRST, ORDINARY, PRESSED };

uint64_t swd_fixed_total(const struct swd *d)
{
    return d->total.set ? d->total.set : d->options.total;
}

/* Updates each process's resident memory: neither a report, nor a lease on record, nor a tensor without pages counts
 * for more memory than the process has. */
static void look_at_processes(struct swd *d)
{
    uint64_t bytes;
    for (struct swn_client_lease *p = d->book.first; p; p = p->next)
        if (!swd_memory_of(d, p->pid, &bytes))
            p->in_memory = bytes;
}

static void follow_memory(struct swd *d, enum look look)
{
    struct swn_memory m;
    look_at_processes(d); /* also when only a status request needs the numbers */
    if (swd_fixed_total(d))
        return;
    int err = swn_memory_read(&m, "");
    if (err) {
        if (!d->said_total++)
            swd_say("cannot tell how much memory there is: %s; the total stays what it is", strerror(-err));
        return;
    }
    if (look == PRESSED)
        m.pressure = SWN_PRESSURE_NOW;
    uint64_t total = swn_follow_total(&d->follow, &m, swn_book_resident(&d->book)) >> 20 << 20;
    if (total < SWN_BUDGET_UNASKED_BYTES)
        total = SWN_BUDGET_UNASKED_BYTES;
    uint64_t moved = total > d->book.total ? total - d->book.total : d->book.total - total;
    if (look == FIRST || moved >= d->book.total / LEAST_MOVE) {
        d->book.total = total;
        d->unbalanced = 1;
    }
}

uint64_t swd_total_auto(struct swd *d)
{
    d->total.set = 0;
    if (d->options.total)
        d->book.total = d->options.total;
    follow_memory(d, FIRST);
    return d->book.total;
}

/* Programs that it starts later have its CPUs from their begin. */
static int bind_to(const struct swd *d, pid_t pid, const cpu_set_t *part)
{
    pid_t programs[SWD_PROGRAMS];
    for (int i = swd_programs_of(d, pid, programs); i-- > 0;)
        swn_cpus_bind(programs[i], part); /* one that has ended meanwhile needs none */
    return swn_cpus_bind(pid, part);
}

static void bind_cpus(struct swd *d)
{
    size_t n = 0, i = 0;
    cpu_set_t part;
    d->cpus_changed = 0;
    if (!CPU_COUNT(&d->options.cpus))
        return;
    for (struct swn_client_lease *p = d->book.first; p; p = p->next)
        n += p->attached != 0;
    for (struct swn_client_lease *p = d->book.first; p; p = p->next) {
        if (!p->attached)
            continue;
        swn_cpus_part(&d->options.cpus, n, i++, &part);
        int err = bind_to(d, p->pid, &part);
        if (err && err != -ENOENT && err != -ESRCH)
            swd_say("cannot bind process %ld to its CPUs: %s", (long)p->pid, strerror(-err));
    }
}

static void tick(struct swd *d, int64_t now)
{
    if (now < d->next_tick_ms)
        return;
    d->next_tick_ms = now + TICK_MS;
    swd_check_pids(d);
    follow_memory(d, ORDINARY);
}

/* ---- the loop ---- */

/* After a failure, waits a tick: a full disk may have room by then. */
static void put_on_record(struct swd *d)
{
    if (!d->book.dirty || swd_now_ms() < d->save_after_ms)
        return;
    int err = swn_lease_save(&d->book, &d->total, d->leases);
    if (err && !d->said_save++)
        swd_say("cannot write %s: %s; a swapnetd that follows will know the leases from the processes alone", d->leases,
                strerror(-err));
    if (!err && d->said_save)
        swd_say("the leases are on record again");
    d->save_after_ms = err ? swd_now_ms() + TICK_MS : 0;
    d->said_save = err ? d->said_save : 0;
    d->book.dirty = err != 0;
}

static void settle(struct swd *d)
{
    swd_reap(d);
    if (d->unbalanced)
        swn_book_balance(&d->book, swd_now_ms());
    else if (d->drifted)
        swn_book_review(&d->book, swd_now_ms());
    d->unbalanced = d->drifted = 0;
    if (d->cpus_changed)
        bind_cpus(d);
    put_on_record(d);
    for (struct swd_client *c = d->clients; c; c = c->next)
        if (c->out_have || c->offered || c->ended)
            swd_flush(d, c);
}

static void take_signal(struct swd *d)
{
    struct signalfd_siginfo info;
    if (read(d->signal_fd, &info, sizeof info) == sizeof info)
        d->stop = 1;
}

/* The next tick is postponed, as a second of pressure counts once. */
static void take_pressure(struct swd *d, uint32_t events)
{
    if (events != EPOLLPRI) {
        epoll_ctl(d->epoll_fd, EPOLL_CTL_DEL, d->pressure_fd, NULL); /* the cgroup is gone; the tick remains */
        return;
    }
    d->next_tick_ms = swd_now_ms() + TICK_MS;
    follow_memory(d, PRESSED);
}

static void resume_accept(struct swd *d, int64_t now)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &d->listen_fd};
    if (d->accept_after_ms && now >= d->accept_after_ms) {
        d->accept_after_ms = 0;
        epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, d->listen_fd, &ev);
    }
}

static void handle(struct swd *d, const struct epoll_event *ev)
{
    if (ev->data.ptr == &d->signal_fd)
        take_signal(d);
    else if (ev->data.ptr == &d->pressure_fd)
        take_pressure(d, ev->events);
    else if (ev->data.u64 & 1)
        swd_gone(d, (struct swn_client_lease *)(uintptr_t)(ev->data.u64 & ~(uint64_t)1));
    else
        swd_readable(d, ev->data.ptr);
}

static void run(struct swd *d)
{
    while (!d->stop) {
        struct epoll_event events[EVENTS];
        int64_t wait = swd_deadline(d) - swd_now_ms();
        int n = epoll_wait(d->epoll_fd, events, EVENTS, wait < 0 ? 0 : (int)wait);
        /* Clients are freed only in settle(), and client leases only by their own event, except that of a process that
         * says bye in this round. So pidfd events come last, and their lease is looked up. A lease of a process that
         * said hello in this round may have the same address, so the process is checked to be dead. */
        int knocks = 0;
        for (int i = 0; i < n; i++)
            if (events[i].data.ptr == &d->listen_fd)
                knocks = 1;
            else if (!(events[i].data.u64 & 1))
                handle(d, &events[i]);
        for (int i = 0; i < n; i++) {
            struct swn_client_lease *p = d->book.first;
            while (events[i].data.u64 & 1 && p && ((uint64_t)(uintptr_t)p | 1) != events[i].data.u64)
                p = p->next;
            if (events[i].data.u64 & 1 && p && swd_is_dead(p))
                handle(d, &events[i]);
        }
        if (knocks) { /* after the connections that have ended, which count no longer */
            swd_reap(d);
            swd_accept(d);
        }
        int64_t now = swd_now_ms();
        resume_accept(d, now);
        tick(d, now);
        settle(d);
        if (d->book.draining && !d->book.count)
            d->stop = 1; /* the record has no process left, so the next daemon drains nothing */
    }
}

/* ---- begin and end ---- */

/* Two descriptors for every process, and more for status requests; where the limit cannot be raised, it stays. */
static void allow_descriptors(void)
{
    struct rlimit limit;
    if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int open_loop(struct swd *d)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    struct sigaction hup;
    if (sigaction(SIGHUP, NULL, &hup) || hup.sa_handler != SIG_IGN) /* nohup: it outlives its terminal */
        sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    d->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (d->signal_fd < 0 || d->epoll_fd < 0)
        return -errno;
    struct epoll_event stop = {.events = EPOLLIN, .data.ptr = &d->signal_fd};
    struct epoll_event knock = {.events = EPOLLIN, .data.ptr = &d->listen_fd};
    if (epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, d->signal_fd, &stop) ||
        epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, d->listen_fd, &knock))
        return -errno;
    struct epoll_event pressure = {.events = EPOLLPRI, .data.ptr = &d->pressure_fd};
    d->pressure_fd = d->options.total ? -1 : swn_pressure_open("");
    if (d->pressure_fd >= 0)
        epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, d->pressure_fd, &pressure);
    return 0;
}

static int begin(struct swd *d)
{
    d->listen_fd = -1;
    allow_descriptors();
    int err = swd_listen(d);
    if (err)
        return err;
    err = open_loop(d);
    if (err) {
        swd_say("cannot wait for events: %s", strerror(-err));
        return err;
    }
    d->book = (struct swn_book){.policy = d->options.policy, .offer = swd_offer};
    d->total = (struct swn_lease_total){.start_bytes = d->options.total, .start_share = d->options.share};
    d->follow = (struct swn_follow){.share = d->options.share, .ease = 1};
    err = swn_lease_load(&d->book, &d->total, d->leases);
    if (err) /* the processes report what they hold when they connect again */
        swd_say("cannot use %s: %s; starting without it", d->leases, strerror(-err));
    d->book.total = swd_fixed_total(d);
    follow_memory(d, FIRST); /* a share of the memory, with the processes on record */
    for (struct swn_client_lease *p = d->book.first; p; p = p->next) {
        swd_watch(d, p);
        if (!p->user) {
            swd_say("out of memory");
            return -ENOMEM;
        }
    }
    d->book.dirty = 1; /* writes the record now, to find out whether it can be written */
    d->next_tick_ms = swd_now_ms() + TICK_MS;
    return 0;
}

int main(int argc, char **argv)
{
    static struct swd d;
    char mib[32];
    mallopt(M_MMAP_THRESHOLD, 1 << 15); /* else the threshold grows with freed blocks, and the memory of a large answer
                                           never returns to the kernel */
    int rc = swd_options_take(&d.options, argc, argv);
    if (rc)
        return rc == 1 ? 0 : 2;
    if (begin(&d)) {
        swd_unlisten(&d);
        return 1;
    }
    swd_say("%s to give%s, by policy %s, at %s", swn_format_mib(mib, d.book.total),
            d.total.set ? " as swapnetctl set it" : "", swn_divide_name(d.book.policy), d.options.socket);
    settle(&d);
    swn_notify("READY=1\nSTATUS=Dividing memory among programs");
    run(&d);
    swn_notify("STOPPING=1");
    swd_note_end(&d);
    swd_unlisten(&d);
    return 0;
}
