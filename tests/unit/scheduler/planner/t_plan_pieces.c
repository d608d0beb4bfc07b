/* Description: what a plan keeps of a weight in slices is spread evenly, and grows without moving. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scheduler/planner/plan_pieces.h"

#define PIECE ((uint64_t)2 << 20)
#define MOST 400
#define STEP (PIECE / 8)
#define GROUP 4 /* slices of 8 MiB */

/* One whose last slice is `more` bytes longer than the others. */
static struct swn_plan_weight slices(uint64_t count, uint64_t kept, uint64_t more)
{
    return (struct swn_plan_weight){
        .bytes = count * PIECE + more, .sliced = 1, .piece = PIECE, .keep_bytes = kept * PIECE};
}

static uint64_t slice_end(const struct swn_plan_weight *weight, uint64_t i)
{
    return (i + 2) * PIECE > weight->bytes ? weight->bytes : (i + 1) * PIECE;
}

static int keeps(const struct swn_plan_weight *weight, uint64_t i)
{
    return swn_plan_keeps(weight, i * PIECE, slice_end(weight, i));
}

static void exactly_as_much_as_planned(void **state)
{
    (void)state;
    for (uint64_t count = 1; count <= MOST; count += 1 + count / 12)
        for (uint64_t kept = 0; kept < count; kept += 1 + count / 32) {
            struct swn_plan_weight weight = slices(count, kept, count % 3 * PIECE / 3);
            uint64_t found = 0;
            for (uint64_t i = 0; i < count; i++)
                found += (uint64_t)keeps(&weight, i);
            assert_int_equal(found, kept);
            assert_false(keeps(&weight, count - 1)); /* it has another length */
        }
}

static void more_of_it_includes_less(void **state)
{
    (void)state;
    for (uint64_t count = 1; count <= MOST; count += 1 + count / 12)
        for (uint64_t kept = 1; kept < count; kept += 1 + count / 32) {
            struct swn_plan_weight more = slices(count, kept, 0), less = slices(count, kept - 1, 0);
            for (uint64_t i = 0; i < count; i++)
                assert_true(keeps(&more, i) || !keeps(&less, i));
        }
}

/* Among any groups of slices in a row there are about as many kept ones as among all; of very many slices, which would
 * take as many mappings, groups are larger. */
static void spread_evenly(void **state)
{
    (void)state;
    for (uint64_t count = 2; count <= MOST; count += 1 + count / 12)
        for (uint64_t kept = 1; kept < count; kept += 1 + count / 32) {
            struct swn_plan_weight weight = slices(count, kept, 0);
            uint64_t run = 0, longest = 0, gap = 0, widest = 0, turns = 0, group = GROUP * (1 + (count > 64 * GROUP));
            for (uint64_t i = 0; i < count; i++) {
                run = keeps(&weight, i) ? run + 1 : 0;
                gap = keeps(&weight, i) ? 0 : gap + 1;
                turns += gap == 1;
                longest = run > longest ? run : longest;
                widest = gap > widest ? gap : widest;
            }
            /* In perfect turns it were kept / streamed, rounded up, and a group that is cut in two. */
            uint64_t streamed = count - kept;
            assert_true(longest <= 2 * group * ((kept + streamed - 1) / streamed + 1));
            assert_true(widest <= 2 * group * ((streamed + kept - 1) / kept + 1));
            assert_true(turns <= 34);
            if (count > 16 * GROUP && kept > count / 3 && streamed > count / 3)
                assert_true(longest <= count / 4 && widest <= count / 4);
        }
}

/* Slices of twice the length keep the same bytes, those of other lengths most of them: of other plans, or of an
 * operator that alone has them. */
static void the_same_bytes_in_longer_slices(void **state)
{
    (void)state;
    for (uint64_t count = 40; count <= 250; count += 21)
        for (uint64_t kept = count / 4; kept < count; kept += count / 8)
            for (uint64_t longer = PIECE + (1 << 20); longer <= 4 * PIECE; longer += 1 << 20) {
                struct swn_plan_weight weight = slices(count, kept, PIECE / 2), other = weight;
                uint64_t both = 0;
                other.piece = longer;
                for (uint64_t at = 0; at < weight.bytes; at += PIECE / 2)
                    both += swn_plan_keeps(&weight, at, at + 1) && swn_plan_keeps(&other, at, at + 1) ? PIECE / 2 : 0;
                assert_true(both <= kept * PIECE);
                assert_true(longer == 2 * PIECE ? both >= kept * PIECE * 9 / 10 : 2 * both + longer >= kept * PIECE);
            }
}

static void some_of_it_streams(void **state)
{
    (void)state;
    /* As where twice as long slices are wanted of one of which all but one is kept. */
    struct swn_plan_weight weight = slices(9, 8, 0);
    weight.piece = 2 * PIECE;
    assert_false(swn_plan_keeps(&weight, 0, weight.bytes));
    assert_true(swn_plan_keeps(&weight, 0, 6 * PIECE) && swn_plan_cuts(&weight, 6 * PIECE));
    weight = slices(1, 1, 0);
    assert_false(swn_plan_keeps(&weight, 0, weight.bytes));
}

/* One that was cut before there was a plan for it. */
static void no_slices_yet(void **state)
{
    (void)state;
    struct swn_plan_weight weight = {.bytes = 10 * PIECE, .sliced = 1};
    for (uint64_t at = 0; at <= weight.bytes; at += PIECE)
        assert_false(swn_plan_cuts(&weight, at));
    assert_int_equal(swn_plan_next_cut(&weight, 0), weight.bytes);
    assert_false(swn_plan_keeps(&weight, 0, PIECE));
}

static void cut_where_something_streams(void **state)
{
    (void)state;
    for (uint64_t count = 1; count <= 40; count++)
        for (uint64_t kept = 0; kept < count; kept++) {
            struct swn_plan_weight weight = slices(count, kept, count % 2 * (PIECE - 4));
            for (uint64_t at = 0; at <= weight.bytes + PIECE; at += PIECE / 4) {
                uint64_t i = at / PIECE;
                int boundary = at && at % PIECE == 0 && i < count;
                assert_int_equal(swn_plan_cuts(&weight, at), boundary && !(keeps(&weight, i - 1) && keeps(&weight, i)));
            }
            assert_false(swn_plan_keeps(&weight, 0, weight.bytes));
        }
}

/* Of whole weights it is the head, and then pieces of the tail. */
static void heads(void **state)
{
    (void)state;
    struct swn_plan_weight weight = {.bytes = 10 * PIECE + 1, .keep_bytes = 4 * PIECE};
    for (uint64_t at = 0; at <= weight.bytes; at += PIECE)
        assert_int_equal(swn_plan_cuts(&weight, at), at == weight.keep_bytes);
    assert_true(swn_plan_keeps(&weight, 0, 4 * PIECE) && swn_plan_keeps(&weight, PIECE, 2 * PIECE));
    assert_false(swn_plan_keeps(&weight, 3 * PIECE, 4 * PIECE + 1));
    weight.piece = 3 * PIECE;
    for (uint64_t at = 0; at <= weight.bytes; at += PIECE)
        assert_int_equal(swn_plan_cuts(&weight, at), at == 4 * PIECE || at == 7 * PIECE);
    weight.keep = 1;
    assert_false(swn_plan_cuts(&weight, 4 * PIECE));
    assert_true(swn_plan_keeps(&weight, 0, weight.bytes + 1));
}

static void check_walk(const struct swn_plan_weight *weight)
{
    uint64_t at = 0;
    do {
        uint64_t next = at - at % STEP + STEP;
        while (next < weight->bytes && !swn_plan_cuts(weight, next))
            next += STEP;
        assert_int_equal(swn_plan_next_cut(weight, at), next < weight->bytes ? next : weight->bytes);
        at = next;
    } while (at < weight->bytes);
}

static void next_cut_leaves_none_out(void **state)
{
    (void)state;
    for (uint64_t count = 1; count <= 12; count++)
        for (uint64_t kept = 0; kept < count; kept++) {
            struct swn_plan_weight weight = slices(count, kept, count % 3 * PIECE / 3);
            check_walk(&weight);
            weight.sliced = 0;
            check_walk(&weight);
            weight.piece = 0;
            check_walk(&weight);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exactly_as_much_as_planned),
        cmocka_unit_test(more_of_it_includes_less),
        cmocka_unit_test(spread_evenly),
        cmocka_unit_test(the_same_bytes_in_longer_slices),
        cmocka_unit_test(some_of_it_streams),
        cmocka_unit_test(no_slices_yet),
        cmocka_unit_test(cut_where_something_streams),
        cmocka_unit_test(heads),
        cmocka_unit_test(next_cut_leaves_none_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
