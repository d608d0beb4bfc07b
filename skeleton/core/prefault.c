/* skeleton/core/prefault.c - see prefault.h. */
#define _GNU_SOURCE
#include "skeleton/core/prefault.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "blocks/memory/arena.h"
#include "base/thread.h"
#include "skeleton/engine/section.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* The operator fills less before the thread has woken. */
#define LEAST ((size_t)256 << 10)
/* The end of an operator may have to wait for one piece: some 60 microseconds, or the 0.3 ms of a huge page. */
#define PIECE ((size_t)256 << 10)

struct swn_prefault {
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    uintptr_t owner, at, end; /* owner 0: idle */
    int busy;                 /* the thread is making the piece before `at` */
    int refused;              /* the kernel is older than 5.14, or has no memory: no further attempt */
    pthread_t thread;
};

static void *populate(void *arg)
{
    struct swn_prefault *p = arg;
    swn_lock(&p->lock);
    for (;;) {
        while (p->at >= p->end)
            pthread_cond_wait(&p->work, &p->lock);
        uintptr_t at = p->at;
        size_t bytes = p->end - at < PIECE ? p->end - at : PIECE;
        p->at += bytes;
        p->busy = 1;
        swn_unlock(&p->lock);
        int failed = madvise((void *)at, bytes, MADV_POPULATE_WRITE);
        swn_lock(&p->lock);
        p->busy = 0;
        if (failed)
            p->refused = 1, p->at = p->end;
        pthread_cond_broadcast(&p->idle); /* wakes the operator, and a thread that frees the tensor meanwhile */
    }
    return NULL;
}

static struct swn_prefault *start(void)
{
    struct swn_prefault *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->idle, NULL);
    if (swn_thread_start(&p->thread, populate, p)) {
        free(p);
        return NULL;
    }
    pthread_setname_np(p->thread, "swn-prefault");
    return p;
}

int swn_prefault_begin(struct swn_prefault **out, uintptr_t at, size_t bytes)
{
    if (bytes < LEAST || (!*out && !(*out = start())))
        return 0;
    struct swn_prefault *p = *out;
    swn_lock(&p->lock);
    int ours = !p->owner && !p->refused;
    if (ours) {
        p->owner = p->at = at;
        p->end = at + bytes;
        pthread_cond_signal(&p->work);
    }
    swn_unlock(&p->lock);
    return ours;
}

void swn_prefault_end(struct swn_prefault *p, uintptr_t at)
{
    swn_lock(&p->lock);
    if (p->owner == at) {
        p->at = p->end;
        while (p->busy)
            pthread_cond_wait(&p->idle, &p->lock);
        p->owner = 0;
    }
    swn_unlock(&p->lock);
}

void swn_prefault_fork_child(struct swn_prefault **p)
{
    *p = NULL; /* a thread that does not exist here may hold its lock: it is not destroyed */
}
