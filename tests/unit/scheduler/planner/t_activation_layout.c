/* Description: tensors that live at once never overlap, and the layout is as small as it can be, or nearly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "scheduler/planner/activation_layout.h"
#include "tests/unit/support/random.h"

#define UNIT ((uint64_t)65536)
#define MIB ((uint64_t)1 << 20)
#define MOST 400

/* Independent of the code under test: walks through three passes, one allocation after the other, and looks at what is
 * alive. Returns the most bytes that were, of tensors that can have a place. */
static uint64_t check(const struct swn_activation_tensor *slots, size_t n, uint64_t extent)
{
    uint64_t peak = 0, reach = 0;
    for (size_t now = n; now < 2 * n; now++) {
        uint64_t live = 0;
        for (size_t born = 0; born <= now; born++) {
            const struct swn_activation_tensor *s = &slots[born % n];
            size_t dies = born / n * n + s->dies;
            if (s->at == SWN_NOWHERE || dies <= now)
                continue;
            uint64_t bytes = (s->bytes + UNIT - 1) / UNIT * UNIT;
            live += bytes;
            assert_int_equal(s->at % UNIT, 0);
            assert_true(s->at + bytes <= extent);
            reach = s->at + bytes > reach ? s->at + bytes : reach;
            const struct swn_activation_tensor *other = &slots[now % n];
            if (born == now || other->at == SWN_NOWHERE)
                continue;
            uint64_t size = (other->bytes + UNIT - 1) / UNIT * UNIT;
            assert_true(s->at + bytes <= other->at || other->at + size <= s->at);
        }
        peak = live > peak ? live : peak;
    }
    for (size_t i = 0; i < n; i++)
        assert_int_equal(slots[i].at != SWN_NOWHERE, slots[i].bytes && slots[i].dies > i && slots[i].dies <= i + n);
    assert_int_equal(swn_activation_layout_peak(slots, n, UNIT), peak);
    assert_true(extent >= peak);
    return peak;
}

/* Most live for a few allocations; one in `long_ones` for up to a pass and a bit. */
static void random_pass(struct swn_activation_tensor *slots, size_t n, uint64_t largest, uint64_t long_ones)
{
    for (size_t i = 0; i < n; i++)
        slots[i] = (struct swn_activation_tensor){
            .bytes = 1 + rnd_below(largest),
            .dies = (uint32_t)(i + 1 + (rnd_below(long_ones) ? rnd_below(4) : rnd_below(n + 3)))};
}

static void never_in_each_others_way(void **state)
{
    (void)state;
    static struct swn_activation_tensor slots[MOST];
    for (unsigned round = 0; round < 300; round++) {
        size_t n = 1 + rnd_below(round % 10 ? 60 : MOST);
        uint64_t extent;
        random_pass(slots, n, 40 * UNIT, 2 + rnd_below(8));
        assert_int_equal(swn_activation_layout_place(slots, n, UNIT, &extent), 0);
        check(slots, n, extent);
    }
}

static void nothing_to_lay_out(void **state)
{
    (void)state;
    uint64_t extent = 1;
    assert_int_equal(swn_activation_layout_place(NULL, 0, UNIT, &extent), 0);
    assert_int_equal(extent, 0);
    /* One that nobody has freed, and one that is still there when it is born anew. */
    struct swn_activation_tensor slots[] = {{.bytes = UNIT, .dies = 0}, {.bytes = UNIT, .dies = 4}};
    assert_int_equal(swn_activation_layout_place(slots, 2, UNIT, &extent), 0);
    assert_int_equal(extent, 0);
    check(slots, 2, extent);
}

/* Some order of the tensors, each put as low as it can be, gives the smallest extent there is. */
static uint64_t best_of_all(const struct swn_activation_tensor *slots, size_t n, size_t *order, uint64_t *at,
                            size_t placed, unsigned used, uint64_t reach)
{
    if (placed == n)
        return reach;
    uint64_t best = UINT64_MAX;
    for (size_t i = 0; i < n; i++) {
        if (used >> i & 1)
            continue;
        uint64_t size = (slots[i].bytes + UNIT - 1) / UNIT * UNIT, place = 0;
        for (int moved = 1; moved;) {
            moved = 0;
            for (size_t k = 0; k < placed; k++) {
                size_t j = order[k], first = i < j ? i : j, second = i < j ? j : i;
                uint64_t other = (slots[j].bytes + UNIT - 1) / UNIT * UNIT;
                if ((second < slots[first].dies || first + n < slots[second].dies) && place < at[j] + other &&
                    at[j] < place + size) {
                    place = at[j] + other;
                    moved = 1;
                }
            }
        }
        at[i] = place;
        order[placed] = i;
        uint64_t found =
            best_of_all(slots, n, order, at, placed + 1, used | 1u << i, place + size > reach ? place + size : reach);
        best = found < best ? found : best;
    }
    return best;
}

static void as_small_as_can_be(void **state)
{
    (void)state;
    unsigned best_ones = 0;
    enum { ROUNDS = 300, TENSORS = 7 };
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct swn_activation_tensor slots[TENSORS];
        uint64_t extent, at[TENSORS];
        size_t order[TENSORS];
        for (size_t i = 0; i < TENSORS; i++)
            slots[i] = (struct swn_activation_tensor){.bytes = (1 + rnd_below(6)) * UNIT,
                                                      .dies = (uint32_t)(i + 1 + rnd_below(round % 2 ? 4 : TENSORS))};
        assert_int_equal(swn_activation_layout_place(slots, TENSORS, UNIT, &extent), 0);
        uint64_t best = best_of_all(slots, TENSORS, order, at, 0, 0, 0);
        assert_true(extent >= best);
        assert_true(extent <= best + best / 4);
        best_ones += extent == best;
    }
    printf("smallest possible: %u of %d\n", best_ones, ROUNDS);
    assert_true(best_ones >= ROUNDS * 97 / 100);
}

/* ResNet-101 at batch 1: residual connections, in-place ReLU, the downsampling branch. In KiB, born in this order. */
static size_t resnet(struct swn_activation_tensor *slots)
{
    static const size_t blocks[] = {3, 4, 23, 3}, wide[] = {3136, 1568, 784, 392};
    size_t n = 0, x;
    slots[n++] = (struct swn_activation_tensor){.bytes = 3136 << 10, .dies = 2}; /* convolution, batch norm, pooling */
    slots[n++] = (struct swn_activation_tensor){.bytes = 3136 << 10, .dies = 3};
    slots[x = n++] = (struct swn_activation_tensor){.bytes = 784 << 10};
    for (size_t stage = 0; stage < 4; stage++)
        for (size_t block = 0; block < blocks[stage]; block++) {
            uint64_t out = wide[stage] << 10, in = out / 4;
            for (int i = 0; i < 6; i++, n++) /* three convolutions, each with its batch norm */
                slots[n] = (struct swn_activation_tensor){
                    .bytes = i < 4 ? (!block && stage && i < 2 ? 4 * in : in) : out, .dies = (uint32_t)n + 2};
            size_t y = n - 1;
            if (!block) {
                slots[x].dies = (uint32_t)n + 1;
                slots[n] = (struct swn_activation_tensor){.bytes = out, .dies = (uint32_t)n + 2};
                n++;
                slots[x = n++] = (struct swn_activation_tensor){.bytes = out};
            }
            slots[x].dies = (uint32_t)n; /* y += x, in place */
            slots[y].dies = (uint32_t)n;
            x = y;
        }
    slots[x].dies = (uint32_t)n;
    return n;
}

static void of_a_network(void **state)
{
    (void)state;
    static struct swn_activation_tensor slots[MOST];
    size_t n = resnet(slots);
    uint64_t extent;
    assert_int_equal(swn_activation_layout_place(slots, n, UNIT, &extent), 0);
    assert_int_equal(extent, check(slots, n, extent)); /* not a byte more than the fullest moment */
    assert_true(extent > 6 * MIB && extent < 14 * MIB);
}

/* Whether any tensor is there in [at, at + bytes) between the two counts. */
static int taken(const struct swn_activation_tensor *slots, size_t n, uint64_t at, uint64_t bytes, size_t from,
                 size_t until)
{
    for (size_t born = 0; born < 3 * n; born++) {
        const struct swn_activation_tensor *s = &slots[born % n];
        size_t dies = born / n * n + s->dies;
        uint64_t end = s->at + (s->bytes + UNIT - 1) / UNIT * UNIT;
        if (s->at != SWN_NOWHERE && born < until + n && dies > from + n && s->at < at + bytes && end > at)
            return 1;
    }
    return 0;
}

static void gaps_are_free_and_lowest(void **state)
{
    (void)state;
    unsigned found = 0, none = 0;
    for (unsigned round = 0; round < 2000; round++) {
        static struct swn_activation_tensor slots[MOST];
        size_t n = 2 + rnd_below(40);
        uint64_t extent;
        random_pass(slots, n, 12 * UNIT, 3);
        assert_int_equal(swn_activation_layout_place(slots, n, UNIT, &extent), 0);
        uint32_t from = (uint32_t)rnd_below(n + 1), until = from + (uint32_t)rnd_below(n);
        uint64_t least = rnd_below(4) * UNIT, bytes = (1 + rnd_below(10)) * UNIT, lowest = SWN_NOWHERE;
        for (uint64_t at = least; at + bytes <= extent && lowest == SWN_NOWHERE; at += UNIT)
            if (!taken(slots, n, at, bytes, from, until))
                lowest = at;
        assert_int_equal(swn_activation_layout_gap(slots, n, UNIT, extent, from, until, least, bytes), lowest);
        *(lowest == SWN_NOWHERE ? &none : &found) += 1;
    }
    assert_true(found > 200 && none > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_in_each_others_way), cmocka_unit_test(nothing_to_lay_out),
        cmocka_unit_test(as_small_as_can_be),       cmocka_unit_test(of_a_network),
        cmocka_unit_test(gaps_are_free_and_lowest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
