/* scheduler/serve/slots.c - first fit, by address: see slots.h.
 *
 * The spans, taken and free, cover the buffer without gaps, and no two free ones are neighbours. Their list is for
 * joining neighbours; the free ones are in a tree besides, as each connection may have spans, and a walk along all of
 * them under the lock would hold up the other threads. No bytes are copied under the lock either.
 */
#define _GNU_SOURCE
#include "scheduler/serve/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "scheduler/serve/span_tree.h"

struct swn_slot_span {
    struct swn_span_node node; /* first: a node is its span */
    struct swn_slot_span *prev, *next;
    uint8_t is_taken, is_requests;
};

struct swn_buffer {
    pthread_mutex_t lock;
    int fd;
    char *at;
    struct swn_slot_span *first;
    struct swn_span_tree free;
    struct swn_buffer_use use;
    uint64_t kept, of_requests; /* for answers; and what requests have */
};

static uint64_t aligned(uint64_t bytes)
{
    return bytes ? (bytes + SWN_SLOT_ALIGN - 1) & ~(SWN_SLOT_ALIGN - 1) : SWN_SLOT_ALIGN;
}

static int map(struct swn_buffer *b)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    void *at;

    b->fd = memfd_create("swapnet-serve", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (b->fd < 0 || ftruncate(b->fd, (off_t)b->use.bytes) || fcntl(b->fd, F_ADD_SEALS, seals))
        return -errno;
    at = mmap(NULL, b->use.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    b->at = at;
    madvise(at, b->use.bytes, MADV_DONTDUMP); /* clients' data is nobody's business */
    return 0;
}

int swn_buffer_open(struct swn_buffer **out, uint64_t bytes)
{
    struct swn_buffer *b;
    int rc;

    if (bytes == 0 || bytes > INT64_MAX - SWN_SLOT_ALIGN)
        return -EINVAL;
    b = calloc(1, sizeof *b);
    if (!b)
        return -ENOMEM;
    b->fd = -1;
    b->use.bytes = aligned(bytes);
    pthread_mutex_init(&b->lock, NULL);
    b->first = calloc(1, sizeof *b->first);
    rc = b->first ? map(b) : -ENOMEM;
    if (rc) {
        swn_buffer_close(b);
        return rc;
    }
    b->first->node.bytes = b->use.bytes;
    b->free.seed = swn_now_ns();
    swn_span_tree_add(&b->free, &b->first->node);
    *out = b;
    return 0;
}

void swn_buffer_close(struct swn_buffer *b)
{
    if (!b)
        return;
    while (b->first) {
        struct swn_slot_span *next = b->first->next;
        free(b->first);
        b->first = next;
    }
    if (b->at)
        munmap(b->at, b->use.bytes);
    if (b->fd >= 0)
        close(b->fd);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

int swn_buffer_fd(const struct swn_buffer *b)
{
    return b->fd;
}

void *swn_buffer_at(const struct swn_buffer *b, uint64_t offset)
{
    return b->at + offset;
}

void swn_buffer_use(struct swn_buffer *b, struct swn_buffer_use *use)
{
    pthread_mutex_lock(&b->lock);
    *use = b->use;
    pthread_mutex_unlock(&b->lock);
}

/* ---- spans, under the lock ---- */

static void count(struct swn_buffer *b, const struct swn_slot_span *s, uint64_t less, uint64_t more)
{
    b->use.used_bytes += more - less;
    b->of_requests += s->is_requests ? more - less : 0;
    if (b->use.used_bytes > b->use.peak_bytes)
        b->use.peak_bytes = b->use.used_bytes;
}

/* The free span behind becomes a part of s, which is in no tree. */
static void join_next(struct swn_buffer *b, struct swn_slot_span *s)
{
    struct swn_slot_span *next = s->next;

    swn_span_tree_remove(&b->free, &next->node);
    s->node.bytes += next->node.bytes;
    s->next = next->next;
    if (s->next)
        s->next->prev = s;
    free(next);
}

/* Leaves `bytes` to s, which is in no tree, and the rest to a free span behind it. Without memory for one s keeps all
 * of it. */
static void split(struct swn_buffer *b, struct swn_slot_span *s, uint64_t bytes)
{
    struct swn_slot_span *rest = s->node.bytes > bytes ? calloc(1, sizeof *rest) : NULL;

    if (!rest)
        return;
    rest->node.offset = s->node.offset + bytes;
    rest->node.bytes = s->node.bytes - bytes;
    rest->prev = s;
    rest->next = s->next;
    if (s->next)
        s->next->prev = rest;
    s->next = rest;
    s->node.bytes = bytes;
    if (rest->next && !rest->next->is_taken)
        join_next(b, rest);
    swn_span_tree_add(&b->free, &rest->node);
}

/* For a request whose slot has `own` bytes until now. */
static int is_kept(const struct swn_buffer *b, uint64_t own, uint64_t bytes)
{
    uint64_t others = b->of_requests - own, all;

    return others && (__builtin_add_overflow(others, bytes, &all) || all > b->use.bytes - b->kept);
}

static int take(struct swn_buffer *b, uint64_t bytes, int is_requests, uint64_t own, struct swn_slot_span **out)
{
    struct swn_slot_span *s = NULL;

    if (!is_requests || !is_kept(b, own, bytes))
        s = (struct swn_slot_span *)swn_span_tree_first(&b->free, bytes);
    if (!s) {
        b->use.refused += bytes <= b->use.bytes;
        return bytes > b->use.bytes ? -EFBIG : -ENOSPC;
    }
    swn_span_tree_remove(&b->free, &s->node);
    split(b, s, bytes);
    s->is_taken = 1;
    s->is_requests = (uint8_t)is_requests;
    b->use.slots++;
    count(b, s, 0, s->node.bytes);
    *out = s;
    return 0;
}

static void give(struct swn_buffer *b, struct swn_slot_span *s)
{
    s->is_taken = 0;
    b->use.slots--;
    count(b, s, s->node.bytes, 0);
    if (s->next && !s->next->is_taken)
        join_next(b, s);
    if (s->prev && !s->prev->is_taken) {
        struct swn_slot_span *prev = s->prev;
        swn_span_tree_remove(&b->free, &prev->node);
        swn_span_tree_add(&b->free, &s->node);
        join_next(b, prev);
        s = prev;
    }
    swn_span_tree_add(&b->free, &s->node);
}

/* Takes from the free span behind, where that is enough. */
static int grow_in_place(struct swn_buffer *b, struct swn_slot_span *s, uint64_t bytes)
{
    uint64_t before = s->node.bytes;

    if (!s->next || s->next->is_taken || before + s->next->node.bytes < bytes ||
        (s->is_requests && is_kept(b, before, bytes)))
        return -ENOSPC;
    join_next(b, s);
    split(b, s, bytes);
    count(b, s, before, s->node.bytes);
    return 0;
}

static void describe(struct swn_slot *slot, struct swn_slot_span *s)
{
    *slot = (struct swn_slot){.offset = s->node.offset, .bytes = s->node.bytes, .span = s};
}

/* As it is, without a copy of its bytes. 1: they are to move to *other, which is taken. */
static int resize(struct swn_buffer *b, struct swn_slot *slot, uint64_t bytes, struct swn_slot_span **other)
{
    struct swn_slot_span *s = slot->span;
    uint64_t before = s->node.bytes;
    int rc = 0;

    if (bytes <= before) {
        split(b, s, bytes);
        count(b, s, before, s->node.bytes);
    } else if (grow_in_place(b, s, bytes)) {
        rc = take(b, bytes, s->is_requests, before, other);
        return rc ? rc : 1;
    }
    describe(slot, s);
    return 0;
}

/* ---- */

static int take_slot(struct swn_buffer *b, uint64_t bytes, int is_requests, struct swn_slot *out)
{
    struct swn_slot_span *s;
    int rc;

    if (bytes > b->use.bytes)
        return -EFBIG;
    pthread_mutex_lock(&b->lock);
    rc = take(b, aligned(bytes), is_requests, 0, &s);
    if (rc == 0)
        describe(out, s);
    pthread_mutex_unlock(&b->lock);
    return rc;
}

int swn_slot_take(struct swn_buffer *b, uint64_t bytes, struct swn_slot *out)
{
    return take_slot(b, bytes, 0, out);
}

int swn_slot_take_for_request(struct swn_buffer *b, uint64_t bytes, struct swn_slot *out)
{
    return take_slot(b, bytes, 1, out);
}

void swn_buffer_keep(struct swn_buffer *b, uint64_t bytes)
{
    pthread_mutex_lock(&b->lock);
    b->kept = bytes < b->use.bytes ? bytes : b->use.bytes;
    pthread_mutex_unlock(&b->lock);
}

int swn_slot_resize(struct swn_buffer *b, struct swn_slot *slot, uint64_t bytes)
{
    struct swn_slot_span *other = NULL;
    int rc;

    if (bytes > b->use.bytes)
        return -EFBIG;
    pthread_mutex_lock(&b->lock);
    rc = resize(b, slot, aligned(bytes), &other);
    pthread_mutex_unlock(&b->lock);
    if (rc != 1)
        return rc;
    /* Both spans are the caller's. */
    memcpy(b->at + other->node.offset, b->at + slot->offset, slot->bytes);
    pthread_mutex_lock(&b->lock);
    give(b, slot->span);
    pthread_mutex_unlock(&b->lock);
    describe(slot, other);
    return 0;
}

void swn_slot_give(struct swn_buffer *b, struct swn_slot *slot)
{
    if (slot->span) {
        pthread_mutex_lock(&b->lock);
        give(b, slot->span);
        pthread_mutex_unlock(&b->lock);
    }
    *slot = (struct swn_slot){0};
}
