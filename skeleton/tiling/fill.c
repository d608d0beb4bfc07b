/* skeleton/tiling/fill.c - see fill.h. */
#define _GNU_SOURCE
#include "skeleton/tiling/fill.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "skeleton/engine/engine_internal.h"
#include "base/thread.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/engine/section.h"

#define PIECE_MOST ((size_t)4 << 20)
/* Two pieces are in memory at once. */
#define PIECE_PART 32

struct piece {
    char *bytes;
    size_t off, len; /* in the tensor; len 0: nothing to write */
};

struct swn_fill {
    /* Fixed while the operator runs: it has the range pinned. */
    struct swn_range *range; /* NULL: its mapping does not lag behind */
    struct swn_extent_file *file;
    uintptr_t addr;
    uint64_t extent;
    size_t len, most;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Guarded by lock: */
    struct piece pieces[2];
    unsigned making; /* index of the piece that the kernel is making */
    int given, ended, err;
    uint64_t written;

    size_t done; /* the kernel's: bytes of the tensor that are made, or begun */
    pthread_t thread;
};

static void write_one(struct swn_fill *f, struct piece *p)
{
    size_t whole = swn_round_up(p->len, SWN_PAGE);
    memset(p->bytes + p->len, 0, whole - p->len);
    swn_unlock(&f->lock);
    int err = swn_spill_write_at(f->file, p->bytes, whole, f->extent + p->off);
    if (err) /* private copies have the right bytes then, and the range becomes resident at its next use */
        memcpy((void *)(f->addr + p->off), p->bytes, p->len);
    swn_lock(&f->lock);
    if (!err)
        f->written += whole;
    if (!f->err)
        f->err = err;
    p->len = 0;
    pthread_cond_broadcast(&f->changed);
}

static void *writer(void *arg)
{
    struct swn_fill *f = arg;
    swn_lock(&f->lock);
    for (;;) {
        struct piece *p = &f->pieces[!f->making];
        if (p->len)
            write_one(f, p);
        else if (f->ended)
            break;
        else
            pthread_cond_wait(&f->changed, &f->lock);
    }
    swn_unlock(&f->lock);
    return NULL;
}

/* Hands the made piece to the writer, once it is done with the piece before. f->lock held. */
static void hand_over(struct swn_fill *f)
{
    while (f->pieces[!f->making].len)
        pthread_cond_wait(&f->changed, &f->lock);
    f->making = !f->making;
    pthread_cond_broadcast(&f->changed);
}

/* Engine lock held. */
static void destroy(struct swn_fill *f)
{
    f->file->refs--;
    munmap(f->pieces[0].bytes, 2 * f->most);
    swn_engine_count_small(-(long long)(2 * f->most));
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

static struct swn_fill *create(struct swn_engine *e, const struct swn_range *r, size_t most)
{
    struct swn_fill *f = calloc(1, sizeof *f);
    void *both = f ? mmap(NULL, 2 * most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    if (both == MAP_FAILED) {
        free(f);
        return NULL;
    }
    f->file = r->file;
    f->file->refs++;
    f->addr = r->addr;
    f->extent = r->extent;
    f->len = r->len;
    f->most = most;
    f->pieces[0].bytes = both;
    f->pieces[1].bytes = (char *)both + most;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    swn_engine_count_small((long long)(2 * most));
    swn_engine_note_peak(e);
    return f;
}

struct swn_fill *swn_fill_begin(struct swn_op *op, unsigned arg, size_t *piece)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    const struct swn_arg *a = &op->args[arg];
    swn_lock(&e->lock);
    size_t most = e->budget.limit / PIECE_PART / SWN_GRANULE * SWN_GRANULE;
    most = most > PIECE_MOST ? PIECE_MOST : most;
    struct swn_range *r = a->range;
    struct swn_fill *f = NULL;
    int fits = r && r->id == a->range_id && r->shared && a->pinned && r->pins == 1 && r->addr == a->data &&
               r->len == a->bytes && r->file->fetch.direct_fd >= 0;
    if (fits && most && !swn_reclaim_try(e, 2 * most, r))
        f = create(e, r, most);
    if (f && swn_thread_start(&f->thread, writer, f)) {
        destroy(f);
        f = NULL;
    }
    swn_unlock(&e->lock);
    if (!f)
        return NULL;
    pthread_setname_np(f->thread, "swn-fill");
    *piece = most;
    swn_lock(&e->lock);
    int err = r->shared ? swn_residency_take_over(&e->res, r) : -EBUSY; /* it may have become resident meanwhile */
    if (!err)
        (f->range = r)->filling = 1;
    swn_unlock(&e->lock);
    if (err) {
        swn_fill_end(f, 0);
        return NULL;
    }
    return f;
}

void *swn_fill_next(struct swn_fill *f, size_t bytes)
{
    SWN_SECTION();
    swn_lock(&f->lock);
    if (f->given)
        hand_over(f);
    f->given = 1;
    struct piece *p = &f->pieces[f->making];
    *p = (struct piece){.bytes = p->bytes, .off = f->done, .len = bytes};
    f->done += bytes;
    swn_unlock(&f->lock);
    return p->bytes;
}

void swn_fill_end(struct swn_fill *f, int made)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    swn_lock(&f->lock);
    if (f->given && made)
        hand_over(f);
    f->ended = 1;
    pthread_cond_broadcast(&f->changed);
    swn_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    swn_lock(&e->lock);
    f->file->written_bytes += f->written;
    if (f->range) { /* its operator has kept it */
        f->range->filling = 0;
        pthread_cond_broadcast(&e->changed);
    }
    if (f->err && !swn_spill_again(e, f->err))
        swn_note_spill(e, f->len, f->err);
    destroy(f);
    swn_unlock(&e->lock);
}
