/* Streams, events and asynchronous copies of the stand-in. An event is there when everything is that was launched
 * before it on its stream.
 *
 * STANDIN_EVENTS_ELSEWHERE has all events recorded on a stream where nothing is: a program that relies on them must
 * then be found out, or the stand-in is blind. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/cuda/standin_priv.h"

#define CAPTURED 4

struct event {
    int device;
    unsigned pending; /* records of it that are not there yet */
    unsigned recorded, users;
    int gone;
};

#define ELSEWHERE ((void *)0x8)

static const uintptr_t first_created = 0x10000;
static uintptr_t streams = 0x10000; /* which wait for no other */
static void *captured[CAPTURED];
static int invalid;       /* what is being captured has been broken off */
static __thread int mode; /* of this thread; 2: relaxed */

int standin_is_captured(const void *stream)
{
    for (int i = 0; i < CAPTURED; i++)
        if (captured[i] && captured[i] == stream)
            return 1;
    return 0;
}

int standin_strict(void)
{
    return mode != 2;
}

int standin_refused(void)
{
    for (int i = 0; i < CAPTURED; i++)
        if (captured[i]) {
            invalid |= standin_strict();
            return CAPTURE_UNSUPPORTED;
        }
    return OK;
}

int standin_unsafe(void)
{
    return standin_strict() && standin_refused();
}

static int was_created(const void *stream)
{
    return stream == ELSEWHERE || ((uintptr_t)stream > first_created && (uintptr_t)stream <= streams);
}

int standin_legacy(const void *a, const void *b)
{
    return (!a && !was_created(b)) || (!b && !was_created(a));
}

int standin_legacy_captured(const void *stream)
{
    for (int i = 0; !stream && i < CAPTURED; i++)
        if (captured[i] && standin_legacy(NULL, captured[i]))
            return 1;
    return 0;
}

EXPORT int standin_capture(void *stream, int begin)
{
    standin_begin();
    for (int i = 0; i < CAPTURED; i++)
        if (captured[i] == (begin ? NULL : stream)) {
            captured[i] = begin ? stream : NULL;
            break;
        }
    int err = invalid ? CAPTURE_INVALIDATED : OK;
    if (!begin)
        invalid = 0;
    return standin_end(err);
}

EXPORT int cudaStreamCreateWithFlags(void **stream, unsigned flags)
{
    standin_begin();
    if (flags != 1 || standin_made_to_fail())
        return standin_end(INVALID);
    *stream = (void *)(streams += 16);
    return standin_end(OK);
}

static void *destroyed;

EXPORT int cudaStreamDestroy(void *stream)
{
    standin_begin();
    destroyed = stream;
    return standin_end(OK);
}

EXPORT int cudaStreamIsCapturing(void *stream, int *status)
{
    standin_begin();
    if (stream && stream == destroyed)
        standin_broken("a stream is used that has been destroyed", stream);
    *status = standin_is_captured(stream);
    return standin_end(OK);
}

EXPORT int cudaThreadExchangeStreamCaptureMode(int *other)
{
    int before = mode;
    mode = *other;
    *other = before;
    return OK;
}

EXPORT int cudaEventCreateWithFlags(void **event, unsigned flags)
{
    standin_begin();
    if (flags != 3 || standin_made_to_fail())
        return standin_end(NO_MEMORY);
    struct event *e = calloc(1, sizeof *e);
    cudaGetDevice(&e->device);
    *event = e;
    return standin_end(OK);
}

static void free_unused(struct event *e)
{
    if (!e->pending && !e->users && e->gone)
        free(e);
}

static void is_there(void *arg)
{
    struct event *e = arg;
    --e->pending;
    free_unused(e);
}

/* A stream that waits for an event as it is now. */
struct waiter {
    struct event *event;
    unsigned record;
};

int standin_waits(const void *waiter)
{
    const struct waiter *w = waiter;
    return (int)(w->event->recorded - w->event->pending - w->record) < 0;
}

static void has_waited(void *arg)
{
    struct waiter *w = arg;
    w->event->users--;
    free_unused(w->event);
    free(w);
}

EXPORT int cudaStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    struct event *e = event;
    struct waiter *w = malloc(sizeof *w);
    standin_begin();
    if (!w || flags || standin_made_to_fail()) {
        free(w);
        return standin_end(INVALID);
    }
    if (standin_is_captured(stream))
        standin_broken("a graph waits for an event outside of it", event);
    e->users++;
    *w = (struct waiter){.event = e, .record = e->recorded};
    standin_enqueue_waiter(stream, has_waited, w);
    return standin_end(OK);
}

EXPORT int cudaEventRecord(void *event, void *stream)
{
    struct event *e = event;
    standin_begin();
    int index;
    cudaGetDevice(&index);
    if (e->device != index)
        standin_broken("an event of another device than the current one is recorded", event);
    if (standin_is_captured(stream))
        standin_broken("an event is put into a graph and waited for outside", event);
    if (standin_made_to_fail())
        return standin_end(INVALID);
    e->pending++;
    e->recorded++;
    standin_enqueue(getenv("STANDIN_EVENTS_ELSEWHERE") ? ELSEWHERE : stream, is_there, e);
    return standin_end(OK);
}

EXPORT int cudaEventQuery(void *event)
{
    const struct event *e = event;
    standin_begin();
    return standin_end(e->pending ? NOT_READY : OK);
}

EXPORT int cudaEventSynchronize(void *event)
{
    const struct event *e = event;
    standin_begin();
    while (e->pending)
        pthread_cond_wait(&standin_moved, &standin_lock);
    standin_settle();
    return standin_end(OK);
}

EXPORT int cudaEventDestroy(void *event)
{
    struct event *e = event;
    standin_begin();
    e->gone = 1;
    free_unused(e);
    return standin_end(OK);
}

/* --- copies --- */

struct copy {
    char *to;
    const char *from;
    size_t bytes;
    unsigned long sum;
};

static unsigned long sum(const char *at, size_t bytes)
{
    unsigned long s = 0;
    for (size_t off = 0; off + 8 <= bytes; off += 64) {
        unsigned long word;
        memcpy(&word, at + off, sizeof word);
        s = (s ^ word) * 0x9e3779b97f4a7c15ul;
    }
    return s;
}

static char *view(const void *p, size_t bytes)
{
    const struct memory *m = standin_find(p, 1);
    if (!m)
        return (char *)(uintptr_t)p;
    size_t off = (size_t)((const char *)p - m->device);
    for (size_t at = off; m->mapped && at < off + bytes; at += STANDIN_GRANULE)
        if (!m->mapped[at / STANDIN_GRANULE])
            standin_broken("a copy to device memory where none is mapped", p);
    return m->view + off;
}

static void do_copy(void *arg)
{
    struct copy *c = arg;
    if (sum(c->from, c->bytes) != c->sum)
        standin_broken("memory changed before it was copied to the device", c->from);
    memcpy(view(c->to, c->bytes), c->from, c->bytes);
    free(c);
}

/* From the host to the device, or from there to the host. */
EXPORT int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
    if (kind == 2) {
        standin_copy_back(stream, to, from, bytes);
        return OK;
    }
    struct copy *c = malloc(sizeof *c);
    standin_begin();
    if (!c || kind != 1 || standin_made_to_fail()) {
        free(c);
        return standin_end(INVALID);
    }
    *c = (struct copy){.to = to, .from = from, .bytes = bytes, .sum = sum(from, bytes)};
    standin_enqueue(stream, do_copy, c);
    return standin_end(OK);
}
