/* skeleton/core/expected_read.c - A loader allocates a tensor and then reads its bytes, a read that is registered
 * instead, so that the memory is never touched. Making room for such a tensor would write out weights that the
 * checkpoint is about to replace: 64 MiB of VGG-19's took 36 ms of a load of 95. So a tensor that is likely to be read
 * next gets its room only if no read has come by the next allocation or operator of any thread. */
#include "skeleton/core/expected_read.h"

#include "skeleton/engine/engine_internal.h"
#include "skeleton/core/eviction.h"
#include "skeleton/engine/accounting.h"

void swn_expected_read_set(struct swn_engine *e, swn_expected_read_match *match, const void *source, size_t after)
{
    e->expected.match = match;
    e->expected.source = source;
    e->expected.after = after;
    e->expected.thread = pthread_self();
}

int swn_expected_read_matches(const struct swn_engine *e, size_t n)
{
    return e->expected.source && pthread_equal(e->expected.thread, pthread_self()) && !e->config.strict &&
           e->config.enforce && n <= e->budget.limit && /* a larger tensor takes no room anyway */
           e->expected.match(e->expected.source, e->expected.after, n);
}

void swn_expected_read_allocated(struct swn_engine *e, struct swn_range *r, size_t fresh)
{
    e->expected.range = r;
    e->expected.id = r->id;
    e->expected.bytes = fresh;
}

void swn_expected_read_freed(struct swn_engine *e, const struct swn_range *r)
{
    if (e->expected.range != r)
        return;
    e->expected.range = NULL;
    e->expected.source = NULL;
}

void swn_expected_read_cancel(struct swn_engine *e, int for_good)
{
    struct swn_range *r = e->expected.range;
    size_t bytes = swn_expected_read_bytes(e);
    e->expected.range = NULL;
    if (bytes || for_good)
        e->expected.source = NULL; /* this thread does something else now */
    if (!bytes)
        return;
    swn_engine_note_peak(e);
    swn_reclaim_must(e, 0, r);
}
