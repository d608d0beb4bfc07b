/* Description: what became of taking a weight in slices within one budget is not what becomes of it within another. */
#define _GNU_SOURCE
#include "swn_plan.h"
#include "swn_plan_pieces.h"
#include "swn_sliced_op.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>

#include <cmocka.h>

#define ROW_BYTES ((size_t)6144)
#define UNIT ((size_t)3 * 65536) /* where rows and granules meet */
#define LARGE_BYTES (4096 * ROW_BYTES)
#define SMALL 12
#define SMALL_BYTES ((size_t)256 << 10)
#define NARROW (14 * MIB)
#define BETWEEN (25 * MIB)
#define WIDE (40 * MIB) /* less than all weights take */
#define TRIES 6

static struct tensor large[2], small[SMALL];
static struct swn_engine *const e = &swn_engine_one;

static void begin(size_t budget)
{
    CHECK(engine_begin(budget, SWN_CONFIG_AUTO, NULL) == 0);
    for (unsigned i = 0; i < 2; i++)
        CHECK(tensor_make(&large[i], LARGE_BYTES, 100 + i));
    for (unsigned i = 0; i < SMALL; i++)
        CHECK(tensor_make(&small[i], SMALL_BYTES, i + 1));
    op_age();
}

static void end(void)
{
    for (unsigned i = 0; i < 2; i++)
        tensor_free(&large[i]);
    for (unsigned i = 0; i < SMALL; i++)
        tensor_free(&small[i]);
    engine_is_empty();
}

static void set(uint64_t bytes)
{
    struct swn_budget_change change;
    CHECK(swn_engine_set_budget(bytes, 20000, &change) == 0 && change.bound);
}

static unsigned seen; /* of the large ones: that came in the most slices */

static const struct swn_range *range(void)
{
    return swn_arena_find(e->arena, large[seen].own);
}

/* Returns in how many slices a weight came in the last one: the first, unless it came whole and the second did not. The
 * large budget has room for one of them, and which is to stay is a matter of what their operators happened to take. */
static size_t passes(unsigned n)
{
    size_t slices[2] = {0};
    while (n--) {
        for (unsigned i = 0; i < SMALL; i++)
            op_read(&small[i]);
        for (unsigned i = 0; i < 2; i++)
            slices[i] = op_sliced(&large[i], ROW_BYTES, SIZE_MAX);
    }
    seen = slices[0] <= 1 && slices[1] > 1;
    return slices[seen];
}

/* Slices that are long enough for the bits are too long for the first budget. */
static void given_up_in_a_small_one(void *arg)
{
    (void)arg;
    begin(NARROW);
    op_right_from = 4 * MIB;
    CHECK(passes(16) == 0 && range()->slice_unit == 0 && range()->slicing.given_up_for == op_shape);
    /* A little more is no reason to try again: the next weight to be given up would be no wiser. */
    set(NARROW + NARROW / 2);
    CHECK(passes(12) == 0 && range()->slice_unit == 0 && range()->slicing.given_up_for == op_shape);
    set(WIDE);
    CHECK(passes(24) > 1 && range()->slice_unit >= op_right_from && range()->slice_unit % UNIT == 0);
    uint64_t plans = e->plans;
    CHECK(passes(8) > 1 && e->plans == plans);
    end();
}

/* And the other way round: the slices of a large budget, for a shape that has gone, are longer than what there is. */
static void lengthened_in_a_large_one(void *arg)
{
    (void)arg;
    begin(WIDE);
    op_right_from = 5 * MIB;
    passes(12);
    CHECK(range()->slice_unit >= op_right_from); /* 8 MiB and a little, of which two are more than the next budget */
    op_right_from = 0;
    op_shape = 2;
    set(NARROW);
    CHECK(passes(24) > 4 && range()->slice_unit == UNIT);
    uint64_t plans = e->plans, strays = e->res.stray_pages;
    CHECK(passes(8) > 4 && e->plans == plans && e->res.stray_pages == strays);
    end();
}

/* Before there is a plan one refusal is enough: whoever reads such a weight through its mapping may take long. */
static void lengthened_before_a_plan(void *arg)
{
    (void)arg;
    begin(BETWEEN);
    op_right_from = 4 * MIB;
    passes(2); /* at first there may be room for one of them */
    CHECK(!e->planned && passes(1) > 1 && range()->slice_unit >= op_right_from);
    CHECK(passes(12) > 1 && e->planned && range()->slice_unit >= op_right_from);
    end();
}

/* Longer slices for which there is still room stay as they are. */
static void lengthened_and_still_right(void *arg)
{
    (void)arg;
    begin(WIDE);
    op_right_from = 4 * MIB;
    CHECK(passes(24) > 1);
    size_t unit = range()->slice_unit;
    CHECK(unit >= op_right_from);
    set(WIDE * 2 / 3);
    CHECK(passes(16) > 1 && range()->slice_unit == unit);
    end();
}

/* Whether the weight has the plan's pieces, and no others. */
static int cut_as(const struct swn_range *lead, const struct swn_plan_node *node)
{
    size_t cuts = 0, planned = 0;
    for (const struct swn_range *r = lead->rest; r; r = r->rest, cuts++)
        if (!swn_plan_cuts(node, r->addr - lead->addr))
            return 0;
    for (size_t at = UNIT; at < node->bytes; at += UNIT)
        planned += (size_t)swn_plan_cuts(node, at);
    return cuts == planned;
}

/* Plans come one after the other, each with other slices and another part of them that is kept. What one of them has
 * left at its own address and what the next one reads for it are one slice all the same, once an operator asks; until
 * then slices that nobody has planned are no reason for longer ones. */
static void cut_as_planned_when_asked(void *arg)
{
    (void)arg;
    static const size_t pieces[] = {12, 10, 16, 9, 11, 12, 12, 14}, kept[] = {1, 2, 1, 4, 3, 0, 2, 2};
    begin(WIDE);
    passes(12);
    CHECK(e->planned);
    struct swn_range *lead = swn_arena_find(e->arena, large[0].own);
    unsigned otherwise = 0;
    for (unsigned i = 0; i < 8; i++) {
        struct swn_plan_node node = {.bytes = LARGE_BYTES,
                                     .unit = UNIT,
                                     .sliced = 1,
                                     .piece = pieces[i] * UNIT,
                                     .keep_bytes = kept[i] * pieces[i] * UNIT};
        pthread_mutex_lock(&e->lock);
        e->plan_dirty = 0; /* it would be in the way */
        CHECK(swn_cut_apply(e, lead, &node) == 0);
        otherwise += lead->cut_otherwise > 0;
        pthread_mutex_unlock(&e->lock);
        op_right_from = node.piece; /* more than some of the pieces that are left over */
        CHECK(op_sliced(&large[0], ROW_BYTES, SIZE_MAX) > 1);
        CHECK(op_sliced(&large[0], ROW_BYTES, SIZE_MAX) > 1);
        CHECK(!lead->cut_otherwise && cut_as(lead, &node) && lead->slice_unit == UNIT);
        CHECK(tensor_right(&large[0], large[0].own));
        pthread_mutex_lock(&e->lock);
        CHECK(swn_policy_bring_home(e, lead, 0) == 0);
        pthread_mutex_unlock(&e->lock);
        op_right_from = 0;
    }
    CHECK(otherwise > 1); /* else this says nothing */
    end();
}

static uint64_t bytes_read(void)
{
    struct swn_fetch_stats s;
    pthread_mutex_lock(&e->lock);
    swn_fetch_stats_get(e->fetch, &s);
    pthread_mutex_unlock(&e->lock);
    return s.bytes;
}

static void not_at_home(struct swn_range *r)
{
    pthread_mutex_lock(&e->lock);
    if (atomic_load(&r->state) == SWN_HOME)
        CHECK(swn_policy_spill(e, r) == 0);
    pthread_mutex_unlock(&e->lock);
}

/* Whether what the plan keeps of the weight stays, piece by piece, and nothing else of it does. */
static int kept_as(const struct swn_range *lead, const struct swn_plan_node *node)
{
    size_t stays = 0;
    for (const struct swn_range *r = lead; r; r = r->rest)
        if (r->keep && r->frame && r->frame->kept && r->published == r->len &&
            swn_plan_keeps(node, r->addr - lead->addr, r->addr - lead->addr + r->len))
            stays += r->len;
        else if (r->keep || (r->frame && r->frame->kept))
            return 0;
    return stays == node->keep_bytes;
}

/* What two plans both keep of a weight is not read again for the second one: not where it keeps less, nor more. */
static void kept_is_read_once(void *arg)
{
    (void)arg;
    static const size_t kept[] = {8, 40, 32, 24, 48, 40};
    enum { PIECE = 8, LOST = 4 };
    begin(WIDE);
    passes(12);
    CHECK(e->planned);
    struct swn_range *lead = swn_arena_find(e->arena, large[0].own);
    not_at_home(lead);
    size_t before = 0;
    for (unsigned i = 0; i < 6; i++) {
        struct swn_plan_node node = {
            .bytes = LARGE_BYTES, .unit = UNIT, .sliced = 1, .piece = PIECE * UNIT, .keep_bytes = kept[i] * UNIT};
        pthread_mutex_lock(&e->lock);
        e->plan_dirty = 0;
        CHECK(swn_cut_apply(e, lead, &node) == 0);
        if (i == LOST) { /* a part of it has left for something else */
            struct swn_range *r = lead;
            while (r && !(r->frame && r->frame->kept))
                r = r->rest;
            CHECK(r);
            swn_policy_unkeep(e, r);
            before = 0;
        }
        pthread_mutex_unlock(&e->lock);
        uint64_t begin = bytes_read();
        CHECK(op_sliced(&large[0], ROW_BYTES, SIZE_MAX) > 1);
        /* A slice or two may have been read ahead when the plan came. */
        size_t grown = kept[i] > before ? kept[i] - before : 0, streamed = LARGE_BYTES / UNIT - kept[i];
        CHECK(bytes_read() - begin <= (streamed + grown + 2 * PIECE) * UNIT);
        CHECK(cut_as(lead, &node));
        /* What was read ahead for the plan before comes to stay with the next operator. */
        CHECK(kept_as(lead, &node) || (op_sliced(&large[0], ROW_BYTES, SIZE_MAX) > 1 && kept_as(lead, &node)));
        CHECK(tensor_right(&large[0], large[0].own));
        before = kept[i];
    }
    end();
}

/* An operator that has begun to take slices gets all of them, whatever plan comes meanwhile: what is left of the weight
 * would have to be read through its mapping, page by page. The plan is for the next one. */
static void plan_between_slices(void *arg)
{
    (void)arg;
    static const enum swn_use use = SWN_USE_WEIGHT;
    static size_t bytes[4096];
    struct swn_plan_node nodes[] = {{.bytes = LARGE_BYTES, .unit = UNIT, .sliced = 1, .piece = 12 * UNIT},
                                    {.bytes = LARGE_BYTES, .unit = UNIT, .sliced = 1, .piece = 9 * UNIT}};
    begin(WIDE);
    passes(12);
    struct swn_range *lead = swn_arena_find(e->arena, large[0].own);
    struct tensor *t = &large[0];
    struct swn_op op;
    not_at_home(lead);
    pthread_mutex_lock(&e->lock);
    e->plan_dirty = 0;
    CHECK(swn_cut_apply(e, lead, &nodes[0]) == 0);
    pthread_mutex_unlock(&e->lock);
    op_open(&op, &t, &use, 1);
    CHECK(op.args[0].sliced);
    size_t n = op_slices(&op, 0, bytes, 4096), off = 0;
    for (size_t i = 0; i < n; off += bytes[i++]) {
        const void *at = swn_slice_lend(&op, 0, off, bytes[i]);
        CHECK(at && tensor_right_part(t, (uintptr_t)at, off, bytes[i]));
        pthread_mutex_lock(&e->lock);
        CHECK(swn_cut_apply(e, lead, &nodes[1]) == -EBUSY);
        pthread_mutex_unlock(&e->lock);
    }
    CHECK(off == LARGE_BYTES && swn_slice_lend(&op, 0, off, 0) == NULL);
    op_close(&op);
    pthread_mutex_lock(&e->lock);
    CHECK(swn_cut_apply(e, lead, &nodes[1]) == 0 && cut_as(lead, &nodes[1]));
    pthread_mutex_unlock(&e->lock);
    end();
}

/* Slices that are too short for one operator are longer for that one, rather than none: a weight that comes whole is
 * read through its mapping. The plan stays as it is, and so are the slices of the next one. */
static void longer_for_one(void *arg)
{
    enum { KEPT = 44, STREAMED = LARGE_BYTES / UNIT - KEPT, MOVED = 33 };
    (void)arg;
    begin(WIDE);
    passes(12);
    struct swn_range *lead = swn_arena_find(e->arena, large[0].own);
    struct swn_plan_node node = {
        .bytes = LARGE_BYTES, .unit = UNIT, .sliced = 1, .piece = 11 * UNIT, .keep_bytes = KEPT * UNIT};
    not_at_home(lead);
    pthread_mutex_lock(&e->lock);
    e->plan_dirty = 0;
    CHECK(swn_cut_apply(e, lead, &node) == 0);
    pthread_mutex_unlock(&e->lock);
    CHECK(op_sliced(&large[0], ROW_BYTES, SIZE_MAX) > 1 && cut_as(lead, &node));
    uint64_t strays = e->res.stray_pages;
    uint64_t begun = bytes_read();
    op_right_from = 22 * UNIT;
    CHECK(op_sliced(&large[0], ROW_BYTES, SIZE_MAX) > 1 && lead->slice_unit == UNIT);
    op_right_from = 0;
    /* What stays is not given up for that. */
    CHECK(bytes_read() - begun <= (STREAMED + MOVED) * UNIT);
    CHECK(op_sliced(&large[0], ROW_BYTES, SIZE_MAX) > 1 && cut_as(lead, &node) && lead->slice_unit == UNIT);
    CHECK(e->res.stray_pages == strays);
    CHECK(tensor_right(&large[0], large[0].own));
    end();
}

/* Slices of it are in the window when a plan comes that has it whole: it is, so that it is lent by pointer. Pieces that
 * are in use then are joined when an operator is done with them. */
static void whole_again(void *arg)
{
    (void)arg;
    begin(WIDE);
    passes(12);
    struct swn_range *lead = swn_arena_find(e->arena, large[0].own);
    struct swn_plan_node nodes[] = {{.bytes = LARGE_BYTES, .unit = UNIT, .sliced = 1, .piece = LARGE_BYTES / 4},
                                    {.bytes = LARGE_BYTES, .unit = UNIT}};
    for (int used = 0; used < 2; used++) {
        not_at_home(lead);
        pthread_mutex_lock(&e->lock);
        e->plan_dirty = 0;
        CHECK(swn_cut_apply(e, lead, &nodes[0]) == 0);
        pthread_mutex_unlock(&e->lock);
        CHECK(op_sliced(&large[0], ROW_BYTES, SIZE_MAX) == 4);
        pthread_mutex_lock(&e->lock);
        struct swn_range *last = lead->rest->rest->rest;
        CHECK(last->frame || lead->frame);
        last->pins += used;
        CHECK(swn_cut_apply(e, lead, &nodes[1]) == 0 && !lead->sliced);
        CHECK(used ? lead->rest == last : cut_as(lead, &nodes[1]));
        last->pins -= used;
        pthread_mutex_unlock(&e->lock);
        op_read(&large[0]);
        CHECK(cut_as(lead, &nodes[1]) && tensor_right(&large[0], large[0].own));
    }
    end();
}

static size_t slices_of(struct tensor *t, size_t *bytes, size_t most)
{
    static const enum swn_use use = SWN_USE_WEIGHT;
    struct swn_op op;
    op_open(&op, &t, &use, 1);
    CHECK(op.args[0].sliced);
    size_t n = op_slices(&op, 0, bytes, most);
    op_close(&op);
    return n;
}

/* However much of a weight a plan keeps, it is the same slices: that they give the right bits has to be tried once, and
 * not in the moment of every change of the budget, in which there may be no room to try anything. */
static void same_whatever_stays(void *arg)
{
    (void)arg;
    static const size_t heads[] = {0, 24, 12, 48, 36};
    static size_t bytes[4096];
    begin(WIDE);
    passes(12);
    struct swn_range *lead = swn_arena_find(e->arena, large[0].own);
    not_at_home(lead);
    size_t n = 0;
    for (unsigned i = 0; i < 5; i++) {
        struct swn_plan_node node = {
            .bytes = LARGE_BYTES, .unit = UNIT, .sliced = 1, .piece = 12 * UNIT, .keep_bytes = heads[i] * UNIT};
        pthread_mutex_lock(&e->lock);
        e->plan_dirty = 0;
        CHECK(swn_cut_apply(e, lead, &node) == 0);
        pthread_mutex_unlock(&e->lock);
        size_t now = slices_of(&large[0], bytes, 4096);
        CHECK(now == (n ? n : now));
        n = now;
        CHECK(n == LARGE_BYTES / node.piece);
        for (size_t k = 0; k + 1 < n; k++)
            CHECK(bytes[k] == node.piece);
        CHECK(op_sliced(&large[0], ROW_BYTES, SIZE_MAX) == n && cut_as(lead, &node));
        CHECK(tensor_right(&large[0], large[0].own));
    }
    end();
}

/* Nothing of it is in memory, nor on its way. */
static void not_in_memory(struct swn_range *lead)
{
    int coming = 1;
    not_at_home(lead);
    for (int ms = 0; coming; ms++) {
        CHECK(ms < 10000);
        pthread_mutex_lock(&e->lock);
        coming = 0;
        for (struct swn_range *r = lead; r; r = r->rest)
            if (r->frame && r->frame->state == SWN_FRAME_FILLING)
                coming = 1;
            else if (r->frame && r->frame->kept)
                swn_policy_unkeep(e, r);
            else if (r->frame)
                swn_policy_drop_frame(e, r);
        pthread_mutex_unlock(&e->lock);
        usleep(1000);
    }
}

/* The budget has become smaller and the plan is still that of the larger one: what was to stay of a weight, and for
 * which there is no room now, comes through the window, and not page by page through its mapping. */
static void no_room_for_what_stays(void *arg)
{
    (void)arg;
    begin(WIDE);
    passes(12);
    struct swn_range *lead = swn_arena_find(e->arena, large[0].own);
    struct swn_plan_node node = {
        .bytes = LARGE_BYTES, .unit = UNIT, .sliced = 1, .piece = 12 * UNIT, .keep_bytes = 108 * UNIT};
    set(NARROW);
    passes(2);
    not_in_memory(lead);
    pthread_mutex_lock(&e->lock);
    e->plan_dirty = 0;
    CHECK(swn_cut_apply(e, lead, &node) == 0 && lead->keep && lead->len == node.keep_bytes);
    CHECK(!lead->frame && lead->len > e->config.budget_bytes);
    uint64_t strays = e->res.stray_pages, over = e->over_budget_peak;
    pthread_mutex_unlock(&e->lock);
    CHECK(op_sliced(&large[0], ROW_BYTES, SIZE_MAX) == LARGE_BYTES / node.piece);
    CHECK(e->res.stray_pages == strays && e->over_budget_peak == over);
    set(WIDE);
    pthread_mutex_lock(&e->lock);
    CHECK(swn_cut_apply(e, lead, &node) == 0);
    pthread_mutex_unlock(&e->lock);
    CHECK(op_sliced(&large[0], ROW_BYTES, SIZE_MAX) == LARGE_BYTES / node.piece);
    CHECK(e->res.stray_pages == strays);
    CHECK(tensor_right(&large[0], large[0].own));
    end();
}

/* Plans go by what operators and reads happened to take: where the disk is slow beside the operators of a test, which
 * compute nothing, one weight may come whole for good. That is no matter of budgets, so such a run says nothing. */
#define IN_SOME_CHILD(name)                                                                                            \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        int rc = 1;                                                                                                    \
        for (int i = 0; i < TRIES && rc; i++)                                                                          \
            rc = run_alone(name, NULL, 120);                                                                           \
        assert_int_equal(rc, 0);                                                                                       \
    }

IN_SOME_CHILD(given_up_in_a_small_one)
IN_SOME_CHILD(lengthened_in_a_large_one)
IN_SOME_CHILD(lengthened_before_a_plan)
IN_SOME_CHILD(lengthened_and_still_right)
IN_SOME_CHILD(cut_as_planned_when_asked)
IN_SOME_CHILD(kept_is_read_once)
IN_SOME_CHILD(plan_between_slices)
IN_SOME_CHILD(longer_for_one)
IN_SOME_CHILD(whole_again)
IN_SOME_CHILD(same_whatever_stays)
IN_SOME_CHILD(no_room_for_what_stays)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_given_up_in_a_small_one),
        cmocka_unit_test(test_lengthened_in_a_large_one),
        cmocka_unit_test(test_lengthened_before_a_plan),
        cmocka_unit_test(test_lengthened_and_still_right),
        cmocka_unit_test(test_cut_as_planned_when_asked),
        cmocka_unit_test(test_kept_is_read_once),
        cmocka_unit_test(test_plan_between_slices),
        cmocka_unit_test(test_longer_for_one),
        cmocka_unit_test(test_whole_again),
        cmocka_unit_test(test_same_whatever_stays),
        cmocka_unit_test(test_no_room_for_what_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
