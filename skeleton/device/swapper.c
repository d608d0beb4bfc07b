/* skeleton/device/swapper.c - see swapper.h. */
#define _GNU_SOURCE
#include "skeleton/engine/program_threads.h"
#include "skeleton/device/swapper.h"

#include <errno.h>
#include <stdlib.h>

#include "blocks/memory/arena.h"
#include "skeleton/device/pinned_cache.h"
#include "skeleton/device/swapper_internal.h"
#include "skeleton/engine/engine_internal.h"
#include "base/thread.h"
#include "skeleton/core/prefetch.h"
#include "skeleton/engine/section.h"

static _Atomic uint64_t stall_ns, excess_bytes; /* excess_bytes: of graphs */
static _Atomic int said_excess;

/* --- weights --- */

struct swn_devweight *swn_devswap_add(struct swn_devswap *s, uintptr_t data, size_t bytes, void **address)
{
    size_t size = swn_round_up(bytes, SWN_PAGE);
    struct swn_devweight *w = calloc(1, sizeof *w);
    swn_lock(&s->lock);
    struct swap_group *b = s->count ? s->blocks[s->count - 1] : NULL;
    if (!b || b->sealed || b->dying || b->used + size > b->reserved)
        b = w && !s->broken && swn_round_up(size, s->pool.unit) <= s->capacity ? swn_swap_group_new(s, size) : NULL;
    if (b && w) {
        *w = (struct swn_devweight){.block = b, .data = data, .bytes = bytes, .off = b->used};
        *b->last = w;
        b->last = &w->next;
        b->used += size;
        b->bytes = swn_round_up(b->used, swn_swap_group_step(s));
        b->bytes = b->bytes < b->reserved ? b->bytes : b->reserved;
        b->live++;
        *address = b->at + w->off;
    }
    swn_unlock(&s->lock);
    if (b)
        return w;
    free(w);
    return NULL;
}

void swn_devswap_remove(struct swn_devweight *w)
{
    struct swap_group *b = w->block;
    struct swn_devswap *s = b->swapper;
    swn_lock(&s->lock);
    while (b->reading == w)
        pthread_cond_wait(&s->changed, &s->lock);
    w->gone = 1;
    if (!--b->live) {
        b->dying = 1;
        pthread_cond_broadcast(&s->changed);
    }
    swn_unlock(&s->lock);
}

void *swn_devswap_stays(const struct swn_devweight *w)
{
    struct swap_group *b = w->block;
    swn_lock(&b->swapper->lock);
    while (b->kept && b->state == IN && b->flight > b->swapper->landed)
        pthread_cond_wait(&b->swapper->changed, &b->swapper->lock);
    void *at = b->kept && b->state == IN ? b->buffer.address + w->off : NULL;
    swn_unlock(&b->swapper->lock);
    return at;
}

/* --- operators --- */

/* The cost of the unused blocks among w; *least: in buffers of exactly their sizes. */
static size_t unclaimed(struct swn_devswap *s, struct swn_devweight *const *w, unsigned n, size_t *least)
{
    size_t bytes = *least = 0;
    unsigned mark = ++s->marks;
    for (unsigned i = 0; i < n; i++) {
        struct swap_group *b = w[i]->block;
        if (b->use.mark != mark && !b->users) {
            bytes += swn_swap_group_cost(b);
            *least += b->bytes;
        }
        b->use.mark = mark;
    }
    return bytes;
}

/* Marks the blocks among w that are in larger buffers than they need: once claimed, they move to other buffers. Returns
 * whether there are any. */
static int move_out(struct swn_devweight *const *w, unsigned n)
{
    int any = 0;
    for (unsigned i = 0; i < n; i++) {
        struct swap_group *b = w[i]->block;
        int roomy = !b->users && b->state != OUT && b->buffer.bytes > b->bytes;
        b->moves |= roomy;
        any |= roomy;
    }
    return any;
}

static void release(struct swn_devswap *s, struct swn_devweight *const *w, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (!--w[i]->block->users)
            s->claimed -= swn_swap_group_cost(w[i]->block);
    pthread_cond_broadcast(&s->changed);
}

/* For a graph: PyTorch would have its weights on the device as well, and a copy cannot be made during a capture. */
static void exceed(size_t before, size_t after)
{
    atomic_fetch_add(&excess_bytes, after - before);
    if (!atomic_exchange(&said_excess, 1))
        swn_say(
            "a CUDA graph is captured that uses more weights than there is room for: they stay on the device as long "
            "as they live");
}

/* Claims all of them or none: two operators that wait for each other's blocks would wait for ever. */
static int claim(struct swn_devswap *s, struct swn_devweight *const *w, unsigned n, uint64_t until, int captured)
{
    for (;;) {
        for (unsigned i = 0; i < n; i++)
            w[i]->block->sealed = 1; /* its size counts */
        size_t least, more = unclaimed(s, w, n, &least), wanted = s->claimed + more;
        if (!more || wanted <= s->capacity)
            break;
        if (captured) {
            exceed(s->claimed > s->capacity ? s->claimed : s->capacity, wanted);
            break;
        }
        int moving = s->claimed + least <= s->capacity && move_out(w, n);
        if (moving)
            pthread_cond_broadcast(&s->changed);
        if ((s->claimed <= s->kept && !moving) || s->broken || swn_cond_wait_until(&s->changed, &s->lock, until)) {
            for (unsigned i = 0; i < n; i++)
                w[i]->block->moves = 0;
            return -ENOMEM;
        }
    }
    for (unsigned i = 0; i < n; i++) {
        struct swap_group *b = w[i]->block;
        if (!b->users++) {
            s->claimed += swn_swap_group_cost(b);
            b->use.asked = s->accesses;
        }
        b->failed = b->moves = 0;
    }
    return 0;
}

/* 0, or -EAGAIN: not yet. landed: the blocks must have arrived, as a graph cannot wait for flights. */
static int all_in(const struct swn_devswap *s, struct swn_devweight *const *w, unsigned n, int landed)
{
    int err = 0;
    for (unsigned i = 0; i < n; i++) {
        if (w[i]->block->failed)
            return -EIO;
        if (w[i]->block->state != IN || (landed && w[i]->block->flight > s->landed))
            err = -EAGAIN;
    }
    return err;
}

static int await(struct swn_devswap *s, struct swn_devweight *const *w, unsigned n, uint64_t until, int landed)
{
    int err = all_in(s, w, n, landed);
    if (err != -EAGAIN)
        return err;
    uint64_t begin = swn_now_ns();
    while ((err = all_in(s, w, n, landed)) == -EAGAIN)
        if (s->broken || swn_cond_wait_until(&s->changed, &s->lock, until)) {
            err = -ETIMEDOUT;
            break;
        }
    atomic_fetch_add(&stall_ns, swn_now_ns() - begin);
    return err;
}

int swn_devswap_begin(struct swn_devweight *const *w, unsigned n, void *stream, void **addresses, int *captured)
{
    struct swn_devswap *s = w[0]->block->swapper;
    *captured = swn_cuda_capturing(&s->pool.cuda, stream);
    if (!s->pool.way->fixed && !*captured && swn_threads_many())
        return -EBUSY; /* memory that a graph has stays, so any code may keep its address */
    uint64_t until = swn_now_ns() + (uint64_t)swn_prefetch_wait_ms * 1000000u;
    swn_lock(&s->lock);
    int err = claim(s, w, n, until, *captured);
    if (!err) {
        struct cursor *c = swn_swap_order_cursor(s, stream);
        int moved = 0;
        for (unsigned i = 0; i < n; i++)
            moved |= swn_swap_order_record(s, c, w[i]->block);
        if (moved)
            swn_swap_order_look_ahead(s);
        pthread_cond_broadcast(&s->changed);
        err = await(s, w, n, until, *captured);
        for (unsigned i = 0; i < n && !err; i++) {
            if (!*captured && swn_devflight_follow(s, w[i]->block, stream))
                err = -EIO;
            addresses[i] = w[i]->block->buffer.address + w[i]->off;
            if (*captured)
                swn_swap_group_keep(s, w[i]->block, KEPT_FOR_GRAPHS);
        }
        if (err)
            release(s, w, n);
    }
    swn_unlock(&s->lock);
    return err;
}

/* The block's event on this stream; NULL: none can be made. */
static struct use *use_of(struct swn_devswap *s, struct swap_group *b, void *stream)
{
    struct use *u = b->uses;
    while (u && u->stream != stream)
        u = u->next;
    if (u || !(u = calloc(1, sizeof *u)))
        return u;
    if (s->pool.swap.event_create(&u->event, SWN_CUDA_EVENT_QUIET)) {
        s->pool.cuda.last_error();
        free(u);
        return NULL;
    }
    u->stream = stream;
    u->next = b->uses;
    b->uses = u;
    return u;
}

void swn_devswap_end(struct swn_devweight *const *w, unsigned n, void *stream, int captured)
{
    struct swn_devswap *s = w[0]->block->swapper;
    swn_lock(&s->lock);
    unsigned mark = ++s->marks;
    for (unsigned i = 0; i < n && !captured; i++) {
        struct swap_group *b = w[i]->block;
        if (b->use.mark == mark)
            continue;
        b->use.mark = mark;
        struct use *u = use_of(s, b, stream);
        if (!u || s->pool.swap.event_record(u->event, stream)) {
            s->pool.cuda.last_error();
            swn_swap_group_keep(s, b, KEPT_FOR_GOOD);
        }
    }
    release(s, w, n);
    swn_unlock(&s->lock);
}

/* --- all of it --- */

int swn_devswap_start(struct swn_devswap **out, const struct swn_devpool *pool, size_t capacity_bytes, int counted)
{
    struct swn_devswap *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->pool = *pool;
    if (s->pool.way->fixed)
        s->pool.large = swn_swap_group_chunk(pool->unit, capacity_bytes);
    pool = &s->pool;
    s->capacity = capacity_bytes / pool->unit * pool->unit;
    s->counted = counted;
    pthread_mutex_init(&s->lock, NULL);
    swn_cond_init(&s->changed);
    int err = swn_access_order_create(&s->order);
    if (!err)
        err = swn_thread_start(&s->thread, swn_devswap_work, s);
    if (err) {
        swn_access_order_destroy(s->order);
        free(s);
        return err;
    }
    *out = s;
    return 0;
}

void swn_devswap_resize(struct swn_devswap *s, size_t capacity_bytes, int shrinks)
{
    swn_lock(&s->lock);
    size_t capacity = capacity_bytes / s->pool.unit * s->pool.unit, largest = 0;
    for (size_t i = 0; i < s->count; i++)
        largest = s->blocks[i]->bytes > largest ? s->blocks[i]->bytes : largest;
    if (s->counted && capacity < 2 * largest)
        capacity = 2 * largest;
    if (shrinks || capacity > s->capacity)
        s->capacity = capacity;
    pthread_cond_broadcast(&s->changed);
    swn_unlock(&s->lock);
}

void swn_devswap_wake(struct swn_devswap *s)
{
    pthread_cond_broadcast(&s->changed);
}

size_t swn_devswap_held(struct swn_devswap *s)
{
    swn_lock(&s->lock);
    size_t held = s->held;
    swn_unlock(&s->lock);
    return held;
}

void swn_devswap_fork_child(void)
{
    swn_devpool_fork_child();
    swn_devbuffer_fork_child();
    swn_pinned_cache_fork_child();
}

void swn_devswap_stats(struct swn_stats *out)
{
    swn_devwork_stats(out);
    swn_devbuffer_stats(out);
    swn_pinned_cache_stats(out);
    out->device_stall_ns = atomic_load(&stall_ns);
    out->device_kept_bytes += atomic_load(&excess_bytes);
}
