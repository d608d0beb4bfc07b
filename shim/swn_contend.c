#define _GNU_SOURCE
#include "swn_contend.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "swn_fetch.h"
#include "swn_scratch.h"
#include "swn_thread.h"

/* As layers are read: the next one is asked for before this one is there. */
#define AHEAD 2
/* A disk that takes longer to write all of it is read from less. */
#define MOST_S 2.0
#define LAST_READ_S 2
#define STOPPED 20

struct swn_contend {
    const struct swn_io *io;
    const char *dir;
    unsigned depth; /* and piece_bytes: as the program's own queue */
    size_t piece_bytes;
    size_t read_bytes;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t told;
    int busy, ended;
    _Atomic int ready;
    uint64_t bytes; /* that came, and what they took */
    double seconds;
};

/* Whether it is to read now, or, if it may wait for that, at all. */
static int wanted(struct swn_contend *c, int may_wait)
{
    pthread_mutex_lock(&c->lock);
    while (may_wait && !c->busy && !c->ended)
        pthread_cond_wait(&c->told, &c->lock);
    int go_on = c->busy && !c->ended;
    pthread_mutex_unlock(&c->lock);
    return go_on;
}

/* What takes so many times as long as the reads before is no reading: the whole process was stopped meanwhile (SIGSTOP,
 * a frozen cgroup, a machine that slept). */
static int was_stopped(const struct swn_contend *c, size_t bytes, double seconds)
{
    return c->bytes >= SWN_CONTEND_LEAST / 4 && seconds * (double)c->bytes > STOPPED * c->seconds * (double)bytes;
}

/* *back_s: when the one before came. */
static void await(struct swn_contend *c, struct swn_scratch_read *r, double *back_s)
{
    int err = swn_scratch_await(r);
    double begun = r->begun_s > *back_s ? r->begun_s : *back_s;
    if (err) /* a disk that fails is not a busy one; the program's own reads will say so */
        return;
    double took = r->back_s > begun ? r->back_s - begun : 0;
    pthread_mutex_lock(&c->lock);
    if (!was_stopped(c, r->job.len, took)) {
        c->bytes += r->job.len;
        c->seconds += took;
    }
    pthread_mutex_unlock(&c->lock);
    *back_s = r->back_s;
}

/* Over and over, for as long as it is wanted. */
static void read_all(struct swn_contend *c, struct swn_fetch *fetch, const struct swn_scratch *s)
{
    struct swn_scratch_read reads[AHEAD];
    size_t first = 0, next = 0, at = 0;
    double back_s = 0;
    for (;;) {
        int more = next - first < AHEAD && wanted(c, next == first);
        if (!more && next == first)
            break;
        if (!more) {
            await(c, &reads[first++ % AHEAD], &back_s);
            continue;
        }
        size_t len = s->bytes - at < c->read_bytes ? s->bytes - at : c->read_bytes;
        if (swn_scratch_submit(s, fetch, at, len, &reads[next % AHEAD]))
            break;
        next++;
        at = at + len < s->bytes ? at + len : 0;
    }
    while (first < next)
        await(c, &reads[first++ % AHEAD], &back_s);
}

static void *run(void *arg)
{
    struct swn_contend *c = arg;
    struct swn_scratch s;
    struct swn_fetch *fetch = NULL;
    struct swn_fetch_opts opts = {
        .io = c->io, .depth = c->depth, .piece_bytes = c->piece_bytes, .best_path = SWN_FETCH_URING};
    int rc = swn_scratch_open(&s, c->io, c->dir, SWN_CONTEND_BYTES, SWN_SCRATCH_WINDOW, MOST_S);
    if (!rc)
        rc = swn_fetch_start(&fetch, &opts);
    atomic_store(&c->ready, !rc);
    if (!rc)
        read_all(c, fetch, &s);
    if (fetch)
        swn_fetch_stop(fetch);
    swn_scratch_close(&s);
    return NULL;
}

struct swn_contend *swn_contend_start(const struct swn_io *io, const char *dir, const struct swn_reads *queue,
                                      size_t bytes)
{
    struct swn_contend *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->io = io;
    c->dir = dir;
    c->depth = queue->depth;
    c->piece_bytes = queue->request_bytes;
    c->read_bytes = bytes;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->told, NULL);
    if (swn_thread_start(&c->thread, run, c)) {
        free(c);
        return NULL;
    }
    pthread_setname_np(c->thread, "swn-contend");
    return c;
}

double swn_contend_alpha(struct swn_contend *c)
{
    pthread_mutex_lock(&c->lock);
    double alpha = c->bytes >= SWN_CONTEND_LEAST ? c->seconds / (double)c->bytes : 0;
    pthread_mutex_unlock(&c->lock);
    return alpha;
}

int swn_contend_ready(struct swn_contend *c)
{
    return atomic_load(&c->ready);
}

static void tell(struct swn_contend *c, int busy, int ended)
{
    pthread_mutex_lock(&c->lock);
    c->busy = busy;
    c->ended = ended;
    pthread_cond_signal(&c->told);
    pthread_mutex_unlock(&c->lock);
}

void swn_contend_set(struct swn_contend *c, int busy)
{
    tell(c, busy, 0);
}

void swn_contend_end(struct swn_contend *c)
{
    tell(c, 0, 1);
}

void swn_contend_stop(struct swn_contend *c)
{
    struct timespec until;
    tell(c, 0, 1);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LAST_READ_S;
    if (pthread_timedjoin_np(c->thread, NULL, &until)) {
        pthread_detach(c->thread); /* it still uses c */
        return;
    }
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->told);
    free(c);
}
