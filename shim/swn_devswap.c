#define _GNU_SOURCE
#include "swn_devswap.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "swn_arena.h"
#include "swn_devread.h"
#include "swn_devspares.h"
#include "swn_engine_priv.h"
#include "swn_order.h"
#include "swn_thread.h"

/* Blocks are this part of the room for them, so that several can be on their way and the last ones in use. */
#define BLOCK_PART 16
#define BLOCK_MOST ((size_t)32 << 20)
#define SIZES 8
/* A buffer that is larger than a block by less than this part of it is about as large. */
#define NEAR_PART 4
/* Reading further ahead than this part of the room would throw out what is used again sooner. */
#define AHEAD_PART 2
#define CURSORS 16
/* A stream that has not been seen for so many visits has no claim. */
#define IDLE_VISITS 4096
/* Nobody says when a capture ends. */
#define RETRY_NS 20000000u
#define NEVER UINT64_MAX

enum state { OUT, FILLING, IN, LEAVING };

/* A graph that was captured has its address, until its weights go; or nobody knows when the device is done with it. */
enum keeping { NOT_KEPT, KEPT_FOR_GRAPHS, KEPT_FOR_GOOD };

struct use {
    void *stream, *event;
    struct use *next;
};

struct swn_devweight {
    struct block *block;
    uintptr_t data;
    size_t bytes, off;
    int gone;
    struct swn_devweight *next; /* of the block */
};

struct block {
    struct swn_devswap *swapper;
    uint32_t id; /* never reused: a node of the order */
    char *at;
    size_t reserved, bytes; /* of addresses, and of memory once it is sealed */
    struct swn_devweight *weights, **last;
    size_t used;
    unsigned live;
    int sealed; /* takes no more weights */
    enum state state;
    int users;         /* operators that have it, or wait for it */
    enum keeping kept; /* which makes it a user more */
    int failed;        /* it could not be brought */
    int lost;          /* the driver does not take back what is at its address, which nobody else may have then */
    int dying;         /* all its weights are gone */
    int moves;         /* its buffer is larger than it, and an operator needs that room: it goes, to come back */
    const struct swn_devweight *reading; /* the one that is being read */
    struct swn_devbuffer buffer;         /* no smaller than it; unless it is OUT */
    struct use *uses;
    uint64_t asked;    /* when the first of its users came, in visits */
    uint64_t next_use; /* in visits from now, NEVER: not foreseen */
    uint64_t last_use;
    int ahead; /* is to be brought before it is asked for */
    unsigned mark, tried;
};

struct cursor {
    void *stream;
    struct swn_cursor at;
    uint64_t last_visit; /* 0: free */
};

struct swn_devswap {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct swn_devpool pool;
    struct swn_order *order;
    size_t capacity;
    size_t held;    /* by all buffers */
    size_t claimed; /* by blocks that have users: what they have, or will have, of those */
    size_t kept;    /* by those that are kept */
    int counted;
    struct block **blocks; /* by id */
    size_t count, room;
    uint32_t last_id;
    struct swn_devspares spare; /* buffers without a block */
    struct cursor cursors[CURSORS];
    uint64_t visits;
    unsigned marks, tries;
    pthread_t thread;
    int broken; /* its thread could not begin */
    int retry;  /* it has something to do that a capture holds up */
};

static _Atomic uint64_t swap_ins, swapped_bytes, stall_ns, resident_bytes, peak_bytes;
static _Atomic uint64_t excess_bytes; /* of graphs */
static _Atomic int said_bounce, said_excess;

/* --- blocks --- */

/* The index of the first block that was made no earlier. */
static size_t from_id(const struct swn_devswap *s, uint32_t id)
{
    size_t lo = 0, hi = s->count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (s->blocks[mid]->id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static size_t block_size(const struct swn_devswap *s, size_t least)
{
    size_t size = s->capacity / BLOCK_PART;
    size = size < BLOCK_MOST ? size : BLOCK_MOST;
    return swn_round_up(size > least ? size : least, s->pool.unit);
}

/* Sizes are few, so that buffers go from one block to another. */
static size_t size_step(const struct swn_devswap *s)
{
    return swn_round_up(block_size(s, 0) / SIZES, s->pool.unit);
}

static struct block *block_new(struct swn_devswap *s, size_t bytes)
{
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        struct block **all = realloc(s->blocks, room * sizeof *all);
        if (!all)
            return NULL;
        s->blocks = all;
        s->room = room;
    }
    struct block *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->swapper = s;
    b->last = &b->weights;
    b->reserved = block_size(s, bytes);
    b->at = swn_devpool_reserve(&s->pool, b->reserved);
    if (!b->at) {
        free(b);
        return NULL;
    }
    b->id = ++s->last_id;
    s->blocks[s->count++] = b;
    return b;
}

static void block_free(struct swn_devswap *s, struct block *b)
{
    size_t i = from_id(s, b->id);
    memmove(&s->blocks[i], &s->blocks[i + 1], (--s->count - i) * sizeof *s->blocks);
    swn_order_forget(s->order, b->id);
    for (struct use *u = b->uses, *next; u; u = next) {
        next = u->next;
        s->pool.swap.event_destroy(u->event);
        free(u);
    }
    for (struct swn_devweight *w = b->weights, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    if (!b->lost)
        swn_devpool_unreserve(&s->pool, b->at, b->reserved);
    free(b);
}

struct swn_devweight *swn_devswap_add(struct swn_devswap *s, uintptr_t data, size_t bytes, void **address)
{
    size_t size = swn_round_up(bytes, SWN_PAGE);
    struct swn_devweight *w = calloc(1, sizeof *w);
    pthread_mutex_lock(&s->lock);
    struct block *b = s->count ? s->blocks[s->count - 1] : NULL;
    if (!b || b->sealed || b->dying || b->used + size > b->reserved)
        b = w && !s->broken && swn_round_up(size, s->pool.unit) <= s->capacity ? block_new(s, size) : NULL;
    if (b && w) {
        *w = (struct swn_devweight){.block = b, .data = data, .bytes = bytes, .off = b->used};
        *b->last = w;
        b->last = &w->next;
        b->used += size;
        b->bytes = swn_round_up(b->used, size_step(s));
        b->bytes = b->bytes < b->reserved ? b->bytes : b->reserved;
        b->live++;
        *address = b->at + w->off;
    }
    pthread_mutex_unlock(&s->lock);
    if (b)
        return w;
    free(w);
    return NULL;
}

void swn_devswap_remove(struct swn_devweight *w)
{
    struct block *b = w->block;
    struct swn_devswap *s = b->swapper;
    pthread_mutex_lock(&s->lock);
    while (b->reading == w)
        pthread_cond_wait(&s->changed, &s->lock);
    w->gone = 1;
    if (!--b->live) {
        b->dying = 1;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
}

void *swn_devswap_stays(const struct swn_devweight *w)
{
    struct block *b = w->block;
    pthread_mutex_lock(&b->swapper->lock);
    void *at = b->kept && b->state == IN ? b->buffer.address + w->off : NULL;
    pthread_mutex_unlock(&b->swapper->lock);
    return at;
}

/* --- what comes next --- */

static struct cursor *cursor_of(struct swn_devswap *s, void *stream)
{
    struct cursor *oldest = &s->cursors[0];
    for (struct cursor *c = s->cursors; c < s->cursors + CURSORS; c++) {
        if (c->last_visit && c->stream == stream)
            return c;
        if (c->last_visit < oldest->last_visit)
            oldest = c;
    }
    *oldest = (struct cursor){.stream = stream};
    return oldest;
}

/* In a first pass: the one that was made next. */
static struct block *predicted(const struct swn_devswap *s, uint32_t before, uint32_t at)
{
    uint32_t next = swn_order_next(s->order, before, at);
    size_t i = from_id(s, next ? next : at + 1);
    return i < s->count && (!next || s->blocks[i]->id == next) ? s->blocks[i] : NULL;
}

/* When each block will be used again, as far as that can be foreseen, and which are to be brought by then. */
static void look_ahead(struct swn_devswap *s)
{
    for (size_t i = 0; i < s->count; i++) {
        s->blocks[i]->next_use = NEVER;
        s->blocks[i]->ahead = 0;
    }
    for (struct cursor *c = s->cursors; c < s->cursors + CURSORS; c++) {
        if (!c->last_visit || s->visits - c->last_visit > IDLE_VISITS || !c->at.at)
            continue;
        uint32_t before = c->at.before, at = c->at.at;
        size_t bytes = 0, most = s->capacity / AHEAD_PART, here = from_id(s, at);
        struct block *b;
        if (here < s->count && s->blocks[here]->id == at && s->visits - c->last_visit <= s->count)
            s->blocks[here]->next_use = 0; /* it has other weights, which may come next */
        for (uint64_t step = 1; step <= s->count + 2 && (b = predicted(s, before, at)); step++) {
            if (step < b->next_use)
                b->next_use = step;
            bytes += b->bytes;
            b->ahead |= step == 1 || bytes <= most;
            before = at;
            at = b->id;
        }
    }
}

/* Whether that is another block than the one before. */
static int visit(struct swn_devswap *s, struct cursor *c, struct block *b)
{
    b->last_use = c->last_visit = ++s->visits;
    if (c->at.at == b->id)
        return 0;
    swn_order_visit(s->order, &c->at, b->id);
    return 1;
}

/* --- operators --- */

/* Of the room. */
static size_t cost(const struct block *b)
{
    return b->state == OUT ? b->bytes : b->buffer.bytes;
}

static void set_state(struct swn_devswap *s, struct block *b, enum state state)
{
    s->claimed -= b->users ? cost(b) : 0;
    b->state = state;
    s->claimed += b->users ? cost(b) : 0;
}

/* What the blocks among w cost that nobody uses yet; *least: in buffers of their own sizes. */
static size_t unclaimed(struct swn_devswap *s, struct swn_devweight *const *w, unsigned n, size_t *least)
{
    size_t bytes = *least = 0;
    unsigned mark = ++s->marks;
    for (unsigned i = 0; i < n; i++) {
        struct block *b = w[i]->block;
        if (b->mark != mark && !b->users) {
            bytes += cost(b);
            *least += b->bytes;
        }
        b->mark = mark;
    }
    return bytes;
}

/* Those of them that are in larger buffers than they need are to get others, when they have been claimed. Whether there
 * are any. */
static int move_out(struct swn_devweight *const *w, unsigned n)
{
    int any = 0;
    for (unsigned i = 0; i < n; i++) {
        struct block *b = w[i]->block;
        int roomy = !b->users && b->state != OUT && b->buffer.bytes > b->bytes;
        b->moves |= roomy;
        any |= roomy;
    }
    return any;
}

static void let_go(struct swn_devswap *s, struct swn_devweight *const *w, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (!--w[i]->block->users)
            s->claimed -= cost(w[i]->block);
    pthread_cond_broadcast(&s->changed);
}

/* It stays where it is. */
static void keep(struct swn_devswap *s, struct block *b, enum keeping why)
{
    if (!b->kept) {
        s->kept += cost(b);
        if (!b->users++)
            s->claimed += cost(b);
    }
    b->kept = why > b->kept ? why : b->kept;
}

static void keep_no_more(struct swn_devswap *s, struct block *b)
{
    b->kept = NOT_KEPT;
    s->kept -= cost(b);
    if (!--b->users)
        s->claimed -= cost(b);
}

/* For a graph: PyTorch would have its weights on the device as well, and a copy cannot be made while it is captured. */
static void exceed(size_t before, size_t after)
{
    atomic_fetch_add(&excess_bytes, after - before);
    if (!atomic_exchange(&said_excess, 1))
        swn_say(
            "a CUDA graph is captured that uses more weights than there is room for: they stay on the device as long "
            "as they live");
}

/* All of them or none: two operators that wait for each other's blocks would wait for ever. */
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
        struct block *b = w[i]->block;
        if (!b->users++) {
            s->claimed += cost(b);
            b->asked = s->visits;
        }
        b->failed = b->moves = 0;
    }
    return 0;
}

/* 0, or -EAGAIN: not yet. */
static int all_in(struct swn_devweight *const *w, unsigned n)
{
    int err = 0;
    for (unsigned i = 0; i < n; i++) {
        if (w[i]->block->failed)
            return -EIO;
        if (w[i]->block->state != IN)
            err = -EAGAIN;
    }
    return err;
}

static int await(struct swn_devswap *s, struct swn_devweight *const *w, unsigned n, uint64_t until)
{
    int err = all_in(w, n);
    if (err != -EAGAIN)
        return err;
    uint64_t begin = swn_now_ns();
    while ((err = all_in(w, n)) == -EAGAIN)
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
        return -EBUSY; /* what a graph has stays, so that anybody may keep its address */
    uint64_t until = swn_now_ns() + (uint64_t)swn_swapin_wait_ms * 1000000u;
    pthread_mutex_lock(&s->lock);
    int err = claim(s, w, n, until, *captured);
    if (!err) {
        struct cursor *c = cursor_of(s, stream);
        int moved = 0;
        for (unsigned i = 0; i < n; i++)
            moved |= visit(s, c, w[i]->block);
        if (moved)
            look_ahead(s);
        pthread_cond_broadcast(&s->changed);
        err = await(s, w, n, until);
        for (unsigned i = 0; i < n && !err; i++) {
            addresses[i] = w[i]->block->buffer.address + w[i]->off;
            if (*captured)
                keep(s, w[i]->block, KEPT_FOR_GRAPHS);
        }
        if (err)
            let_go(s, w, n);
    }
    pthread_mutex_unlock(&s->lock);
    return err;
}

/* The block's event on this stream; NULL: there is none to be had. */
static struct use *use_of(struct swn_devswap *s, struct block *b, void *stream)
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
    pthread_mutex_lock(&s->lock);
    unsigned mark = ++s->marks;
    for (unsigned i = 0; i < n && !captured; i++) {
        struct block *b = w[i]->block;
        if (b->mark == mark)
            continue;
        b->mark = mark;
        struct use *u = use_of(s, b, stream);
        if (!u || s->pool.swap.event_record(u->event, stream)) {
            s->pool.cuda.last_error();
            keep(s, b, KEPT_FOR_GOOD);
        }
    }
    let_go(s, w, n);
    pthread_mutex_unlock(&s->lock);
}

/* --- the thread that brings blocks and lets them go --- */

static void note_held(struct swn_devswap *s, size_t bytes, int sign)
{
    s->held = sign > 0 ? s->held + bytes : s->held - bytes;
    if (s->counted) {
        swn_devpool_count(sign * (long long)bytes);
        pthread_mutex_lock(&swn_engine_one.lock);
        swn_engine_note_peak(&swn_engine_one);
        pthread_cond_broadcast(&swn_engine_one.changed); /* a budget that shrinks may wait for it */
        pthread_mutex_unlock(&swn_engine_one.lock);
    }
    uint64_t now =
        sign > 0 ? atomic_fetch_add(&resident_bytes, bytes) + bytes : atomic_fetch_sub(&resident_bytes, bytes) - bytes;
    if (now > atomic_load(&peak_bytes))
        atomic_store(&peak_bytes, now);
}

/* Waits until what was launched does not use b any more, and takes its buffer. 0, or an error: it stays for good. */
static int take_buffer(struct swn_devswap *s, struct block *b, struct swn_devbuffer *out)
{
    int err = 0;
    set_state(s, b, LEAVING); /* nobody records an event any more */
    pthread_mutex_unlock(&s->lock);
    for (struct use *u = b->uses; u && !err; u = u->next)
        err = s->pool.swap.event_synchronize(u->event);
    if (err)
        s->pool.cuda.last_error();
    if (!err)
        err = s->pool.way->leave(&s->pool, &b->buffer);
    pthread_mutex_lock(&s->lock);
    *out = b->buffer;
    b->lost |= err == -EFAULT;
    set_state(s, b, err && !b->lost ? IN : OUT);
    if (err && !b->lost)
        keep(s, b, KEPT_FOR_GOOD);
    return err;
}

static int drop(struct swn_devswap *s, struct swn_devbuffer buffer)
{
    pthread_mutex_unlock(&s->lock); /* the driver may wait for all that the device has been given */
    int err = s->pool.way->drop(&s->pool, &buffer);
    pthread_mutex_lock(&s->lock);
    if (!err) /* else nobody else may have it, and it still counts */
        note_held(s, buffer.bytes, -1);
    return err;
}

/* The block that is needed last of those that nobody uses, and whose buffers have so many bytes. For one that was asked
 * for (or none: for good) any will do; for one that is read ahead, only what is needed later. */
static struct block *victim(const struct swn_devswap *s, const struct block *wanted, size_t least, size_t most)
{
    struct block *best = NULL;
    for (size_t i = 0; i < s->count; i++) {
        struct block *b = s->blocks[i];
        if (b->state != IN || b->users || b->dying || b->buffer.bytes < least || b->buffer.bytes > most ||
            (wanted && !wanted->users && b->next_use <= wanted->next_use))
            continue;
        if (!best || b->next_use > best->next_use || (b->next_use == best->next_use && b->last_use < best->last_use))
            best = b;
    }
    return best;
}

static int make(struct swn_devswap *s, struct swn_devbuffer *out)
{
    struct swn_engine *e = &swn_engine_one;
    pthread_mutex_unlock(&s->lock);
    if (s->counted) {
        pthread_mutex_lock(&e->lock);
        swn_policy_make_room(e, out->bytes, NULL);
        pthread_mutex_unlock(&e->lock);
    }
    int err = s->pool.way->make(&s->pool, out);
    pthread_mutex_lock(&s->lock);
    if (!err)
        note_held(s, out->bytes, 1);
    return err;
}

/* PyTorch gives the card what it keeps there unused. Whether it has been asked to. */
static int trim(struct swn_devswap *s)
{
    const struct swn_half *half = swn_engine_one.half;
    if (!half || !s->pool.way->fixed || swn_cuda_capture_under_way(&s->pool.cuda))
        return 0;
    pthread_mutex_unlock(&s->lock);
    half->device_trim(s->pool.device);
    pthread_mutex_lock(&s->lock);
    return 1;
}

/* What all buffers may take: graphs may have more than the room. */
static size_t most(const struct swn_devswap *s)
{
    return s->claimed > s->capacity ? s->claimed : s->capacity;
}

/* Whether there is any buffer, of whichever block, that is large enough for b. */
static int any_would_do(const struct swn_devswap *s, const struct block *b)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->blocks[i]->state != OUT && s->blocks[i]->buffer.bytes >= b->bytes)
            return 1;
    return 0;
}

/* The block that is to give its buffer to b: one of about b's size, or a larger one. */
static struct block *giver(const struct swn_devswap *s, const struct block *b, size_t largest)
{
    size_t about = b->bytes + b->bytes / NEAR_PART;
    if (s->pool.way->fixed)
        return victim(s, b, 0, SIZE_MAX);
    struct block *v = victim(s, b, b->bytes, about < largest ? about : largest);
    return v ? v : victim(s, b, b->bytes, largest);
}

static void keep_spare(struct swn_devswap *s, struct swn_devbuffer buffer)
{
    if (swn_devspares_put(&s->spare, &s->pool, &buffer))
        drop(s, buffer);
}

/* What was made for b, beside what was there. */
static int made(struct swn_devswap *s, const struct block *b, struct swn_devbuffer *out)
{
    if (out->bytes == b->bytes)
        return 0;
    keep_spare(s, *out);
    return swn_devspares_take(&s->spare, &s->pool, b->bytes, b->bytes, out) ? -EAGAIN : 0;
}

/* A buffer for b: 0; -EAGAIN: something has changed, look again; -EBUSY: not before operators end; -ENOMEM: there is no
 * memory for it.
 *
 * To make one, or to give one up, may stop the device, so that has to come to an end. It does: where no buffer does for
 * b, smaller ones are given up for one that does, and that one does for smaller blocks as well; they give it up only
 * where operators have claimed all of the room. What is merely read ahead waits rather than have a second one made. */
static int find_buffer(struct swn_devswap *s, const struct block *b, struct swn_devbuffer *out)
{
    /* Those who have claimed room find it, whatever the others have got. */
    size_t more = most(s) > s->claimed ? most(s) - s->claimed : 0, largest = b->users ? b->bytes + more : SIZE_MAX;
    if (!swn_devspares_take(&s->spare, &s->pool, b->bytes, largest, out))
        return 0;
    struct swn_devbuffer taken;
    size_t lacks = b->bytes - (s->pool.way->fixed ? swn_devspares_bytes(&s->spare) : 0);
    *out = (struct swn_devbuffer){.bytes = lacks};
    int room = s->held + lacks <= most(s);
    if (room && !make(s, out))
        return made(s, b, out);
    struct block *v = giver(s, b, largest);
    int unfit = !v && !s->pool.way->fixed && (b->users || !any_would_do(s, b));
    if (unfit && !swn_devspares_any(&s->spare, &taken)) {
        drop(s, taken);
        return -EAGAIN;
    }
    if (unfit)
        v = victim(s, b, 0, SIZE_MAX);
    if (!v && room && trim(s) && !make(s, out))
        return made(s, b, out);
    if (!v)
        return room ? -ENOMEM : -EBUSY;
    if (!take_buffer(s, v, &taken)) {
        if (unfit)
            drop(s, taken);
        else
            keep_spare(s, taken);
    }
    return -EAGAIN;
}

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

static int fill(struct swn_devswap *s, struct block *b)
{
    struct swn_devread count = {0};
    int err = 0;
    pthread_mutex_lock(&s->lock);
    for (struct swn_devweight *w = b->weights; w && !err; w = w->next) {
        if (w->gone)
            continue;
        b->reading = w;
        pthread_mutex_unlock(&s->lock);
        if (b->buffer.host)
            swn_devread(&swn_engine_one, w->data, 0, w->bytes, b->buffer.host + w->off, &count);
        else
            err = send_staged(s, w, b->buffer.address + w->off, &count);
        pthread_mutex_lock(&s->lock);
        b->reading = NULL;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    if (!b->buffer.host && swn_devpool_sent(&s->pool))
        err = -EIO;
    if (!err)
        err = s->pool.way->hand_over(&s->pool, &b->buffer);
    atomic_fetch_add(&swapped_bytes, count.disk_bytes);
    if (count.bounced && !atomic_exchange(&said_bounce, 1))
        swn_say(
            "the kernel does not read from the disk straight into memory of the device: weights go through the page "
            "cache");
    return err;
}

/* Brings b. 1: something has happened. */
static int bring(struct swn_devswap *s, struct block *b)
{
    struct swn_devbuffer buffer;
    b->sealed = 1; /* its size counts from here on */
    int err = find_buffer(s, b, &buffer);
    if (err) {
        b->failed = err == -ENOMEM;
        return err != -EBUSY;
    }
    s->claimed += b->users ? buffer.bytes - b->bytes : 0;
    b->state = FILLING;
    b->buffer = buffer;
    pthread_mutex_unlock(&s->lock);
    err = s->pool.way->enter(&s->pool, &b->buffer, b->at);
    int left = err == -EFAULT;
    if (!err && (err = fill(s, b)))
        left = s->pool.way->leave(&s->pool, &b->buffer) != 0;
    pthread_mutex_lock(&s->lock);
    set_state(s, b, err ? OUT : IN);
    b->failed = err != 0;
    b->lost |= left;
    if (!err)
        atomic_fetch_add(&swap_ins, 1);
    else if (!left)
        keep_spare(s, b->buffer);
    return 1;
}

/* There are no events of what a graph launches: waits for all of the device, once its last weight is gone. */
static int wait_for_graphs(struct swn_devswap *s, struct block *b)
{
    pthread_mutex_unlock(&s->lock);
    int err = swn_cuda_capture_under_way(&s->pool.cuda) ? -EAGAIN : s->pool.cuda.device_synchronize();
    if (err > 0)
        s->pool.cuda.last_error();
    if (err > 0 && swn_cuda_refused_by_capture(err))
        err = -EAGAIN;
    pthread_mutex_lock(&s->lock);
    if (!err)
        keep_no_more(s, b);
    else if (err == -EAGAIN)
        s->retry = 1;
    else
        keep(s, b, KEPT_FOR_GOOD);
    return err;
}

/* Ends a block whose weights are gone. 1: it is. */
static int bury(struct swn_devswap *s, struct block *b)
{
    struct swn_devbuffer buffer;
    if (b->kept && wait_for_graphs(s, b))
        return 0;
    if (b->state == IN) {
        if (take_buffer(s, b, &buffer))
            return 0;
        drop(s, buffer);
    }
    block_free(s, b);
    while (!s->count && !swn_devspares_any(&s->spare, &buffer)) /* nobody is left who could want them */
        drop(s, buffer);
    return 1;
}

/* Whether a is to be brought before b: what operators wait for, first come first served, then what they will. */
static int before(const struct block *a, const struct block *b)
{
    if (!a->users != !b->users)
        return a->users != 0;
    return a->users ? a->asked < b->asked : a->next_use < b->next_use;
}

static struct block *next_job(const struct swn_devswap *s)
{
    struct block *best = NULL;
    for (size_t i = 0; i < s->count; i++) {
        struct block *b = s->blocks[i];
        if (b->state == OUT && !b->dying && !b->failed && b->tried != s->tries &&
            (b->users || (b->ahead && !b->moves)) && (!best || before(b, best)))
            best = b;
    }
    return best;
}

static struct block *next_dead(const struct swn_devswap *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->blocks[i]->dying && s->blocks[i]->users == (s->blocks[i]->kept == KEPT_FOR_GRAPHS && !s->retry))
            return s->blocks[i];
    return NULL;
}

/* One that is to get another buffer, before anybody uses it. */
static struct block *next_mover(const struct swn_devswap *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->blocks[i]->moves && s->blocks[i]->state == IN && !s->blocks[i]->users)
            return s->blocks[i];
    return NULL;
}

/* There is less room than there was. 1: something has gone. */
static int shrink(struct swn_devswap *s)
{
    struct swn_devbuffer buffer;
    if (s->held <= most(s))
        return 0;
    if (!swn_devspares_any(&s->spare, &buffer))
        return !drop(s, buffer);
    struct block *v = victim(s, NULL, 0, SIZE_MAX);
    return v && !take_buffer(s, v, &buffer) && !drop(s, buffer);
}

static int step(struct swn_devswap *s)
{
    struct block *dead;
    while ((dead = next_dead(s)))
        if (bury(s, dead))
            return 1;
    if (shrink(s))
        return 1;
    struct block *b = next_mover(s);
    struct swn_devbuffer buffer;
    if (b) {
        if (!take_buffer(s, b, &buffer))
            keep_spare(s, buffer);
        return 1;
    }
    s->tries++;
    while ((b = next_job(s))) {
        b->tried = s->tries; /* what has to wait holds up nobody */
        if (bring(s, b))
            return 1;
    }
    return 0;
}

static void *work(void *swapper)
{
    struct swn_devswap *s = swapper;
    sigset_t faults;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    sigaddset(&faults, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &faults, NULL); /* a tensor's own address may need them */
    int err = swn_devpool_begin(&s->pool);
    pthread_mutex_lock(&s->lock);
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

/* --- all of it --- */

/* Mapping takes a while for each chunk, so they are not of the least size there is; they divide the largest block. */
static size_t chunk_bytes(size_t unit, size_t capacity)
{
    size_t block = capacity / BLOCK_PART < BLOCK_MOST ? capacity / BLOCK_PART : BLOCK_MOST;
    return swn_round_up(block / SIZES > unit ? block / SIZES : unit, unit);
}

int swn_devswap_start(struct swn_devswap **out, const struct swn_devpool *pool, size_t capacity_bytes, int counted)
{
    struct swn_devswap *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->pool = *pool;
    if (s->pool.way->fixed)
        s->pool.unit = chunk_bytes(pool->unit, capacity_bytes);
    pool = &s->pool;
    s->capacity = capacity_bytes / pool->unit * pool->unit;
    s->counted = counted;
    pthread_mutex_init(&s->lock, NULL);
    swn_cond_init(&s->changed);
    int err = swn_order_create(&s->order);
    if (!err)
        err = swn_thread_start(&s->thread, work, s);
    if (err) {
        swn_order_destroy(s->order);
        free(s);
        return err;
    }
    *out = s;
    return 0;
}

void swn_devswap_resize(struct swn_devswap *s, size_t capacity_bytes, int shrinks)
{
    pthread_mutex_lock(&s->lock);
    size_t capacity = capacity_bytes / s->pool.unit * s->pool.unit, largest = 0;
    for (size_t i = 0; i < s->count; i++)
        largest = s->blocks[i]->bytes > largest ? s->blocks[i]->bytes : largest;
    if (s->counted && capacity < 2 * largest)
        capacity = 2 * largest;
    if (shrinks || capacity > s->capacity)
        s->capacity = capacity;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

size_t swn_devswap_held(struct swn_devswap *s)
{
    pthread_mutex_lock(&s->lock);
    size_t held = s->held;
    pthread_mutex_unlock(&s->lock);
    return held;
}

void swn_devswap_fork_child(void)
{
    swn_devpool_fork_child();
    atomic_store(&resident_bytes, 0);
}

void swn_devswap_stats(struct swn_stats *out)
{
    out->device_swap_ins = atomic_load(&swap_ins);
    out->device_swapped_bytes = atomic_load(&swapped_bytes);
    out->device_stall_ns = atomic_load(&stall_ns);
    out->device_resident_bytes = atomic_load(&resident_bytes);
    out->device_peak_bytes = atomic_load(&peak_bytes);
    out->device_kept_bytes += atomic_load(&excess_bytes);
}
