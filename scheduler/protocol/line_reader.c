/* scheduler/protocol/line_reader.c - lines out of a stream: bounded memory, whatever the sender does. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "scheduler/protocol/wire.h"

#define FIRST_ROOM 512

void swn_lines_init(struct swn_lines *l)
{
    *l = (struct swn_lines){.since_ms = -1};
}

void swn_lines_free(struct swn_lines *l)
{
    free(l->buf);
    swn_lines_init(l);
}

/* Removes the lines that were handed out; a quiet client keeps no large buffer. */
static void compact(struct swn_lines *l)
{
    l->have -= l->used;
    if (l->have)
        memmove(l->buf, l->buf + l->used, l->have);
    l->used = 0;
    if (!l->have && l->room > FIRST_ROOM) {
        free(l->buf);
        l->buf = NULL;
        l->room = 0;
    }
}

static int make_room(struct swn_lines *l)
{
    if (l->have < l->room)
        return 0;
    if (l->room >= SWN_WIRE_MOST)
        return -EMSGSIZE;
    size_t room = l->room ? l->room * 2 : FIRST_ROOM;
    char *buf = realloc(l->buf, room);
    if (!buf)
        return -ENOMEM;
    l->buf = buf;
    l->room = room;
    return 0;
}

int swn_lines_fill(struct swn_lines *l, int fd, int64_t now_ms)
{
    compact(l);
    int err = make_room(l);
    if (err)
        return err;
    ssize_t n;
    do
        n = recv(fd, l->buf + l->have, l->room - l->have, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n ? -errno : -EPIPE;
    if (l->since_ms < 0)
        l->since_ms = now_ms;
    l->have += (size_t)n;
    /* The deadline of the incomplete line starts when bytes behind the last newline arrived. */
    char *last = memrchr(l->buf, '\n', l->have);
    if (last == l->buf + l->have - 1)
        l->since_ms = -1;
    else if (last >= l->buf + l->have - n)
        l->since_ms = now_ms;
    return (int)n;
}

char *swn_lines_next(struct swn_lines *l, size_t *len)
{
    if (l->used == l->have)
        return NULL;
    char *line = l->buf + l->used, *end = memchr(line, '\n', l->have - l->used);
    if (!end)
        return NULL;
    *end = '\0';
    *len = (size_t)(end - line);
    l->used += *len + 1;
    return line;
}

int64_t swn_lines_deadline(const struct swn_lines *l)
{
    return l->since_ms < 0 ? -1 : l->since_ms + SWN_WIRE_FRAME_MS;
}
