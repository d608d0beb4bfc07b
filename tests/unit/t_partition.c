/* Description: dynamic programming finds the fastest of all partitions that fit, and is quick for deep models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "swn_first_layers.h"
#include "swn_partition.h"
#include "swn_pass.h"
#include "swn_random.h"

#define MOST 11
#define DEEP 1000

/* Judged in another way than the search does: block by block through the simulator. */
static struct swn_part judge(const struct swn_layer *layers, size_t n, const struct swn_coefficients *c,
                             const size_t *first, size_t blocks)
{
    struct swn_delay delays[MOST] = {{0}};
    uint64_t bytes[MOST] = {0};
    struct swn_part part = {0};
    for (size_t k = 0; k < blocks; k++) {
        for (size_t i = first[k]; i < (k + 1 < blocks ? first[k + 1] : n); i++) {
            struct swn_delay d = swn_delay_of(c, &layers[i]);
            bytes[k] += layers[i].bytes;
            delays[k].in += d.in;
            delays[k].ex += d.ex;
            delays[k].out += d.out;
        }
        uint64_t pair = bytes[k] + (k ? bytes[k - 1] : 0);
        part.memory_bytes = pair > part.memory_bytes ? pair : part.memory_bytes;
    }
    part.latency_s = swn_pass_latency(delays, blocks, 2, NULL);
    return part;
}

static void random_model(struct swn_layer *layers, size_t n, struct swn_coefficients *c)
{
    static const double alphas[] = {1e-9, 1e-9, 4e-9, 1e-10};
    static const double etas[] = {0, 1e-7, 1e-4, 1e-2};
    *c = (struct swn_coefficients){alphas[rnd_below(4)], rnd_below(2) ? 5e-5 : 0, 2e-11, etas[rnd_below(4)]};
    for (size_t i = 0; i < n; i++)
        layers[i] = (struct swn_layer){(1 + rnd_below(20)) * 100000 << rnd_below(4), rnd_below(7),
                                       (1 + rnd_below(100)) * 10000000, -1};
}

/* Every number of blocks and every bound that makes a difference, against all 2^(n-1) partitions. */
static void test_optimum(void **state)
{
    (void)state;
    for (int run = 0; run < 60; run++) {
        struct swn_layer layers[MOST];
        struct swn_coefficients c;
        size_t n = 1 + rnd_below(MOST), first[MOST], found[MOST];
        random_model(layers, n, &c);
        struct swn_part_model m;
        assert_int_equal(swn_partition_model(&m, layers, n, &c), 0);
        static struct swn_part all[1 << (MOST - 1)];
        static size_t counts[1 << (MOST - 1)];
        for (unsigned mask = 0; mask < 1u << (n - 1); mask++) {
            counts[mask] = first_layers(mask, n, first);
            all[mask] = judge(layers, n, &c, first, counts[mask]);
            struct swn_part same = swn_partition_judge(&m, first, counts[mask]);
            assert_int_equal(same.memory_bytes, all[mask].memory_bytes);
            assert_true(same.latency_s > all[mask].latency_s * (1 - 1e-9) &&
                        same.latency_s < all[mask].latency_s * (1 + 1e-9));
        }
        for (size_t blocks = 1; blocks <= n; blocks++)
            for (int bound = 0; bound < 12; bound++) {
                uint64_t memory = all[rnd_below(1u << (n - 1))].memory_bytes - rnd_below(2);
                double best = -1;
                for (unsigned mask = 0; mask < 1u << (n - 1); mask++)
                    if (counts[mask] == blocks && all[mask].memory_bytes <= memory &&
                        (best < 0 || all[mask].latency_s < best))
                        best = all[mask].latency_s;
                struct swn_part part;
                int rc = swn_partition_best(&m, blocks, memory, found, &part);
                assert_int_equal(rc, best < 0 ? -ENOSPC : 0);
                if (rc)
                    continue;
                struct swn_part again = judge(layers, n, &c, found, blocks);
                assert_true(part.exact && found[0] == 0);
                assert_true(again.memory_bytes == part.memory_bytes && part.memory_bytes <= memory);
                if (!(again.latency_s < best * (1 + 1e-9)))
                    fail_msg("%.9g instead of %.9g: %zu blocks of %zu", again.latency_s, best, blocks, n);
            }
        swn_partition_model_free(&m);
    }
}

static void test_count(void **state)
{
    (void)state;
    struct swn_layer layers[8];
    struct swn_coefficients c = {1e-9, 0, 0, 0};
    struct swn_part_model m;
    size_t n;
    for (int i = 0; i < 8; i++)
        layers[i] = (struct swn_layer){100, 1, 0, -1};
    assert_int_equal(swn_partition_model(&m, layers, 8, &c), 0);
    static const struct {
        uint64_t budget;
        double delta;
        size_t blocks;
        int rc;
    } cases[] = {{1600, 0, 1, 0},  {1599, 0, 2, 0}, {800, 0, 2, 0},          {799, 0, 3, 0},      {400, 0, 4, 0},
                 {400, 0.1, 5, 0}, {200, 0, 8, 0},  {200, 0.01, 0, -ENOSPC}, {199, 0, 0, -ENOSPC}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int rc = swn_partition_count(&m, cases[i].budget, cases[i].delta, &n);
        assert_int_equal(rc, cases[i].rc);
        if (!rc)
            assert_int_equal(n, cases[i].blocks);
    }
    swn_partition_model_free(&m);
    assert_int_equal(swn_partition_model(&m, layers, 0, &c), -EINVAL);
    layers[3].bytes = UINT64_MAX;
    assert_int_equal(swn_partition_model(&m, layers, 8, &c), -EINVAL);
    assert_int_equal(swn_partition_memory(1000, 0.036), 964);
}

/* SwapNet states n for ResNet-101 (170 MB): 3 blocks within 136 and 119 MB, 4 within 102 MB (sections 8.2 and 8.4). */
static void test_paper_counts(void **state)
{
    (void)state;
    enum { LAYERS = 101, MB = 1000000 };
    struct swn_layer layers[LAYERS];
    struct swn_coefficients c = {1e-9, 5.25e-5, 2.9e-11, 0};
    struct swn_part_model m;
    size_t n;
    for (int i = 0; i < LAYERS; i++)
        layers[i] = (struct swn_layer){170ull * MB / LAYERS, 6, 155000000, -1};
    assert_int_equal(swn_partition_model(&m, layers, LAYERS, &c), 0);
    assert_int_equal(swn_partition_count(&m, 136 * MB, 0, &n), 0);
    assert_int_equal(n, 3);
    assert_int_equal(swn_partition_count(&m, 119 * MB, 0, &n), 0);
    assert_int_equal(n, 3);
    assert_int_equal(swn_partition_count(&m, 102 * MB, 0, &n), 0);
    assert_int_equal(n, 4);
    swn_partition_model_free(&m);
}

/* A thousand layers: every budget, in far less than a person notices. bench/partition.c measures it; here the bound is
 * what a sanitizer on a busy machine still keeps. */
static void test_deep(void **state)
{
    (void)state;
    struct swn_layer *layers = calloc(DEEP, sizeof *layers);
    size_t *first = calloc(DEEP, sizeof *first);
    struct swn_coefficients c = {1e-9, 5e-6, 2e-11, 2e-7};
    for (size_t i = 0; i < DEEP; i++)
        layers[i] =
            (struct swn_layer){100000 + rnd_below(2000000), 1 + rnd_below(6), (1 + rnd_below(100)) * 1000000, -1};
    struct swn_part_model m;
    assert_int_equal(swn_partition_model(&m, layers, DEEP, &c), 0);
    for (uint64_t share = 2; share <= 64; share *= 2) {
        uint64_t budget = m.bytes[DEEP] / share;
        size_t n;
        struct swn_part part;
        struct timespec begin, end;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
        assert_int_equal(swn_partition_count(&m, budget, 0.036, &n), 0);
        assert_int_equal(swn_partition_best(&m, n, swn_partition_memory(budget, 0.036), first, &part), 0);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
        double s = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
        assert_true(s < 5);
        assert_true(part.exact && part.memory_bytes <= swn_partition_memory(budget, 0.036));
        assert_true(part.latency_s >= m.ex[DEEP] && part.latency_s >= m.in[DEEP]);
        if (getenv("SWN_SHOW"))
            print_message("1/%d: %zu blocks, %.2f ms\n", (int)share, n, s * 1e3);
    }
    swn_partition_model_free(&m);
    free(layers);
    free(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimum),
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_paper_counts),
        cmocka_unit_test(test_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
