/* skeleton/observe/io_load.c - see io_load.h. */
#define _GNU_SOURCE
#include "skeleton/observe/io_load.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "blocks/memory/fetch_queue.h"
#include "profiles/disk_speed.h"
#include "profiles/scratch_file.h"
#include "base/clock.h"
#include "base/thread.h"
#include "skeleton/engine/section.h"

/* As when layers are read: the next read is requested before the present one has ended. */
#define AHEAD 2
/* Seconds: a disk that takes longer to write the scratch file gets a smaller one. */
#define MOST_S 2.0
#define LAST_READ_NS (uint64_t)2000000000
/* Batches of reads: short, long and short ones (struct swn_disk_speed separates the cost of a byte from that of a
 * read). After these no read is under way for a moment, so that the next one waits for the disk's answer. */
#define ROWS 3
#define SHORTER 4
/* Larger reads are not needed to tell the two apart, and a slow disk's scratch file is no larger. */
#define MOST_READ ((size_t)4 << 20)
#define PAGE ((size_t)4096)
/* A thread that waits for rest waits for whole series of reads, for at least and at most these times. */
#define REST_S 0.02
#define REST_MOST_NS (uint64_t)200000000

/* The requested state. */
enum { IDLE, BUSY, REST, ENDED };

struct swn_io_load {
    const struct swn_io *io;
    const char *dir;
    unsigned depth; /* and piece_bytes: those of the program's own queue */
    size_t piece_bytes;
    size_t read_bytes;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t told;
    pthread_cond_t rested;
    int task, is_over;
    _Atomic int ready;
    /* Busy, and at rest. */
    struct swn_disk_speed pace[2];
    uint64_t bytes[2];
};

/* The state that is requested now, or, if the thread may wait, the next one. */
static int wanted(struct swn_io_load *c, int may_wait)
{
    swn_lock(&c->lock);
    while (may_wait && c->task == IDLE)
        pthread_cond_wait(&c->told, &c->lock);
    int task = c->task;
    swn_unlock(&c->lock);
    return task;
}

static size_t length(const struct swn_io_load *c, unsigned at)
{
    size_t shorter = c->read_bytes / SHORTER / PAGE * PAGE;
    return at / SWN_DISK_SPEED_BATCH % 2 ? c->read_bytes : shorter;
}

static void await(struct swn_io_load *c, struct swn_scratch_read *r, int rest)
{
    int err = swn_scratch_await(r);
    if (err) /* a failing disk is not a busy one; the program's own reads will report it */
        return;
    swn_lock(&c->lock);
    swn_disk_speed_add(&c->pace[rest], (double)r->job.len, r->begun_s * 1e9, r->back_s * 1e9);
    c->bytes[rest] += r->job.len;
    swn_unlock(&c->lock);
}

/* Makes the reads of one series, while they are wanted in that state. 0, or the queue refuses. */
static int read_series(struct swn_io_load *c, struct swn_fetch *fetch, const struct swn_scratch *s, size_t *at,
                       int task)
{
    struct swn_scratch_read reads[AHEAD];
    unsigned first = 0, next = 0;
    int rc = 0;
    for (;;) {
        int more = !rc && next - first < AHEAD && next < ROWS * SWN_DISK_SPEED_BATCH && wanted(c, 0) == task;
        if (!more && first == next)
            return rc;
        if (!more) {
            await(c, &reads[first++ % AHEAD], task == REST);
            continue;
        }
        size_t len = length(c, next);
        *at = s->bytes - *at < len ? 0 : *at;
        rc = swn_scratch_submit(s, fetch, *at, len, &reads[next % AHEAD]);
        next += !rc;
        *at += len;
    }
}

/* Reads until told to stop. */
static void read_all(struct swn_io_load *c, struct swn_fetch *fetch, const struct swn_scratch *s)
{
    double begin = 0;
    size_t at = 0;
    int task, before = IDLE, rc = 0;
    while (!rc && (task = wanted(c, 1)) != ENDED) {
        if (task != before)
            begin = swn_seconds();
        rc = read_series(c, fetch, s, &at, task);
        before = task;
        if (task == REST && (rc || swn_seconds() - begin > REST_S)) {
            swn_lock(&c->lock);
            c->task = c->task == REST ? IDLE : c->task;
            pthread_cond_signal(&c->rested);
            swn_unlock(&c->lock);
            before = IDLE;
        }
    }
}

static void *run(void *arg)
{
    struct swn_io_load *c = arg;
    struct swn_scratch s;
    struct swn_fetch *fetch = NULL;
    struct swn_fetch_opts opts = {
        .io = c->io, .depth = c->depth, .piece_bytes = c->piece_bytes, .best_path = SWN_FETCH_URING};
    int rc = swn_scratch_open(&s, c->io, c->dir, SWN_IO_LOAD_BYTES, SWN_SCRATCH_WINDOW, MOST_S);
    if (!rc)
        rc = swn_fetch_start(&fetch, &opts);
    atomic_store(&c->ready, !rc);
    if (!rc)
        read_all(c, fetch, &s);
    atomic_store(&c->ready, 0); /* no thread waits for these reads any more */
    if (fetch)
        swn_fetch_stop(fetch);
    swn_scratch_close(&s);
    swn_lock(&c->lock);
    c->is_over = 1;
    pthread_cond_signal(&c->rested);
    swn_unlock(&c->lock);
    return NULL;
}

struct swn_io_load *swn_io_load_start(const struct swn_io *io, const char *dir, const struct swn_queue_depth *queue,
                                      size_t bytes)
{
    struct swn_io_load *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->io = io;
    c->dir = dir;
    c->depth = queue->depth;
    c->piece_bytes = queue->request_bytes;
    c->read_bytes = bytes < MOST_READ ? bytes : MOST_READ;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->told, NULL);
    swn_cond_init(&c->rested);
    if (swn_thread_start(&c->thread, run, c)) {
        free(c);
        return NULL;
    }
    pthread_setname_np(c->thread, "swn-io-load");
    return c;
}

unsigned swn_io_load_disk(struct swn_io_load *c, int rest, struct swn_disk_model *out)
{
    swn_lock(&c->lock);
    unsigned known = c->bytes[rest] >= SWN_IO_LOAD_LEAST ? swn_disk_speed_get(&c->pace[rest], out) : 0;
    swn_unlock(&c->lock);
    return known;
}

int swn_io_load_ready(struct swn_io_load *c)
{
    return atomic_load(&c->ready);
}

static void tell(struct swn_io_load *c, int task)
{
    swn_lock(&c->lock);
    if (c->task != ENDED)
        c->task = task;
    pthread_cond_signal(&c->told);
    swn_unlock(&c->lock);
}

void swn_io_load_set(struct swn_io_load *c, int busy)
{
    tell(c, busy ? BUSY : IDLE);
}

void swn_io_load_rest(struct swn_io_load *c)
{
    uint64_t until = (uint64_t)(swn_seconds() * 1e9) + REST_MOST_NS;
    tell(c, REST);
    swn_lock(&c->lock);
    while (c->task == REST && !swn_cond_wait_until(&c->rested, &c->lock, until))
        ;
    if (c->task == REST)
        c->task = IDLE;
    swn_unlock(&c->lock);
}

void swn_io_load_end(struct swn_io_load *c)
{
    tell(c, ENDED);
}

void swn_io_load_stop(struct swn_io_load *c)
{
    uint64_t until = (uint64_t)(swn_seconds() * 1e9) + LAST_READ_NS;
    int is_over;
    tell(c, ENDED);
    swn_lock(&c->lock);
    while (!c->is_over && !swn_cond_wait_until(&c->rested, &c->lock, until))
        ;
    is_over = c->is_over;
    swn_unlock(&c->lock);
    if (!is_over) {
        pthread_detach(c->thread); /* it still uses c */
        return;
    }
    pthread_join(c->thread, NULL);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->told);
    pthread_cond_destroy(&c->rested);
    free(c);
}
