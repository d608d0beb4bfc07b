/* skeleton/capi/swapnet.c - the public C API, made of store, skeleton and fetch queue. */
#define _GNU_SOURCE
#include "skeleton/capi/swapnet.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "scheduler/planner/partition_minmax.h"
#include "blocks/memory/fetch_queue.h"
#include "blocks/store/skeleton.h"
#include "blocks/store/store.h"

#define API __attribute__((visibility("default")))

enum state { OUT, COMING, IN };

/* One read of a block: its own extents, or one tie. */
struct part {
    struct swn_fetch_job job;
    struct swapnet_model *model;
    struct held *block;
};

struct held {
    struct swn_block b;
    enum state state;
    void *base;         /* NULL when OUT */
    struct part *parts; /* while COMING */
    uint32_t pending;   /* parts not read yet; under the lock */
    int err;            /* of the first part that failed; under the lock */
};

struct swapnet_model {
    struct swn_store *store;
    struct swn_skeleton *skeleton;
    struct swn_fetch *fetch;
    struct held *blocks;
    size_t block_count;
    pthread_mutex_t lock;
    pthread_cond_t done;
};

/* ---- life ---- */

static void free_blocks(struct held *blocks, size_t count)
{
    for (size_t i = 0; blocks && i < count; i++)
        swn_block_free(&blocks[i].b);
    free(blocks);
}

/* Blocks that begin at first[i]; NULL: one per layer. */
static int make_blocks(struct swapnet_model *m, const size_t *first, size_t count)
{
    size_t layers = m->store->layer_count;
    struct held *blocks = calloc(count + 1, sizeof *blocks);
    if (!blocks)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        size_t begin = first ? first[i] : i, end = !first ? i + 1 : i + 1 < count ? first[i + 1] : layers;
        int rc = swn_block_make(&blocks[i].b, m->skeleton, (uint32_t)begin, (uint32_t)(end - begin));
        if (rc) {
            free_blocks(blocks, count);
            return rc;
        }
    }
    free_blocks(m->blocks, m->block_count);
    m->blocks = blocks;
    m->block_count = count;
    return 0;
}

static int start(struct swapnet_model *m, const char *path, char why[SWN_ERRMSG])
{
    struct swn_fetch_opts opts = {.io = &swn_io_sys};
    int rc = swn_store_open(&m->store, &swn_io_sys, path, why);
    if (rc)
        return rc;
    rc = swn_skeleton_make(&m->skeleton, m->store);
    if (!rc)
        rc = make_blocks(m, NULL, m->store->layer_count);
    if (!rc)
        rc = swn_fetch_start(&m->fetch, &opts);
    if (rc)
        snprintf(why, SWN_ERRMSG, "%s: %s", path, strerror(-rc));
    return rc;
}

API int swapnet_open(struct swapnet_model **out, const char *store, char *why, size_t size)
{
    char text[SWN_ERRMSG] = "no memory";
    struct swapnet_model *m = calloc(1, sizeof *m);
    int rc = -ENOMEM;
    if (m) {
        pthread_mutex_init(&m->lock, NULL);
        pthread_cond_init(&m->done, NULL);
        rc = start(m, store, text);
    }
    if (rc) {
        if (why && size)
            snprintf(why, size, "%s", text);
        swapnet_close(m);
        return rc;
    }
    *out = m;
    return 0;
}

API void swapnet_close(struct swapnet_model *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->block_count; i++)
        swapnet_swap_out(m, i);
    if (m->fetch)
        swn_fetch_stop(m->fetch);
    free_blocks(m->blocks, m->block_count);
    swn_skeleton_free(m->skeleton);
    swn_store_close(m->store, &swn_io_sys);
    pthread_cond_destroy(&m->done);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* ---- cutting ---- */

static uint64_t *layer_sizes(const struct swapnet_model *m)
{
    uint64_t *sizes = calloc(m->store->layer_count + 1, sizeof *sizes);
    if (!sizes || swn_store_layer_bytes(m->store, sizes) == 0)
        return sizes;
    free(sizes);
    return NULL;
}

API int swapnet_cut(struct swapnet_model *m, uint64_t budget_bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < m->block_count; i++)
        if (m->blocks[i].state != OUT)
            return -EBUSY;
    if (!m->store->layer_count)
        return 0;
    uint64_t *sizes = layer_sizes(m);
    size_t *first = calloc(m->store->layer_count, sizeof *first);
    int rc = sizes && first ? swn_partition_minmax_for_budget(sizes, m->store->layer_count, budget_bytes, &count, first)
                            : -ENOMEM;
    if (!rc)
        rc = make_blocks(m, first, count);
    free(sizes);
    free(first);
    return rc ? rc : (int)count;
}

API uint64_t swapnet_smallest_budget(const struct swapnet_model *m)
{
    uint64_t *sizes = layer_sizes(m),
             bytes = sizes ? swn_partition_minmax_budget(sizes, m->store->layer_count) : UINT64_MAX;
    free(sizes);
    return bytes;
}

API size_t swapnet_block_count(const struct swapnet_model *m)
{
    return m->block_count;
}

API uint64_t swapnet_block_bytes(const struct swapnet_model *m, size_t block)
{
    return block < m->block_count ? m->blocks[block].b.bytes : 0;
}

/* ---- in and out ---- */

static void part_done(struct swn_fetch_job *job, int err)
{
    struct part *p = job->user;
    struct swapnet_model *m = p->model;
    pthread_mutex_lock(&m->lock);
    if (err && !p->block->err)
        p->block->err = err;
    if (!--p->block->pending)
        pthread_cond_broadcast(&m->done);
    pthread_mutex_unlock(&m->lock);
}

/* Even a block of empty tensors has an address. */
static size_t mapped_bytes(const struct held *s)
{
    return s->b.bytes ? s->b.bytes : 4096;
}

static void forget(struct held *s)
{
    if (s->base)
        munmap(s->base, mapped_bytes(s));
    free(s->parts);
    s->base = NULL;
    s->parts = NULL;
    s->err = 0;
    s->state = OUT;
}

static void submit(struct swapnet_model *m, struct held *s, struct part *p, uint64_t off, uint64_t at, uint64_t len)
{
    p->model = m;
    p->block = s;
    p->job = (struct swn_fetch_job){
        .file = &m->store->file, .off = off, .buf = (char *)s->base + at, .len = len, .done = part_done, .user = p};
    int rc = len ? swn_fetch_submit(m->fetch, &p->job, 0) : 0;
    if (rc || !len)
        part_done(&p->job, rc);
}

API int swapnet_prefetch(struct swapnet_model *m, size_t block)
{
    if (block >= m->block_count)
        return -EINVAL;
    struct held *s = &m->blocks[block];
    if (s->state != OUT)
        return 0;
    s->parts = calloc(1 + (size_t)s->b.tie_count, sizeof *s->parts);
    void *base = NULL;
    int rc = s->parts ? 0 : -ENOMEM;
    /* Shared memory, so that a fork during a read cannot make the bytes arrive in a page that the parent no longer has.
     */
    if (!rc)
        rc = swn_io_sys.mmap(NULL, &base, mapped_bytes(s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (rc) {
        forget(s);
        return rc;
    }
    s->base = base;
    s->state = COMING;
    s->pending = 1 + s->b.tie_count;
    submit(m, s, &s->parts[0], s->b.off, 0, s->b.own_bytes);
    for (uint32_t i = 0; i < s->b.tie_count; i++) {
        const struct swn_store_extent *e = &m->store->extents[s->b.ties[i].extent];
        submit(m, s, &s->parts[1 + i], e->off, s->b.ties[i].at, (e->bytes + 4095) & ~(uint64_t)4095);
    }
    return 0;
}

static int wait_for(struct swapnet_model *m, struct held *s)
{
    pthread_mutex_lock(&m->lock);
    while (s->pending)
        pthread_cond_wait(&m->done, &m->lock);
    int rc = s->err;
    pthread_mutex_unlock(&m->lock);
    return rc;
}

static int check(const struct swapnet_model *m, const struct held *s)
{
    const struct swn_store *store = m->store;
    for (uint32_t i = 0; i < s->b.extents; i++) {
        const struct swn_store_extent *e = &store->extents[s->b.first_extent + i];
        if (swn_store_check(e, (char *)s->base + (e->off - s->b.off)))
            return -EILSEQ;
    }
    for (uint32_t i = 0; i < s->b.tie_count; i++)
        if (swn_store_check(&store->extents[s->b.ties[i].extent], (char *)s->base + s->b.ties[i].at))
            return -EILSEQ;
    return 0;
}

/* One read of the block, waited for and checked. */
static int fetch_once(struct swapnet_model *m, size_t block)
{
    int rc = swapnet_prefetch(m, block);
    if (rc)
        return rc;
    struct held *s = &m->blocks[block];
    for (uint32_t i = 0; i <= s->b.tie_count; i++)
        if (s->parts[i].job.len)
            swn_fetch_promote(m->fetch, &s->parts[i].job);
    rc = wait_for(m, s);
    if (!rc)
        rc = check(m, s);
    if (rc)
        forget(s);
    return rc;
}

API int swapnet_swap_in(struct swapnet_model *m, size_t block)
{
    if (block >= m->block_count)
        return -EINVAL;
    struct held *s = &m->blocks[block];
    if (s->state == IN)
        return 0;
    int rc = fetch_once(m, block);
    if (rc == -EILSEQ) /* a bit may have flipped during the read and not on the disk */
        rc = fetch_once(m, block);
    if (rc)
        return rc;
    free(s->parts);
    s->parts = NULL;
    s->state = IN;
    swn_skeleton_register(m->skeleton, &s->b, s->base);
    return 0;
}

API int swapnet_swap_out(struct swapnet_model *m, size_t block)
{
    if (block >= m->block_count)
        return -EINVAL;
    struct held *s = &m->blocks[block];
    if (s->state == COMING)
        wait_for(m, s); /* the disk may still write into the memory */
    if (s->state == IN)
        swn_skeleton_unregister(m->skeleton, &s->b);
    forget(s);
    return 0;
}

/* ---- tensors ---- */

API size_t swapnet_tensor_count(const struct swapnet_model *m, size_t block)
{
    return block < m->block_count ? m->blocks[block].b.slots : 0;
}

API int swapnet_tensor(const struct swapnet_model *m, size_t block, size_t index, struct swapnet_tensor *out)
{
    if (index >= swapnet_tensor_count(m, block))
        return -EINVAL;
    size_t i = m->blocks[block].b.first_slot + index;
    const struct swn_skeleton_slot *slot = &m->skeleton->slots[i];
    *out = (struct swapnet_tensor){.name = m->store->tensors[i].name,
                                   .dtype = swn_dtype_name((enum swn_dtype)slot->dtype),
                                   .ndim = slot->ndim,
                                   .shape = slot->shape,
                                   .stride = slot->stride,
                                   .data = slot->data};
    return 0;
}
