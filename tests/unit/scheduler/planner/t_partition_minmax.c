/* Description: partition points are the best there are: compared with all partitions of small models. */
/* wraps: malloc calloc realloc */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "scheduler/planner/partition.h"
#include "scheduler/planner/partition_minmax.h"
#include "tests/unit/support/first_layers.h"

#define MOST 11

/* No allocation may be larger. */
static size_t most_bytes = SIZE_MAX;
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *at, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *at, size_t size);

void *__wrap_malloc(size_t size)
{
    return size > most_bytes ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return n * size > most_bytes ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *at, size_t size)
{
    return size > most_bytes ? NULL : __real_realloc(at, size);
}

static void all_partitions(const uint64_t *bytes, size_t layers, uint64_t best[MOST + 1])
{
    size_t first[MOST];
    memset(best, 0xff, (MOST + 1) * sizeof *best);
    for (unsigned mask = 0; mask < 1u << (layers - 1); mask++) {
        size_t blocks = first_layers(mask, layers, first);
        uint64_t pair = swn_partition_minmax_largest_pair(bytes, layers, first, blocks);
        if (pair < best[blocks])
            best[blocks] = pair;
    }
}

static void check_partition(const size_t *first, size_t blocks, size_t layers)
{
    assert_int_equal(first[0], 0);
    for (size_t b = 1; b < blocks; b++)
        assert_true(first[b] > first[b - 1] && first[b] < layers);
}

static void compare(const uint64_t *bytes, size_t layers)
{
    uint64_t best[MOST + 1], total = 0;
    size_t first[MOST], blocks;
    all_partitions(bytes, layers, best);
    for (size_t n = 1; n <= layers; n++) {
        assert_int_equal(swn_partition_minmax(bytes, layers, n, first), 0);
        check_partition(first, n, layers);
        assert_int_equal(swn_partition_minmax_largest_pair(bytes, layers, first, n), best[n]);
        total += bytes[n - 1];
    }
    assert_int_equal(best[layers], swn_partition_minmax_budget(bytes, layers));
    for (uint64_t budget = 0; budget <= 2 * total + 1; budget += 1 + total / 50) {
        int rc = swn_partition_minmax_for_budget(bytes, layers, budget, &blocks, first);
        if (budget < best[layers]) {
            assert_int_equal(rc, -ENOSPC);
            continue;
        }
        assert_int_equal(rc, 0);
        check_partition(first, blocks, layers);
        assert_true(best[blocks] <= budget);
        assert_int_equal(swn_partition_minmax_largest_pair(bytes, layers, first, blocks), best[blocks]);
        size_t wanted = swn_partition_minmax_count(total, budget, layers);
        assert_true(blocks == wanted || (blocks > wanted && best[blocks - 1] > budget));
    }
}

static void against_all(void **state)
{
    (void)state;
    uint64_t bytes[MOST];
    srand(1);
    for (int i = 0; i < 3000; i++) {
        size_t layers = 1 + (size_t)rand() % (i < 2500 ? 7 : MOST);
        int kind = rand() % 4;
        for (size_t k = 0; k < layers; k++)
            bytes[k] = kind == 0   ? (uint64_t)(rand() % 4)
                       : kind == 1 ? (uint64_t)(rand() % 1000)
                       : kind == 2 ? (uint64_t)rand() << 20
                                   : (rand() % 5 ? 1 : 500);
        compare(bytes, layers);
    }
}

static void counts(void **state)
{
    (void)state;
    /* SwapNet: ResNet-101 of 170 MB in 102 MB makes four blocks, in 136 MB three. */
    assert_int_equal(swn_partition_minmax_count(170, 102, 100), 4);
    assert_int_equal(swn_partition_minmax_count(170, 136, 100), 3);
    assert_int_equal(swn_partition_minmax_count(170, 340, 100), 1);
    assert_int_equal(swn_partition_minmax_count(170, 1, 100), 100);
    assert_int_equal(swn_partition_minmax_count(170, 0, 100), 100);
    assert_int_equal(swn_partition_minmax_count(0, 5, 100), 1);
}

static void refusals(void **state)
{
    (void)state;
    uint64_t bytes[2] = {1, 2};
    size_t first[2], blocks;
    assert_int_equal(swn_partition_minmax(bytes, 2, 0, first), -EINVAL);
    assert_int_equal(swn_partition_minmax(bytes, 2, 3, first), -EINVAL);
    assert_int_equal(swn_partition_minmax(bytes, 0, 1, first), -EINVAL);
    assert_int_equal(swn_partition_minmax_for_budget(bytes, 0, 100, &blocks, first), -EINVAL);
    assert_int_equal(swn_partition_minmax_for_budget(bytes, 2, 2, &blocks, first), -ENOSPC);
    assert_int_equal(swn_partition_minmax_budget(bytes, 0), 0);
}

/* A thousand layers must not take a person's patience: within the test's time even under sanitizers. */
static void many_layers(void **state)
{
    (void)state;
    enum { LAYERS = 1000 };
    uint64_t *bytes = malloc(LAYERS * sizeof *bytes), total = 0;
    size_t *first = malloc(LAYERS * sizeof *first), blocks;
    for (size_t i = 0; i < LAYERS; i++)
        total += bytes[i] = (uint64_t)(i % 7 ? 4 << 20 : 64 << 10) + i;
    assert_int_equal(swn_partition_minmax_for_budget(bytes, LAYERS, total / 4, &blocks, first), 0);
    assert_true(blocks >= 8 && blocks <= 9);
    assert_true(swn_partition_minmax_largest_pair(bytes, LAYERS, first, blocks) <= total / 4);
    free(bytes);
    free(first);
}

/* A mixture of experts: cut in groups, as the cells of all its layers would take gigabytes. */
static void very_many_layers(void **state)
{
    (void)state;
    enum { LAYERS = 12000, EMBEDDING = 500 };
    static uint64_t bytes[LAYERS];
    static struct swn_layer layers[LAYERS];
    static size_t first[LAYERS];
    struct swn_part_model m;
    struct swn_part part;
    size_t blocks, fewest;
    uint64_t total = 0;
    for (size_t i = 0; i < LAYERS; i++) {
        total += bytes[i] = i ? 1 + i % 3 : EMBEDDING;
        layers[i] = (struct swn_layer){bytes[i] << 20, 1, 1 + i % 2, 1e-6};
    }
    most_bytes = (size_t)130 << 20;
    assert_int_equal(swn_partition_minmax(bytes, LAYERS, 4, first), 0);
    assert_true(swn_partition_minmax_largest_pair(bytes, LAYERS, first, 4) <= total / 2 + total / 500);
    for (unsigned part_of = 2; part_of < 30; part_of *= 6) {
        assert_int_equal(swn_partition_minmax_for_budget(bytes, LAYERS, total / part_of, &blocks, first), 0);
        check_partition(first, blocks, LAYERS);
        assert_true(swn_partition_minmax_largest_pair(bytes, LAYERS, first, blocks) <= total / part_of);
        assert_true(blocks <= 2 * part_of + 3);
        assert_int_equal(swn_partition_minmax_fewest(bytes, LAYERS, total / part_of, &fewest), 0);
        assert_true(fewest <= blocks);
    }
    /* More blocks than groups, and a budget that only single layers may fit. */
    assert_int_equal(swn_partition_minmax(bytes, LAYERS, LAYERS / 4, first), 0);
    check_partition(first, LAYERS / 4, LAYERS);
    for (uint64_t budget = EMBEDDING + 2; budget < EMBEDDING + 100; budget += 30) {
        assert_int_equal(swn_partition_minmax_for_budget(bytes, LAYERS, budget, &blocks, first), 0);
        assert_true(swn_partition_minmax_largest_pair(bytes, LAYERS, first, blocks) <= budget);
    }
    /* With times, too. */
    assert_int_equal(swn_partition_model(&m, layers, LAYERS, &(struct swn_coefficients){.alpha = 1e-9, .beta = 1e-5}),
                     0);
    for (unsigned part_of = 2; part_of < 30; part_of *= 6) {
        assert_int_equal(swn_partition_for_budget(&m, m.bytes[LAYERS] / part_of, 0, &blocks, first, &part), 0);
        check_partition(first, blocks, LAYERS);
        assert_true(part.memory_bytes <= m.bytes[LAYERS] / part_of && (part_of > 2 || !part.exact));
        assert_true(part.latency_s < (m.in[LAYERS] + m.ex[LAYERS]) * 1.001);
    }
    most_bytes = SIZE_MAX;
    swn_partition_model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_all), cmocka_unit_test(counts),           cmocka_unit_test(refusals),
        cmocka_unit_test(many_layers), cmocka_unit_test(very_many_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
