/* Checks bytes of a store against its checksums: every part that is read into a frame, each time, by the sums of its
 * blocks. An older store has only one checksum for each extent. That one is checked before the first operator that
 * reads the extent begins: in the frame, if it holds all of the extent, else by reading the extent. The same holds for
 * bytes that an operator reads through the mapping. */
#define _GNU_SOURCE
#include <errno.h>

#include "skeleton/load/load.h"
#include "skeleton/load/load_internal.h"

#define VERIFY_PIECE ((size_t)1 << 20)

const struct swn_store_extent *swn_source_extent(const struct source *s, uint64_t off, uint64_t len)
{
    size_t lo = 0, hi = s->store->extent_count;
    while (lo < hi) { /* the last one that begins at or before off */
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

int swn_load_check(struct swn_part *p, const void *bytes)
{
    const struct source *s = swn_source_of(p->file);
    p->checked = !s || !s->store; /* nothing to compare with */
    if (p->checked)
        return 0;
    const struct swn_store_extent *x = swn_source_extent(s, p->job.off, p->job.len);
    int err = x ? swn_store_check_part(x, p->job.off - x->off, bytes, p->job.len) : -EINVAL;
    if (x && err == -EINVAL && x->off == p->job.off && swn_round_up(x->bytes, SWN_PAGE) == p->job.len) {
        err = swn_store_check(x, bytes);
        if (!err)
            *verified(s, x) = 1;
    }
    p->checked = !err;
    return err == -EILSEQ ? err : 0; /* else it is one of several parts, which are checked before they are used */
}

/* The extent with r's bytes, if it has yet to be checked. */
static const struct swn_store_extent *unchecked(const struct swn_range *r, struct source **from)
{
    struct source *s = atomic_load(&((struct swn_range *)r)->state) == SWN_FILE_BACKED ? swn_source_of(r->file) : NULL;
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
        read_and_check(e, s, x, r->id);
}
