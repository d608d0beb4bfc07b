/* scheduler/protocol/control_ask_all.c - asking many control sockets at once: one that is silent delays no other. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "scheduler/protocol/control.h"
#include "scheduler/protocol/control_io.h"

#define FIRST_ROOM ((size_t)4096)
/* How soon a socket is tried again whose backlog was full. */
#define RETRY_MS 10

/* A call that has not ended. */
struct open_call {
    struct swn_control_call *call;
    int fd, connected;
    char *buf;
    size_t have, room;
};

static void end(struct open_call *o, int rc)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t len = sizeof peer;
    o->call->rc = rc;
    if (!rc && getsockopt(o->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0)
        o->call->uid = peer.uid;
    if (!rc)
        o->call->answer = o->buf;
    else
        free(o->buf);
    if (o->fd >= 0)
        close(o->fd);
    o->fd = -1;
    o->call = NULL;
}

static void dial(struct open_call *o, const char *line, size_t length)
{
    struct sockaddr_un sa;
    int rc = swn_control_address(&sa, o->call->path);
    if (!rc && connect(o->fd, (const struct sockaddr *)&sa, sizeof sa))
        rc = -errno;
    if (rc == -EAGAIN || rc == -EINTR)
        return;
    o->connected = 1;
    ssize_t sent = rc ? 0 : send(o->fd, line, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (!rc && sent != (ssize_t)length) /* a new socket has room for a short line */
        rc = sent < 0 ? -errno : -EMSGSIZE;
    if (rc)
        end(o, rc);
}

static int make_room(struct open_call *o, size_t most)
{
    size_t room = o->room ? 2 * o->room : FIRST_ROOM;
    if (o->have < o->room)
        return 0;
    if (o->room >= most)
        return -EMSGSIZE;
    room = room < most ? room : most;
    char *grown = realloc(o->buf, room);
    if (!grown)
        return -ENOMEM;
    o->buf = grown;
    o->room = room;
    return 0;
}

static void hear(struct open_call *o, size_t most)
{
    int rc = make_room(o, most);
    ssize_t n = rc ? 0 : recv(o->fd, o->buf + o->have, o->room - o->have, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    char *newline = n > 0 ? memchr(o->buf + o->have, '\n', (size_t)n) : NULL;
    if (rc || n <= 0) {
        end(o, rc ? rc : n < 0 ? -errno : -EPROTO);
    } else if (newline) {
        *newline = '\0';
        end(o, memchr(o->buf, '\0', (size_t)(newline - o->buf)) ? -EBADMSG : 0);
    } else {
        o->have += (size_t)n;
    }
}

/* Waits for any of them, at most until the deadline. How many calls go on. */
static size_t turn(struct open_call *open, size_t count, const char *line, size_t length, size_t most,
                   int64_t deadline_ms)
{
    struct pollfd p[SWN_CONTROL_AT_ONCE];
    size_t left = 0;
    int64_t wait_ms = deadline_ms - swn_control_now_ms();
    for (size_t i = 0; i < count; i++) {
        if (open[i].call && !open[i].connected)
            dial(&open[i], line, length);
        p[i] = (struct pollfd){.fd = open[i].call && open[i].connected ? open[i].fd : -1, .events = POLLIN};
        left += open[i].call != NULL;
        if (open[i].call && !open[i].connected && wait_ms > RETRY_MS)
            wait_ms = RETRY_MS;
    }
    if (!left)
        return 0;
    /* A process that stood still for a while hears what has come meanwhile. */
    if (poll(p, count, wait_ms > 0 ? (int)wait_ms : 0) > 0)
        for (size_t i = 0; i < count; i++)
            if (p[i].fd >= 0 && p[i].revents)
                hear(&open[i], most);
    return wait_ms > 0 ? left : 0;
}

static void ask_some(struct swn_control_call *calls, size_t count, const char *line, size_t length, size_t most)
{
    struct open_call open[SWN_CONTROL_AT_ONCE];
    int64_t deadline_ms = swn_control_now_ms() + SWN_CONTROL_TIMEOUT_MS;
    for (size_t i = 0; i < count; i++) {
        open[i] =
            (struct open_call){.call = &calls[i], .fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
        if (open[i].fd < 0)
            end(&open[i], -errno);
    }
    while (turn(open, count, line, length, most, deadline_ms))
        ;
    for (size_t i = 0; i < count; i++)
        if (open[i].call)
            end(&open[i], -ETIMEDOUT);
}

void swn_control_ask_all(struct swn_control_call *calls, size_t count, const char *request, size_t most)
{
    size_t length = strlen(request) + 1;
    char *line = malloc(length);
    for (size_t i = 0; i < count; i++) {
        calls[i].rc = -ENOMEM;
        calls[i].uid = (uid_t)-1;
        calls[i].answer = NULL;
    }
    if (!line)
        return;
    memcpy(line, request, length - 1);
    line[length - 1] = '\n';
    for (size_t i = 0; i < count; i += SWN_CONTROL_AT_ONCE)
        ask_some(&calls[i], count - i < SWN_CONTROL_AT_ONCE ? count - i : SWN_CONTROL_AT_ONCE, line, length, most);
    free(line);
}
