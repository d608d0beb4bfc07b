/* What is read of a store against the checksums of its extents. One is looked at before the operator that reads the
 * extent ends, however it comes: by a fetch of all of it, by a mapping, or in pieces. A checksum is of a whole; so
 * where slices are handed out one after the other it is computed along with them, and only what cannot be checked on
 * its way is read for that alone. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <xxhash.h>

#include "swn_load.h"
#include "swn_load_priv.h"

#define VERIFY_PIECE ((size_t)1 << 20)

const struct swn_store_extent *swn_source_extent(const struct source *s, uint64_t off, uint64_t len)
{
    size_t lo = 0, hi = s->store->extent_count;
    while (lo < hi) { /* the last one that begins at off or before */
        size_t mid = lo + (hi - lo) / 2;
        if (s->store->extents[mid].off <= off)
            lo = mid + 1;
        else
            hi = mid;
    }
    const struct swn_store_extent *x = lo ? &s->store->extents[lo - 1] : NULL;
    return x && off + len <= x->off + swn_round_up(x->bytes, SWN_PAGE) ? x : NULL;
}

static _Atomic unsigned char *verified(const struct source *s, const struct swn_store_extent *x)
{
    return &s->verified[x - s->store->extents];
}

int swn_load_check(const struct swn_frame *f, const void *bytes)
{
    const struct source *s = (const void *)((const char *)f->job.file - offsetof(struct source, file.fetch));
    if (!f->checked || !s->store)
        return 0;
    const struct swn_store_extent *x = swn_source_extent(s, f->job.off, f->job.len);
    if (!x || x->off != f->job.off || swn_round_up(x->bytes, SWN_PAGE) != f->job.len || *verified(s, x))
        return 0; /* pieces: by those who hand them out */
    int err = swn_store_check(x, bytes);
    if (!err)
        *verified(s, x) = 1;
    return err;
}

/* The extent that r's bytes are of or from, if it has yet to be checked. */
static const struct swn_store_extent *unchecked(const struct swn_range *r, struct source **from)
{
    struct source *s = atomic_load(&((struct swn_range *)r)->state) == SWN_STREAMED ? swn_source_of(r->file) : NULL;
    const struct swn_store_extent *x =
        s && s->store ? swn_source_extent(s, r->extent, swn_round_up(r->len, SWN_PAGE)) : NULL;
    *from = s;
    return x && !*verified(s, x) ? x : NULL;
}

static void read_and_check(struct swn_engine *e, struct source *s, const struct swn_store_extent *x, uint32_t block)
{
    int err = *verified(s, x) ? 0 : swn_store_verify_extent(s->store, e->io, x, VERIFY_PIECE);
    if (err == -EILSEQ)
        swn_engine_corrupt(&s->file, block, x->off);
    if (!err)
        *verified(s, x) = 1;
}

void swn_load_verify(struct swn_engine *e, const struct swn_range *r)
{
    struct source *s;
    const struct swn_store_extent *x = unchecked(r, &s);
    if (x)
        read_and_check(e, s, x, r->lead->id);
}

/* --- slices --- */

struct swn_load_run {
    const struct swn_store_extent *of; /* of which slices have been handed out unchecked; NULL: of none */
    struct source *source;             /* and its store's */
    uint32_t block;
    uint64_t next;      /* so much of it, from its beginning on, is in the hash */
    XXH3_state_t *hash; /* NULL: no memory for it */
};

static struct swn_load_run *run_of(struct swn_thread_state *t)
{
    if (!t->checking && (t->checking = calloc(1, sizeof *t->checking)))
        t->checking->hash = XXH3_createState();
    return t->checking;
}

/* Not all of its slices came. */
static void read_the_rest(struct swn_engine *e, struct swn_load_run *run)
{
    if (run->of)
        read_and_check(e, run->source, run->of, run->block);
    run->of = NULL;
}

void swn_load_slice(struct swn_engine *e, struct swn_thread_state *t, const struct swn_arg *slice)
{
    struct source *s;
    const struct swn_range *r = slice->range;
    const struct swn_store_extent *x = unchecked(r, &s);
    struct swn_load_run *run = x ? run_of(t) : NULL;
    if (!x || !slice->frame || slice->frame->copy) /* its mapping serves, or each chunk was checked */
        return;
    if (!run || !run->hash) {
        swn_load_verify(e, r);
        return;
    }
    if (run->of != x)
        read_the_rest(e, run);
    if (r->extent == x->off) {
        *run = (struct swn_load_run){.of = x, .source = s, .block = r->lead->id, .hash = run->hash};
        XXH3_64bits_reset(run->hash);
    } else if (run->of != x || run->next != r->extent - x->off) {
        swn_load_verify(e, r); /* not one after the other */
        return;
    }
    uint64_t left = x->bytes - run->next;
    size_t bytes = left < r->len ? (size_t)left : r->len;
    /* What was read, not what the address says: there the program may have stored something else. The read-only view
     * does not have frames that are kept. */
    XXH3_64bits_update(run->hash, swn_pool_rw(e->pool, slice->frame), bytes);
    run->next += bytes;
    if (run->next < x->bytes)
        return;
    if (XXH3_64bits_digest(run->hash) != x->checksum)
        swn_engine_corrupt(r->file, r->lead->id, x->off);
    *verified(s, x) = 1;
    run->of = NULL;
}

void swn_load_slices_end(struct swn_engine *e, struct swn_thread_state *t, const struct swn_range *lead, int all_sliced)
{
    if (t->checking)
        read_the_rest(e, t->checking);
    for (const struct swn_range *r = all_sliced ? NULL : lead; r; r = r->rest)
        swn_load_verify(e, r);
}
