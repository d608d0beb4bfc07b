/* scheduler/protocol/trace.c - buffered writer of Chrome trace events. trace.h says what a row is. */
#define _GNU_SOURCE
#include "scheduler/protocol/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd_registry.h"
#include "base/text_file.h"

#define EVENTS 1024
#define EVENT_TEXT 384   /* longest event as text: a name of 47 doubles at most, and seven numbers of 20 digits */
#define CHUNK_TEXT 16384 /* text of one write(2) */
#define NAMED_ROWS 64    /* rows of a track that get a name; rows of later threads show their number only */
#define DISK_ROWS 32     /* the fetch queue has 8 reads in flight, and completions may be reported late */
#define TRACKS 4
#define OPENED_TRACKS 3 /* whose first row is there from the beginning */

struct event {
    uint64_t start_ns, end_ns, bytes;
    unsigned row;
    enum swn_track track;
    char name[SWN_TRACE_NAME];
};

struct swn_trace {
    pthread_mutex_t lock; /* everything below */
    int fd;
    int err; /* first -errno; after it nothing is written */
    long pid;
    off_t good; /* length of the file up to the last complete event */
    uint64_t named[TRACKS];
    uint64_t disk_end_ns[DISK_ROWS];
    size_t count, text_len;
    struct event events[EVENTS];
    char text[CHUNK_TEXT];
};

static const char *const track_names[TRACKS] = {"compute", "disk", "waiting", "request"};
static const unsigned track_order[TRACKS] = {0, 2, 1, 3}; /* waiting below compute, disk behind it */

/* Rows are Perfetto's threads. Interleaved, so that any number of rows per track has distinct numbers. */
static uint64_t row_tid(enum swn_track track, unsigned row)
{
    return (uint64_t)row * TRACKS + (unsigned)track + 1;
}

/* The program may have closed the descriptor, and have its own file under the number. */
static ssize_t append(const struct swn_trace *t, const char *text, size_t len)
{
    if (swn_fd_is_ours(t->fd))
        return write(t->fd, text, len);
    errno = EBADF;
    return -1;
}

static void write_text(struct swn_trace *t)
{
    size_t done = 0;
    while (!t->err && done < t->text_len) {
        ssize_t n = append(t, t->text + done, t->text_len - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            t->err = n == 0 ? -EIO : -errno;
    }
    if (!t->err)
        t->good += (off_t)t->text_len;
    else if (swn_fd_is_ours(t->fd) && !ftruncate(t->fd, t->good)) /* full disk: half an event would spoil the file */
        (void)lseek(t->fd, t->good, SEEK_SET);
    t->text_len = 0;
}

/* Appends one event made by snprintf(out, EVENT_TEXT, ...). */
static char *next_text(struct swn_trace *t)
{
    if (t->text_len + EVENT_TEXT > CHUNK_TEXT)
        write_text(t);
    return t->text + t->text_len;
}

static void added(struct swn_trace *t, int n)
{
    if (n > 0 && n < EVENT_TEXT)
        t->text_len += (size_t)n;
}

static void name_row(struct swn_trace *t, enum swn_track track, unsigned row)
{
    if (row >= NAMED_ROWS || (t->named[track] >> row & 1))
        return;
    t->named[track] |= UINT64_C(1) << row;
    char number[16] = "";
    if (row)
        snprintf(number, sizeof(number), " %u", row + 1);
    added(t, snprintf(next_text(t), EVENT_TEXT,
                      ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%ld,\"tid\":%" PRIu64
                      ",\"args\":{\"name\":\"%s%s\"}}",
                      t->pid, row_tid(track, row), track_names[track], number));
    added(t, snprintf(next_text(t), EVENT_TEXT,
                      ",\n{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%ld,\"tid\":%" PRIu64
                      ",\"args\":{\"sort_index\":%u}}",
                      t->pid, row_tid(track, row), track_order[track] * 1000 + row));
}

/* A name as the inside of a JSON string. Other than ASCII becomes '?': a name may be cut inside a character. */
static void escape(char out[2 * SWN_TRACE_NAME], const char *name)
{
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        if (c == '"' || c == '\\')
            *out++ = '\\';
        *out++ = c < 0x20 || c >= 0x7f ? '?' : (char)c;
    }
    *out = '\0';
}

/* One end of an asynchronous span, which viewers give a row of its own by its number. */
static void format_end(struct swn_trace *t, const struct event *e, const char *name, char phase, uint64_t at_ns)
{
    added(t, snprintf(next_text(t), EVENT_TEXT,
                      ",\n{\"ph\":\"%c\",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%ld,\"id\":%u,\"ts\":%" PRIu64 ".%03u}",
                      phase, name, track_names[e->track], t->pid, e->row, at_ns / 1000, (unsigned)(at_ns % 1000)));
}

static void format_event(struct swn_trace *t, const struct event *e)
{
    char name[2 * SWN_TRACE_NAME], args[48] = "";
    uint64_t dur = e->end_ns - e->start_ns;

    escape(name, e->name);
    if (e->track == SWN_TRACK_REQUEST) {
        format_end(t, e, name, 'b', e->start_ns);
        format_end(t, e, name, 'e', e->end_ns);
        return;
    }
    name_row(t, e->track, e->row);
    if (e->bytes)
        snprintf(args, sizeof(args), ",\"args\":{\"bytes\":%" PRIu64 "}", e->bytes);
    added(t, snprintf(next_text(t), EVENT_TEXT,
                      ",\n{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%ld,\"tid\":%" PRIu64 ",\"ts\":%" PRIu64
                      ".%03u,\"dur\":%" PRIu64 ".%03u%s}",
                      name, track_names[e->track], t->pid, row_tid(e->track, e->row), e->start_ns / 1000,
                      (unsigned)(e->start_ns % 1000), dur / 1000, (unsigned)(dur % 1000), args));
}

static void flush_locked(struct swn_trace *t)
{
    for (size_t i = 0; i < t->count && !t->err; i++)
        format_event(t, &t->events[i]);
    t->count = 0;
    write_text(t);
}

/* The first row whose last read had ended; if there is none, the row that is free soonest, and the span begins then. */
static void place_on_disk(struct swn_trace *t, struct event *e)
{
    unsigned row = 0;
    for (unsigned i = 0; i < DISK_ROWS; i++) {
        if (t->disk_end_ns[i] <= e->start_ns) {
            row = i;
            break;
        }
        if (t->disk_end_ns[i] < t->disk_end_ns[row])
            row = i;
    }
    if (e->start_ns < t->disk_end_ns[row])
        e->start_ns = t->disk_end_ns[row];
    if (e->end_ns < e->start_ns)
        e->end_ns = e->start_ns;
    t->disk_end_ns[row] = e->end_ns;
    e->row = row;
}

int swn_trace_open(struct swn_trace **out, const char *path)
{
    struct swn_trace *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    int fd = swn_textfile_open(path);
    t->fd = fd < 0 ? fd : swn_fd_registry(fd);
    if (t->fd < 0) {
        free(t);
        return fd < 0 ? fd : -EMFILE;
    }
    pthread_mutex_init(&t->lock, NULL);
    t->pid = (long)getpid();
    added(t,
          snprintf(t->text, EVENT_TEXT,
                   "[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%ld,\"args\":{\"name\":\"swapnet\"}}", t->pid));
    for (int track = 0; track < OPENED_TRACKS; track++)
        name_row(t, (enum swn_track)track, 0);
    write_text(t);
    int err = t->err;
    if (err)
        swn_trace_abandon(t);
    else
        *out = t;
    return err;
}

void swn_trace_span(struct swn_trace *t, enum swn_track track, unsigned thread, const char *name, uint64_t start_ns,
                    uint64_t end_ns, uint64_t bytes)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    if (!t->err) {
        struct event *e = &t->events[t->count++];
        e->start_ns = start_ns;
        e->end_ns = end_ns < start_ns ? start_ns : end_ns;
        e->bytes = bytes;
        e->track = track;
        e->row = thread;
        size_t len = strnlen(name, SWN_TRACE_NAME - 1);
        memcpy(e->name, name, len);
        e->name[len] = '\0';
        if (track == SWN_TRACK_DISK)
            place_on_disk(t, e);
        if (t->count == EVENTS)
            flush_locked(t);
    }
    pthread_mutex_unlock(&t->lock);
}

int swn_trace_flush(struct swn_trace *t)
{
    if (!t)
        return 0;
    pthread_mutex_lock(&t->lock);
    flush_locked(t);
    int err = t->err;
    pthread_mutex_unlock(&t->lock);
    return err;
}

int swn_trace_close(struct swn_trace *t)
{
    if (!t)
        return 0;
    int err = swn_trace_flush(t);
    /* also after an error: the file was cut back to its last complete event, and the bracket may still fit */
    ssize_t n = append(t, "\n]\n", 3);
    if (!err && n != 3)
        err = n < 0 ? -errno : -EIO;
    int closed = swn_fd_registry_close(t->fd);
    err = err ? err : closed;
    pthread_mutex_destroy(&t->lock);
    free(t);
    return err;
}

void swn_trace_abandon(struct swn_trace *t)
{
    if (!t)
        return;
    swn_fd_registry_close(t->fd);
    free(t);
}
