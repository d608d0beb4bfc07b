/* Liveness, cuts and layer groups of tapes, against their definitions spelled out on random tapes. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "skeleton/tape/tape.h"

#define STEPS 24
#define VALUES 64

/* A tape as tables, beside the one under test. */
struct table {
    struct swn_tape *tape;
    enum swn_tape_kind kind[VALUES];
    int made[VALUES], read[VALUES][STEPS], result[VALUES];
    size_t values, steps, inputs;
    uint64_t weight_bytes[STEPS];
};

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static uint32_t value(struct table *t, enum swn_tape_kind kind, int made)
{
    int64_t v = swn_tape_value(t->tape, kind);

    assert_int_equal(v, (int64_t)t->values);
    t->kind[v] = kind;
    t->made[v] = made;
    t->values++;
    return (uint32_t)v;
}

/* Steps that read up to three values and make one or two. */
static void make(struct table *t, uint32_t seed)
{
    uint32_t r = seed;

    memset(t, 0, sizeof *t);
    t->tape = swn_tape_new();
    assert_non_null(t->tape);
    t->inputs = 1 + next(&r) % 3;
    for (size_t i = 0; i < t->inputs; i++)
        value(t, i == 0 ? SWN_TAPE_TENSOR : next(&r) % 3, -1);
    t->steps = 1 + next(&r) % STEPS;
    for (size_t s = 0; s < t->steps; s++) {
        uint32_t in[3], out[2];
        size_t ins = next(&r) % 4, outs = 1 + next(&r) % 2;
        for (size_t i = 0; i < ins; i++) {
            /* Mostly what was made last, so that there are cuts. */
            in[i] = next(&r) % 3 ? (uint32_t)t->values - 1 : next(&r) % (uint32_t)t->values;
            t->read[in[i]][s] = 1;
        }
        for (size_t i = 0; i < outs; i++)
            out[i] = value(t, next(&r) % 4 ? SWN_TAPE_TENSOR : next(&r) % 3, (int)s);
        t->weight_bytes[s] = next(&r) % 5 ? 0 : next(&r) % 1000;
        assert_int_equal(swn_tape_step(t->tape, in, ins, out, outs, t->weight_bytes[s]), (int64_t)s);
    }
    for (size_t n = 1 + next(&r) % 2; n > 0; n--) {
        uint32_t v = (uint32_t)t->values - 1 - next(&r) % 2;
        t->result[v] = 1;
        assert_int_equal(swn_tape_result(t->tape, v), 0);
    }
    assert_int_equal(swn_tape_finish(t->tape), 0);
}

/* Whether anything from step `s` on needs value v, or it is a result. */
static int needed_from(const struct table *t, size_t v, size_t s)
{
    for (; s < t->steps; s++)
        if (t->read[v][s])
            return 1;
    return t->result[v];
}

static void check_liveness(const struct table *t)
{
    int gone[VALUES] = {0};
    const uint32_t *dead;
    size_t count, cuts = 0;

    dead = swn_tape_unread(t->tape, &count);
    for (size_t i = 0; i < count; i++)
        gone[dead[i]] = 1;
    for (size_t v = 0; v < t->values; v++)
        assert_int_equal(gone[v], t->made[v] < 0 && !needed_from(t, v, 0));
    for (size_t s = 0; s < t->steps; s++) {
        size_t tensors = 0, others = 0;
        for (size_t v = 0; v < t->values; v++)
            if (t->made[v] < (int)s && needed_from(t, v, s)) {
                assert_false(gone[v]);
                tensors += t->kind[v] == SWN_TAPE_TENSOR;
                others += t->kind[v] == SWN_TAPE_OTHER;
            }
        assert_int_equal(swn_tape_is_cut(t->tape, s), s > 0 && tensors == 1 && others == 0);
        cuts += (size_t)swn_tape_is_cut(t->tape, s);
        dead = swn_tape_dead_after(t->tape, s, &count);
        for (size_t i = 0; i < count; i++) {
            assert_false(gone[dead[i]]);
            gone[dead[i]] = 1;
        }
        for (size_t v = 0; v < t->values; v++)
            assert_int_equal(gone[v], t->made[v] <= (int)s && !needed_from(t, v, s + 1));
    }
    assert_int_equal(swn_tape_cuts(t->tape), cuts);
    assert_false(swn_tape_is_cut(t->tape, t->steps));
}

static void test_liveness_and_cuts_of_random_tapes(void **state)
{
    struct table t;
    size_t cuts = 0;

    (void)state;
    for (uint32_t seed = 0; seed < 2000; seed++) {
        make(&t, seed);
        check_liveness(&t);
        cuts += swn_tape_cuts(t.tape);
        swn_tape_free(t.tape);
    }
    assert_true(cuts > 1000);
}

/* The least possible cost of the most expensive of at most `most` groups from step `from` on. */
static uint64_t best(const struct table *t, const uint64_t *cost, size_t from, size_t most)
{
    uint64_t least = UINT64_MAX, group = 0;

    for (size_t s = from; s < t->steps; s++) {
        group += cost[s];
        if (s + 1 == t->steps)
            return group < least ? group : least;
        if (most > 1 && swn_tape_is_cut(t->tape, s + 1)) {
            uint64_t rest = best(t, cost, s + 1, most - 1);
            uint64_t whole = rest > group ? rest : group;
            least = whole < least ? whole : least;
        }
    }
    return least;
}

static void check_groups(const struct table *t, const uint64_t *cost, const uint64_t *asked, size_t most)
{
    size_t first[STEPS + 1], groups = swn_tape_groups(t->tape, asked, most, first);
    uint64_t worst = 0;

    assert_in_range(groups, 1, most);
    assert_int_equal(first[0], 0);
    first[groups] = t->steps;
    for (size_t g = 0; g < groups; g++) {
        uint64_t group = 0;
        assert_true(first[g] < first[g + 1]);
        assert_true(g == 0 || swn_tape_is_cut(t->tape, first[g]));
        for (size_t s = first[g]; s < first[g + 1]; s++)
            group += cost[s];
        worst = group > worst ? group : worst;
    }
    assert_int_equal(worst, best(t, cost, 0, most));
}

/* Each part of the tape between two cuts is divided as a tape of its own would be. */
static void check_parts(const struct table *t, const uint64_t *cost)
{
    for (size_t begin = 0; begin < t->steps; begin++)
        for (size_t end = begin + 1; end <= t->steps; end++) {
            size_t first[STEPS + 1], groups;
            uint64_t worst = 0, least = 0, sum = 0, weights = 0;
            if ((begin && !swn_tape_is_cut(t->tape, begin)) || (end < t->steps && !swn_tape_is_cut(t->tape, end)))
                continue;
            groups = swn_tape_groups_between(t->tape, cost, begin, end, 2, first);
            assert_in_range(groups, 1, 2);
            assert_int_equal(first[0], begin);
            first[groups] = end;
            for (size_t g = 0; g < groups; g++) {
                uint64_t group = 0;
                assert_true(first[g] < first[g + 1] && (!g || swn_tape_is_cut(t->tape, first[g])));
                for (size_t s = first[g]; s < first[g + 1]; s++)
                    group += cost[s];
                worst = group > worst ? group : worst;
            }
            for (size_t s = begin; s < end; s++) {
                sum += cost[s];
                weights += t->weight_bytes[s];
            }
            least = sum;
            for (size_t cut = begin + 1, before = 0; cut < end; cut++) {
                before += cost[cut - 1];
                uint64_t larger = before > sum - before ? before : sum - before;
                least = swn_tape_is_cut(t->tape, cut) && larger < least ? larger : least;
            }
            assert_int_equal(worst, least);
            assert_int_equal(swn_tape_weight_bytes(t->tape, begin, end), weights);
        }
}

static void test_groups_are_as_even_as_the_cuts_let_them_be(void **state)
{
    struct table t;
    uint64_t cost[STEPS];
    size_t first[STEPS];

    (void)state;
    for (uint32_t seed = 0; seed < 500; seed++) {
        uint32_t r = seed;
        make(&t, seed);
        for (size_t s = 0; s < t.steps; s++)
            cost[s] = next(&r) % 3 ? next(&r) % 100 : 0;
        for (size_t most = 1; most <= 4; most++)
            check_groups(&t, cost, cost, most);
        for (size_t s = 0; s < t.steps; s++)
            cost[s] = t.weight_bytes[s] + 1;
        check_groups(&t, cost, NULL, 3);
        check_parts(&t, cost);
        assert_int_equal(swn_tape_groups(t.tape, cost, STEPS, first), swn_tape_cuts(t.tape) + 1);
        swn_tape_free(t.tape);
    }
}

static void test_costs_that_overflow_make_groups_all_the_same(void **state)
{
    struct table t;
    uint64_t cost[STEPS];
    size_t first[4];

    (void)state;
    for (size_t s = 0; s < STEPS; s++)
        cost[s] = UINT64_MAX / 2;
    for (uint32_t seed = 0; seed < 100; seed++) {
        make(&t, seed);
        assert_in_range(swn_tape_groups(t.tape, cost, 4, first), 1, 4);
        swn_tape_free(t.tape);
    }
}

static void test_what_makes_no_sense_is_refused(void **state)
{
    struct swn_tape *t = swn_tape_new();
    uint32_t a = (uint32_t)swn_tape_value(t, SWN_TAPE_TENSOR), b = (uint32_t)swn_tape_value(t, SWN_TAPE_TENSOR);
    uint32_t none = 7;
    size_t first[1];

    (void)state;
    assert_int_equal(swn_tape_groups(t, NULL, 1, first), 0);
    assert_int_equal(swn_tape_step(t, &none, 1, &b, 1, 0), -EINVAL);
    assert_int_equal(swn_tape_step(t, &a, 1, &none, 1, 0), -EINVAL);
    assert_int_equal(swn_tape_step(t, &a, 1, &b, 1, 0), 0);
    assert_int_equal(swn_tape_step(t, &a, 1, &b, 1, 0), -EINVAL); /* made twice */
    assert_int_equal(swn_tape_step(t, &b, 1, &a, 1, 0), -EINVAL); /* made after it was read */
    assert_int_equal(swn_tape_result(t, none), -EINVAL);
    assert_int_equal(swn_tape_result(t, b), 0);
    assert_int_equal(swn_tape_finish(t), 0);
    assert_int_equal(swn_tape_value(t, SWN_TAPE_TENSOR), -EINVAL);
    assert_int_equal(swn_tape_step(t, &b, 1, NULL, 0, 0), -EINVAL);
    swn_tape_free(t);
    swn_tape_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_liveness_and_cuts_of_random_tapes),
        cmocka_unit_test(test_groups_are_as_even_as_the_cuts_let_them_be),
        cmocka_unit_test(test_costs_that_overflow_make_groups_all_the_same),
        cmocka_unit_test(test_what_makes_no_sense_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
