#define _GNU_SOURCE
#include "swn_contend.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "swn_engine_priv.h"
#include "swn_fetch.h"
#include "swn_profile.h"
#include "swn_scratch.h"
#include "swn_thread.h"

/* As layers are read: of some MiB, and the next one asked for before this one is there. */
#define READ_BYTES ((size_t)SWN_PROFILE_BUSY_READ)
#define AHEAD 2
/* Less says nothing of its speed. */
#define LEAST_BYTES SWN_CONTEND_BYTES
/* A disk that takes longer to write all of it is read from less. */
#define MOST_S 2.0
#define LAST_READ_S 2

struct swn_contend {
    const struct swn_io *io;
    const char *dir;
    unsigned depth; /* and piece_bytes: as the program's own queue */
    size_t piece_bytes;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t told;
    int busy, ended;
    _Atomic int ready;
    uint64_t done_ns, bytes, ns; /* when the last read came; what came, and what it took */
};

struct read {
    struct swn_contend *c;
    struct swn_fetch_job job;
    uint64_t start_ns;
    sem_t here;
};

static void done(struct swn_fetch_job *job, int err)
{
    struct read *r = job->user;
    struct swn_contend *c = r->c;
    pthread_mutex_lock(&c->lock);
    uint64_t now = swn_now_ns(), begin = r->start_ns > c->done_ns ? r->start_ns : c->done_ns;
    if (!err) { /* a disk that fails is not a busy one; the program's own reads will say so */
        c->bytes += job->len;
        c->ns += now - begin;
    }
    c->done_ns = now;
    pthread_mutex_unlock(&c->lock);
    sem_post(&r->here);
}

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

static void await(struct read *r)
{
    while (sem_wait(&r->here) && errno == EINTR)
        ;
}

/* Over and over, for as long as it is wanted. */
static void read_all(struct swn_contend *c, struct swn_fetch *fetch, const struct swn_scratch *s)
{
    struct read reads[AHEAD];
    size_t first = 0, next = 0, at = 0;
    for (size_t i = 0; i < AHEAD; i++)
        sem_init(&reads[i].here, 0, 0);
    for (;;) {
        int more = next - first < AHEAD && wanted(c, next == first);
        if (!more && next == first)
            break;
        if (!more) {
            await(&reads[first++ % AHEAD]);
            continue;
        }
        struct read *r = &reads[next % AHEAD];
        size_t len = s->bytes - at < READ_BYTES ? s->bytes - at : READ_BYTES;
        r->c = c;
        r->start_ns = swn_now_ns();
        r->job = (struct swn_fetch_job){
            .file = &s->file->fetch, .off = s->off + at, .buf = s->buf + at, .len = len, .done = done, .user = r};
        if (swn_fetch_submit(fetch, &r->job, 0))
            break;
        next++;
        at = at + len < s->bytes ? at + len : 0;
    }
    while (first < next)
        await(&reads[first++ % AHEAD]);
    for (size_t i = 0; i < AHEAD; i++)
        sem_destroy(&reads[i].here);
}

static void *run(void *arg)
{
    struct swn_contend *c = arg;
    struct swn_scratch s;
    struct swn_fetch *fetch = NULL;
    struct swn_fetch_opts opts = {
        .io = c->io, .depth = c->depth, .piece_bytes = c->piece_bytes, .best_path = SWN_FETCH_URING};
    int rc = swn_scratch_open(&s, c->io, c->dir, SWN_CONTEND_BYTES, MOST_S);
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

struct swn_contend *swn_contend_start(const struct swn_io *io, const char *dir, const struct swn_reads *queue)
{
    struct swn_contend *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->io = io;
    c->dir = dir;
    c->depth = queue->depth;
    c->piece_bytes = queue->request_bytes;
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
    double alpha = c->bytes >= LEAST_BYTES ? (double)c->ns / 1e9 / (double)c->bytes : 0;
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
