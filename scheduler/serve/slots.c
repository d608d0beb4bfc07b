/* scheduler/serve/slots.c - first fit in a list of spans by address: see slots.h.
 *
 * The spans, taken and free, cover the buffer without gaps, and no two free ones are neighbours. There are at most two
 * spans for each request that is in the server, so walking the list costs less than it would to keep a tree.
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

struct swn_slot_span {
    uint64_t offset, bytes;
    struct swn_slot_span *prev, *next;
    int is_taken;
};

struct swn_buffer {
    pthread_mutex_t lock;
    int fd;
    char *at;
    struct swn_slot_span *first;
    struct swn_buffer_use use;
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
    b->first->bytes = b->use.bytes;
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

static void count(struct swn_buffer *b, uint64_t less, uint64_t more)
{
    b->use.used_bytes += more - less;
    if (b->use.used_bytes > b->use.peak_bytes)
        b->use.peak_bytes = b->use.used_bytes;
}

static void join_next(struct swn_slot_span *s)
{
    struct swn_slot_span *next = s->next;

    s->bytes += next->bytes;
    s->next = next->next;
    if (s->next)
        s->next->prev = s;
    free(next);
}

/* Leaves `bytes` to s and the rest to a free span behind it. Without memory for one s keeps all of it. */
static void split(struct swn_slot_span *s, uint64_t bytes)
{
    struct swn_slot_span *rest = s->bytes > bytes ? calloc(1, sizeof *rest) : NULL;

    if (!rest)
        return;
    rest->offset = s->offset + bytes;
    rest->bytes = s->bytes - bytes;
    rest->prev = s;
    rest->next = s->next;
    if (s->next)
        s->next->prev = rest;
    s->next = rest;
    s->bytes = bytes;
    if (rest->next && !rest->next->is_taken)
        join_next(rest);
}

static int take(struct swn_buffer *b, uint64_t bytes, struct swn_slot_span **out)
{
    if (bytes > b->use.bytes)
        return -EFBIG;
    for (struct swn_slot_span *s = b->first; s; s = s->next) {
        if (s->is_taken || s->bytes < bytes)
            continue;
        split(s, bytes);
        s->is_taken = 1;
        b->use.slots++;
        count(b, 0, s->bytes);
        *out = s;
        return 0;
    }
    b->use.refused++;
    return -ENOSPC;
}

static void give(struct swn_buffer *b, struct swn_slot_span *s)
{
    s->is_taken = 0;
    b->use.slots--;
    count(b, s->bytes, 0);
    if (s->next && !s->next->is_taken)
        join_next(s);
    if (s->prev && !s->prev->is_taken)
        join_next(s->prev);
}

/* Takes from the free span behind, where that is enough. */
static int grow_in_place(struct swn_buffer *b, struct swn_slot_span *s, uint64_t bytes)
{
    uint64_t before = s->bytes;

    if (!s->next || s->next->is_taken || before + s->next->bytes < bytes)
        return -ENOSPC;
    join_next(s);
    split(s, bytes);
    count(b, before, s->bytes);
    return 0;
}

static void describe(struct swn_slot *slot, struct swn_slot_span *s)
{
    *slot = (struct swn_slot){.offset = s->offset, .bytes = s->bytes, .span = s};
}

static int resize(struct swn_buffer *b, struct swn_slot *slot, uint64_t bytes)
{
    struct swn_slot_span *s = slot->span, *other;
    uint64_t before = s->bytes;
    int rc = 0;

    if (bytes > b->use.bytes)
        return -EFBIG;
    if (bytes <= before) {
        split(s, bytes);
        count(b, before, s->bytes);
    } else if (grow_in_place(b, s, bytes)) {
        rc = take(b, bytes, &other);
        if (rc)
            return rc;
        memcpy(b->at + other->offset, b->at + s->offset, s->bytes);
        give(b, s);
        s = other;
    }
    describe(slot, s);
    return rc;
}

/* ---- */

int swn_slot_take(struct swn_buffer *b, uint64_t bytes, struct swn_slot *out)
{
    struct swn_slot_span *s;
    int rc;

    if (bytes > b->use.bytes)
        return -EFBIG;
    pthread_mutex_lock(&b->lock);
    rc = take(b, aligned(bytes), &s);
    if (rc == 0)
        describe(out, s);
    pthread_mutex_unlock(&b->lock);
    return rc;
}

int swn_slot_resize(struct swn_buffer *b, struct swn_slot *slot, uint64_t bytes)
{
    int rc;

    if (bytes > b->use.bytes)
        return -EFBIG;
    pthread_mutex_lock(&b->lock);
    rc = resize(b, slot, aligned(bytes));
    pthread_mutex_unlock(&b->lock);
    return rc;
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
