#define _GNU_SOURCE
#include "swn_contend.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "swn_fetch.h"
#include "swn_scratch.h"
#include "swn_thread.h"

/* A disk that takes longer to write all of it is read from less. */
#define MOST_S 2.0
#define LAST_READ_S 2

struct swn_contend {
    const struct swn_io *io;
    const char *dir;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t told;
    int busy, ended;
    _Atomic int ready;
};

static void done(struct swn_fetch_job *job, int err)
{
    (void)err; /* a disk that fails is not a busy one; the program's own reads will say so */
    sem_post(job->user);
}

/* 0: it is to end. */
static int wanted(struct swn_contend *c)
{
    pthread_mutex_lock(&c->lock);
    while (!c->busy && !c->ended)
        pthread_cond_wait(&c->told, &c->lock);
    int go_on = !c->ended;
    pthread_mutex_unlock(&c->lock);
    return go_on;
}

static void *run(void *arg)
{
    struct swn_contend *c = arg;
    struct swn_scratch s;
    struct swn_fetch *fetch = NULL;
    struct swn_fetch_opts opts = {.io = c->io, .best_path = SWN_FETCH_URING};
    sem_t here;
    sem_init(&here, 0, 0);
    int rc = swn_scratch_open(&s, c->io, c->dir, SWN_CONTEND_BYTES, MOST_S);
    if (!rc)
        rc = swn_fetch_start(&fetch, &opts);
    atomic_store(&c->ready, !rc);
    while (!rc && wanted(c)) {
        struct swn_fetch_job job = {
            .file = &s.file->fetch, .off = s.off, .buf = s.buf, .len = s.bytes, .done = done, .user = &here};
        rc = swn_fetch_submit(fetch, &job, 0);
        while (!rc && sem_wait(&here) && errno == EINTR)
            ;
    }
    if (fetch)
        swn_fetch_stop(fetch);
    swn_scratch_close(&s);
    sem_destroy(&here);
    return NULL;
}

struct swn_contend *swn_contend_start(const struct swn_io *io, const char *dir)
{
    struct swn_contend *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->io = io;
    c->dir = dir;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->told, NULL);
    if (swn_thread_start(&c->thread, run, c)) {
        free(c);
        return NULL;
    }
    pthread_setname_np(c->thread, "swn-contend");
    return c;
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
