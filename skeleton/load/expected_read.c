/* A loader allocates a tensor and then reads its bytes, which is registered instead: memory that is never touched. To
 * make room for it would write out weights that the checkpoint is about to replace: 64 MiB of VGG-19's took 36 ms, of a
 * load of 95. So a tensor that is to be read next, as far as one can see, gets its room when that has not come true: at
 * the next allocation or operator, whoever's.
 */
#include "skeleton/load/load.h"
#include "skeleton/load/load_internal.h"

void swn_load_expect(struct swn_engine *e, const struct source *s, size_t index)
{
    e->expected.source = s;
    e->expected.after = index;
    e->expected.thread = pthread_self();
}

int swn_load_expected(const struct swn_engine *e, size_t n)
{
    const struct source *s = e->expected.source;
    if (!s || !pthread_equal(e->expected.thread, pthread_self()) || e->config.strict || !e->config.enforce ||
        n > e->config.budget_bytes) /* which takes no room anyway */
        return 0;
    size_t end = e->expected.after + 1 + SWN_LOAD_SMALL_RUN;
    for (size_t i = e->expected.after + 1; i < s->store->extent_count && i <= end; i++)
        if (s->store->extents[i].bytes == n && s->store->extents[i].source == s->index)
            return 1;
    return 0;
}

void swn_load_expecting(struct swn_engine *e, struct swn_range *r, size_t fresh)
{
    e->expected.range = r;
    e->expected.id = r->id;
    e->expected.bytes = fresh;
}

size_t swn_load_expected_bytes(const struct swn_engine *e)
{
    struct swn_range *r = e->expected.range;
    return r && r->id == e->expected.id && atomic_load(&r->state) == SWN_HOME ? e->expected.bytes : 0;
}

void swn_load_expect_freed(struct swn_engine *e, const struct swn_range *r)
{
    if (e->expected.range != r)
        return;
    e->expected.range = NULL;
    e->expected.source = NULL;
}

void swn_load_expect_no_more(struct swn_engine *e, int for_good)
{
    struct swn_range *r = e->expected.range;
    size_t bytes = swn_load_expected_bytes(e);
    e->expected.range = NULL;
    if (bytes || for_good)
        e->expected.source = NULL; /* this thread does something else now */
    if (!bytes)
        return;
    swn_engine_note_peak(e);
    swn_policy_make_room(e, 0, r);
}
