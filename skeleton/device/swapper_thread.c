/* skeleton/device/swapper_thread.c - the thread of a device's swapper: brings blocks in, lets them leave, and ends
 * those whose weights are gone. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>

#include "skeleton/device/read.h"
#include "skeleton/device/swapper_internal.h"
#include "skeleton/engine/engine_internal.h"
#include "base/thread.h"
#include "skeleton/engine/section.h"

/* The end of a capture is not signalled. */
#define RETRY_NS 20000000u

static _Atomic uint64_t swap_ins, swapped_bytes;
static _Atomic int said_bounce;

static int send_staged(struct swn_devswap *s, const struct swn_devweight *w, char *to, struct swn_devread *count)
{
    unsigned i = 0;
    for (size_t off = 0; off < w->bytes; off += s->pool.stage_bytes, i++) {
        size_t n = w->bytes - off < s->pool.stage_bytes ? w->bytes - off : s->pool.stage_bytes;
        char *stage = swn_devpool_stage(&s->pool, i);
        if (!stage)
            return -EIO;
        swn_devread(&swn_engine_one, w->data, off, n, stage, count);
        if (swn_devpool_send(&s->pool, i, to + off, n))
            return -EIO;
    }
    return 0;
}

/* Reads the weights' bytes to where the device reads them, to the pinned copy, or through stages. 0 or an error. Lock
 * held, may wait. */
static int read_weights(struct swn_devswap *s, struct swap_group *b)
{
    char *to = b->buffer.host ? b->buffer.host : b->copy;
    struct swn_devread count = {0};
    int err = 0;
    for (struct swn_devweight *w = b->copied ? NULL : b->weights; w && !err; w = w->next) {
        if (w->gone)
            continue;
        b->reading = w;
        swn_unlock(&s->lock);
        if (to)
            swn_devread(&swn_engine_one, w->data, 0, w->bytes, to + w->off, &count);
        else
            err = send_staged(s, w, b->buffer.address + w->off, &count);
        swn_lock(&s->lock);
        b->reading = NULL;
        pthread_cond_broadcast(&s->changed);
    }
    b->copied = b->copy != NULL;
    atomic_fetch_add(&swapped_bytes, count.disk_bytes);
    if (count.bounced && !atomic_exchange(&said_bounce, 1))
        swn_say(
            "the kernel does not read from the disk straight into memory of the device: weights go through the page "
            "cache");
    return err;
}

/* 0: the block is in place, or in flight where operators can be launched behind the flight; or an error. Lock held, may
 * wait. */
static int fill(struct swn_devswap *s, struct swap_group *b)
{
    int sends = !b->buffer.host, err = sends ? swn_devflight_begin(s) : 0;
    if (!err)
        err = read_weights(s, b);
    if (!err && b->copy)
        err = swn_devpool_send_pinned(&s->pool, b->buffer.address, b->copy, b->used);
    if (!err && sends)
        err = swn_devflight_end(s, b);
    swn_unlock(&s->lock);
    if (!err)
        err = s->pool.way->hand_over(&s->pool, &b->buffer);
    else if (sends)
        swn_devpool_sent(&s->pool); /* part of it may be in flight */
    swn_lock(&s->lock);
    return err;
}

/* Brings b in. 1: something has changed. */
static int bring(struct swn_devswap *s, struct swap_group *b)
{
    struct swn_devbuffer buffer;
    b->sealed = 1; /* its size counts from here on */
    int err = swn_devbuffer_find(s, b, &buffer);
    if (err) {
        b->failed = err == -ENOMEM;
        return err != -EBUSY;
    }
    s->claimed += b->users ? buffer.bytes - b->bytes : 0;
    b->state = FILLING;
    b->buffer = buffer;
    swn_pinned_cache_make(s, b);
    swn_unlock(&s->lock);
    err = s->pool.way->enter(&s->pool, &b->buffer, b->at);
    swn_lock(&s->lock);
    int left = err == -EFAULT;
    if (!err && (err = fill(s, b))) {
        swn_unlock(&s->lock);
        left = s->pool.way->leave(&s->pool, &b->buffer) != 0;
        swn_lock(&s->lock);
    }
    swn_swap_group_set(s, b, err ? OUT : IN);
    b->failed = err != 0;
    b->lost |= left;
    b->use.came += !err;
    if (!err)
        atomic_fetch_add(&swap_ins, 1);
    else if (!left)
        swn_devbuffer_spare(s, b->buffer);
    return 1;
}

/* Work that a graph launches has no events: waits for all of the device, once the last weight of the block is gone. */
static int wait_for_graphs(struct swn_devswap *s, struct swap_group *b)
{
    swn_unlock(&s->lock);
    int err = swn_cuda_capture_under_way(&s->pool.cuda) ? -EAGAIN : s->pool.cuda.device_synchronize();
    if (err > 0)
        s->pool.cuda.last_error();
    if (err > 0 && swn_cuda_refused_by_capture(err))
        err = -EAGAIN;
    swn_lock(&s->lock);
    if (!err)
        swn_swap_group_keep_no_more(s, b);
    else if (err == -EAGAIN)
        s->retry = 1;
    else
        swn_swap_group_keep(s, b, KEPT_FOR_GOOD);
    return err;
}

/* Ends a block whose weights are gone. 1: done. */
static int bury(struct swn_devswap *s, struct swap_group *b)
{
    struct swn_devbuffer buffer;
    if (b->kept && wait_for_graphs(s, b))
        return 0;
    if (b->state == IN) {
        if (swn_devbuffer_take(s, b, &buffer))
            return 0;
        swn_devbuffer_drop(s, buffer);
    }
    swn_pinned_cache_drop(s, b);
    swn_swap_group_free(s, b);
    while (!s->count && !swn_devspares_any(&s->spare, &buffer)) /* no block is left that could use them */
        swn_devbuffer_drop(s, buffer);
    return 1;
}

/* Whether a is to be brought before b: first blocks that operators wait for, in their order, then blocks that they will
 * need. */
static int before(const struct swap_group *a, const struct swap_group *b)
{
    if (!a->users != !b->users)
        return a->users != 0;
    return a->users ? a->use.asked < b->use.asked : a->use.next_use < b->use.next_use;
}

static struct swap_group *next_job(const struct swn_devswap *s)
{
    struct swap_group *best = NULL;
    for (size_t i = 0; i < s->count; i++) {
        struct swap_group *b = s->blocks[i];
        if (b->state == OUT && !b->dying && !b->failed && b->use.tried != s->tries &&
            (b->users || (b->use.ahead && !b->moves)) && (!best || before(b, best)))
            best = b;
    }
    return best;
}

static struct swap_group *next_dead(const struct swn_devswap *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->blocks[i]->dying && s->blocks[i]->users == (s->blocks[i]->kept == KEPT_FOR_GRAPHS && !s->retry))
            return s->blocks[i];
    return NULL;
}

/* A block that is to get another buffer, before an operator uses it. */
static struct swap_group *next_mover(const struct swn_devswap *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->blocks[i]->moves && s->blocks[i]->state == IN && !s->blocks[i]->users)
            return s->blocks[i];
    return NULL;
}

/* Copies take turns with blocks that operators wait for. */
static int has_to_wait(struct swn_devswap *s)
{
    const struct swap_group *job = next_job(s);
    return job && job->users && ++s->turns % 2;
}

static int step(struct swn_devswap *s)
{
    struct swap_group *dead;
    while ((dead = next_dead(s)))
        if (bury(s, dead))
            return 1;
    if (swn_devbuffer_shrink(s))
        return 1;
    if (swn_pinned_cache_wanted() && !has_to_wait(s) && swn_pinned_cache_give(s))
        return 1;
    struct swap_group *b = next_mover(s);
    struct swn_devbuffer buffer;
    if (b) {
        if (!swn_devbuffer_take(s, b, &buffer))
            swn_devbuffer_spare(s, buffer);
        return 1;
    }
    s->tries++;
    while ((b = next_job(s))) {
        b->use.tried = s->tries; /* a block that has to wait blocks no other */
        if (bring(s, b))
            return 1;
    }
    if (s->landed == s->departed)
        return 0;
    swn_devflight_land(s, s->departed); /* from here on operators need not make the device wait */
    return 1;
}

void *swn_devswap_work(void *swapper)
{
    struct swn_devswap *s = swapper;
    sigset_t faults;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    sigaddset(&faults, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &faults, NULL); /* reading a tensor's own address may need them */
    int err = swn_devpool_begin(&s->pool);
    swn_lock(&s->lock);
    s->broken = err != 0;
    for (;;) {
        pthread_cond_broadcast(&s->changed);
        while (s->broken || !step(s)) {
            if (s->retry)
                swn_cond_wait_until(&s->changed, &s->lock, swn_now_ns() + RETRY_NS);
            else
                pthread_cond_wait(&s->changed, &s->lock);
            s->retry = 0;
        }
    }
    return NULL;
}

void swn_devwork_stats(struct swn_stats *out)
{
    out->device_swap_ins = atomic_load(&swap_ins);
    out->device_swapped_bytes = atomic_load(&swapped_bytes);
}
