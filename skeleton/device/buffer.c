/* skeleton/device/buffer.c - the memory of a device's blocks: spare buffers, new ones, and buffers of blocks that give
 * theirs up. */
#define _GNU_SOURCE
#include <errno.h>

#include "skeleton/device/swapper_internal.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/core/eviction.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/engine/section.h"

/* A buffer that is larger than a block by less than this part of the block counts as about as large. */
#define NEAR_PART 4
/* A block among this part of all blocks, in the order in which they are needed last, counts as needed nearly last. With
 * few blocks none does. */
#define LAST_PART 4
#define FEW 4

static _Atomic uint64_t resident_bytes, peak_bytes;

static void note_held(struct swn_devswap *s, size_t bytes, int sign)
{
    s->held = sign > 0 ? s->held + bytes : s->held - bytes;
    if (s->counted) {
        swn_devpool_count(sign * (long long)bytes);
        swn_lock(&swn_engine_one.lock);
        swn_engine_note_peak(&swn_engine_one);
        pthread_cond_broadcast(&swn_engine_one.changed); /* a shrinking budget may wait for it */
        swn_unlock(&swn_engine_one.lock);
    }
    uint64_t now =
        sign > 0 ? atomic_fetch_add(&resident_bytes, bytes) + bytes : atomic_fetch_sub(&resident_bytes, bytes) - bytes;
    if (now > atomic_load(&peak_bytes))
        atomic_store(&peak_bytes, now);
}

int swn_devbuffer_take(struct swn_devswap *s, struct swap_group *b, struct swn_devbuffer *out)
{
    int err;
    swn_swap_group_set(s, b, EVICTING); /* no operator records an event any more */
    err = swn_devflight_land(s, b->flight);
    swn_unlock(&s->lock);
    for (struct use *u = b->uses; u && !err; u = u->next)
        err = s->pool.swap.event_synchronize(u->event);
    if (err)
        s->pool.cuda.last_error();
    if (!err)
        err = s->pool.way->leave(&s->pool, &b->buffer);
    swn_lock(&s->lock);
    *out = b->buffer;
    b->lost |= err == -EFAULT;
    swn_swap_group_set(s, b, err && !b->lost ? IN : OUT);
    if (err && !b->lost)
        swn_swap_group_keep(s, b, KEPT_FOR_GOOD);
    return err;
}

int swn_devbuffer_drop(struct swn_devswap *s, struct swn_devbuffer buffer)
{
    swn_unlock(&s->lock); /* the driver may wait for all work of the device */
    int err = s->pool.way->drop(&s->pool, &buffer);
    swn_lock(&s->lock);
    if (!err) /* otherwise no other block may have it, and it still counts */
        note_held(s, buffer.bytes, -1);
    return err;
}

/* Whether a is needed later than b. */
static int later(const struct swap_group *a, const struct swap_group *b)
{
    return a->use.next_use != b->use.next_use ? a->use.next_use > b->use.next_use : a->last_use < b->last_use;
}

/* The block that is needed last, among unused blocks whose buffers have that many bytes; with `after`, among those that
 * are needed before that one. */
static struct swap_group *last_needed(const struct swn_devswap *s, const struct swap_group *wanted, size_t least,
                                      size_t most, const struct swap_group *after)
{
    struct swap_group *best = NULL;
    for (size_t i = 0; i < s->count; i++) {
        struct swap_group *b = s->blocks[i];
        if (b->state != IN || b->users || b->dying || b->buffer.bytes < least || b->buffer.bytes > most ||
            (wanted && !wanted->users && b->use.next_use <= wanted->use.next_use) || (after && !later(after, b)))
            continue;
        if (!best || later(b, best))
            best = b;
    }
    return best;
}

/* Whether the device has finished all work that was launched with the block. */
static int is_quiet(const struct swn_devswap *s, const struct swap_group *b)
{
    int err = b->flight > s->landed;
    for (const struct use *u = b->uses; u && !err; u = u->next)
        if ((err = s->pool.swap.event_query(u->event)))
            s->pool.cuda.last_error();
    return !err;
}

/* The block that is to leave for `wanted`. For a block that is read ahead, only blocks that are needed later may leave;
 * for one that an operator asked for (or NULL: to leave for good) any may. The best one is the block that is needed
 * last. But if that is also the one that was used last, the device may not have reached it yet, or its bytes may still
 * be in flight. Then one of the blocks that are needed shortly before it leaves, without a wait. */
static struct swap_group *victim(const struct swn_devswap *s, const struct swap_group *wanted, size_t least,
                                 size_t most)
{
    struct swap_group *best = last_needed(s, wanted, least, most, NULL), *b = best;
    size_t in = 0;
    for (size_t i = 0; best && i < s->count; i++)
        in += s->blocks[i]->state == IN;
    for (size_t skips = in > FEW ? (in - FEW) / LAST_PART : 0; b && !is_quiet(s, b); skips--)
        b = skips ? last_needed(s, wanted, least, most, b) : NULL;
    return b ? b : best;
}

static int make(struct swn_devswap *s, struct swn_devbuffer *out)
{
    struct swn_engine *e = &swn_engine_one;
    swn_unlock(&s->lock);
    if (s->counted) {
        swn_lock(&e->lock);
        swn_reclaim_must(e, out->bytes, NULL);
        swn_unlock(&e->lock);
    }
    int err = s->pool.way->make(&s->pool, out);
    swn_lock(&s->lock);
    if (!err)
        note_held(s, out->bytes, 1);
    return err;
}

/* Makes PyTorch give its unused memory back to the card. Returns whether it was asked to. */
static int trim(struct swn_devswap *s)
{
    const struct swn_torch_backend *backend = swn_engine_one.torch;
    if (!backend || !s->pool.way->fixed || swn_cuda_capture_under_way(&s->pool.cuda))
        return 0;
    swn_unlock(&s->lock);
    backend->device_trim(s->pool.device);
    swn_lock(&s->lock);
    return 1;
}

/* The most bytes of all buffers: graphs may have more than the room. */
static size_t most(const struct swn_devswap *s)
{
    return s->claimed > s->capacity ? s->claimed : s->capacity;
}

/* Whether any block's buffer is large enough for b. */
static int any_would_do(const struct swn_devswap *s, const struct swap_group *b)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->blocks[i]->state != OUT && s->blocks[i]->buffer.bytes >= b->bytes)
            return 1;
    return 0;
}

/* The block that is to give its buffer to b: one of about b's size, or a larger one. */
static struct swap_group *giver(const struct swn_devswap *s, const struct swap_group *b, size_t largest)
{
    size_t about = b->bytes + b->bytes / NEAR_PART;
    if (s->pool.way->fixed)
        return victim(s, b, 0, SIZE_MAX);
    struct swap_group *v = victim(s, b, b->bytes, about < largest ? about : largest);
    return v ? v : victim(s, b, b->bytes, largest);
}

void swn_devbuffer_spare(struct swn_devswap *s, struct swn_devbuffer buffer)
{
    if (swn_devspares_put(&s->spare, &s->pool, &buffer))
        swn_devbuffer_drop(s, buffer);
}

/* Takes a spare buffer. 0; -EAGAIN: some of the memory has been lost; -ENOENT: there is none. */
static int take_spare(struct swn_devswap *s, size_t bytes, size_t largest, struct swn_devbuffer *out)
{
    size_t before = swn_devspares_bytes(&s->spare);
    int err = swn_devspares_take(&s->spare, &s->pool, bytes, largest, out);
    size_t lost = err ? before - swn_devspares_bytes(&s->spare) : 0;
    if (lost)
        note_held(s, lost, -1);
    return lost ? -EAGAIN : err ? -ENOENT : 0;
}

/* Joins the memory that was made for b with the spare memory. */
static int made(struct swn_devswap *s, const struct swap_group *b, struct swn_devbuffer *out)
{
    if (out->bytes == b->bytes)
        return 0;
    swn_devbuffer_spare(s, *out);
    return take_spare(s, b->bytes, b->bytes, out) ? -EAGAIN : 0;
}

/* Making a buffer, or giving one back, may stop the device, so it must come to an end. It does: where no buffer is
 * large enough for b, smaller ones are given back for one that is, and that one serves smaller blocks as well; it is
 * given back only where operators have claimed all of the room. A block that is only read ahead waits, and gets no
 * second buffer made. */
int swn_devbuffer_find(struct swn_devswap *s, const struct swap_group *b, struct swn_devbuffer *out)
{
    /* Operators that have claimed room must find it, whatever other blocks have. */
    size_t more = most(s) > s->claimed ? most(s) - s->claimed : 0, largest = b->users ? b->bytes + more : SIZE_MAX;
    int err = take_spare(s, b->bytes, largest, out);
    if (err != -ENOENT)
        return err;
    struct swn_devbuffer taken;
    size_t spare = s->pool.way->fixed ? swn_devspares_bytes(&s->spare) : 0, lacks = b->bytes;
    lacks -= spare < b->bytes ? spare : 0; /* otherwise spare memory cannot be divided */
    *out = (struct swn_devbuffer){.bytes = lacks};
    int room = s->held + lacks <= most(s);
    if (room && !make(s, out))
        return made(s, b, out);
    struct swap_group *v = giver(s, b, largest);
    int unfit = !v && !s->pool.way->fixed && (b->users || !any_would_do(s, b));
    if (unfit && !swn_devspares_any(&s->spare, &taken)) {
        swn_devbuffer_drop(s, taken);
        return -EAGAIN;
    }
    if (unfit)
        v = victim(s, b, 0, SIZE_MAX);
    if (!v && room && trim(s) && !make(s, out))
        return made(s, b, out);
    if (!v)
        return room ? -ENOMEM : -EBUSY;
    if (!swn_devbuffer_take(s, v, &taken)) {
        if (unfit)
            swn_devbuffer_drop(s, taken);
        else
            swn_devbuffer_spare(s, taken);
    }
    return -EAGAIN;
}

int swn_devbuffer_shrink(struct swn_devswap *s)
{
    struct swn_devbuffer buffer;
    if (s->held <= most(s))
        return 0;
    if (!swn_devspares_any(&s->spare, &buffer))
        return !swn_devbuffer_drop(s, buffer);
    struct swap_group *v = victim(s, NULL, 0, SIZE_MAX);
    return v && !swn_devbuffer_take(s, v, &buffer) && !swn_devbuffer_drop(s, buffer);
}

void swn_devbuffer_stats(struct swn_stats *out)
{
    out->device_resident_bytes = atomic_load(&resident_bytes);
    out->device_peak_bytes = atomic_load(&peak_bytes);
}

void swn_devbuffer_fork_child(void)
{
    atomic_store(&resident_bytes, 0);
}
