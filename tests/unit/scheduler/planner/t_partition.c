/* Description: dynamic programming finds the fastest of all partitions that fit, and is quick for deep models. */
/* timed: how long a search takes */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "tests/unit/support/first_layers.h"
#include "scheduler/planner/partition.h"
#include "scheduler/planner/block_pipeline.h"
#include "tests/unit/support/random.h"
#include "tests/unit/support/slowness.h"

#define MOST 11
#define DEEP 1000
/* A sanitizer's time says nothing. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TIMED 0
#else
#define TIMED 1
#endif

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

static double most_time_ms(void)
{
    return TIMED ? here_ms(5) : 1e9;
}

struct timed_partition {
    const struct swn_part_model *model;
    uint64_t budget;
    size_t n, *first;
    struct swn_part *part;
};

static double time_partition(void *arg)
{
    struct timed_partition *t = arg;
    double begin = cpu_ms();
    assert_int_equal(swn_partition_for_budget(t->model, t->budget, 0.036, &t->n, t->first, t->part), 0);
    return cpu_ms() - begin;
}

/* The budget's partition is the best, and in time, but for what else the machine does. */
static void plan_in_time(const struct swn_part_model *m, unsigned percent, size_t *first, double most_ms)
{
    uint64_t budget = m->bytes[m->layers] / 100 * percent;
    struct swn_part part;
    struct timed_partition t = {m, budget, .first = first, .part = &part};
    double least = least_ms(time_partition, &t, most_ms);
    assert_true(part.exact && part.memory_bytes <= swn_partition_memory(budget, 0.036));
    assert_true(part.latency_s >= m->ex[m->layers] && part.latency_s >= m->in[m->layers]);
    if (getenv("SWN_SHOW"))
        print_message("%u %%: %zu blocks, %.2f of %.2f ms\n", percent, t.n, least, most_ms);
    assert_true(least < most_ms);
}

/* A new budget for a thousand layers: balanced, bound by the disk, bound by computing, and on the paper's Jetson NX,
 * where letting go of blocks takes its time. */
static void test_deep(void **state)
{
    (void)state;
    static const struct swn_coefficients devices[] = {{1e-9, 5e-6, 2e-11, 2e-7},
                                                      {1e-9, 5e-6, 5e-12, 2e-7},
                                                      {1e-9, 5e-6, 2e-10, 2e-7},
                                                      {7.1e-10, 5.25e-5, 2.9e-11, 1.4e-4}};
    struct swn_layer *layers = calloc(DEEP, sizeof *layers);
    size_t *first = calloc(DEEP, sizeof *first);
    const double most = most_time_ms();
    for (size_t i = 0; i < DEEP; i++)
        layers[i] =
            (struct swn_layer){100000 + rnd_below(2000000), 1 + rnd_below(6), (1 + rnd_below(100)) * 1000000, -1};
    for (size_t k = 0; k < sizeof devices / sizeof devices[0]; k++) {
        struct swn_part_model m;
        assert_int_equal(swn_partition_model(&m, layers, DEEP, &devices[k]), 0);
        for (unsigned percent = 10; percent <= 100; percent += TIMED ? 5 : 45)
            plan_in_time(&m, percent, first, most);
        swn_partition_model_free(&m);
    }
    free(layers);
    free(first);
}

/* The convolutions of ResNet-152 on images of 224 x 224 pixels, with their normalisations, and its classifier. */
static size_t resnet_152(struct swn_layer *layers)
{
    static const size_t blocks[4] = {3, 8, 36, 3};
    size_t n = 0, in = 64;
    layers[n++] = (struct swn_layer){4 * 64 * 3 * 49, 5, 2ull * 64 * 3 * 49 * 112 * 112, -1};
    for (size_t stage = 0; stage < 4; stage++) {
        size_t width = (size_t)64 << stage, side = (size_t)56 >> stage;
        for (size_t k = 0; k < blocks[stage]; k++) {
            size_t parts[4] = {in * width, 9 * width * width, 4 * width * width, k ? 0 : 4 * in * width};
            for (size_t i = 0; i < 4 && parts[i]; i++)
                layers[n++] = (struct swn_layer){4 * parts[i], 5, 2 * parts[i] * side * side, -1};
            in = 4 * width;
        }
    }
    layers[n++] = (struct swn_layer){4 * 2049 * 1000, 2, 2 * 2048 * 1000, -1};
    return n;
}

/* 48 blocks as wide as those of GPT-2 XL: 1,600, for 128 tokens. */
static size_t transformer_48(struct swn_layer *layers)
{
    static const uint64_t products[4] = {3, 1, 4, 4}; /* attention in and out, the layer's two */
    const uint64_t square = 1600 * 1600;
    size_t n = 0;
    layers[n++] = (struct swn_layer){4 * 50257 * 1600, 1, 0, -1};
    for (int block = 0; block < 48; block++)
        for (int i = 0; i < 4; i++)
            layers[n++] = (struct swn_layer){4 * products[i] * square, 2, 256 * products[i] * square, -1};
    return n;
}

static void test_real_shapes(void **state)
{
    (void)state;
    static const struct swn_coefficients nx = {7.1e-10, 5.25e-5, 2.9e-11, 1.4e-4};
    static struct swn_layer layers[256];
    static size_t first[256];
    const double most = most_time_ms();
    for (int k = 0; k < 2; k++) {
        struct swn_part_model m;
        size_t n = k ? transformer_48(layers) : resnet_152(layers);
        assert_int_equal(n, k ? 193 : 156);
        assert_int_equal(swn_partition_model(&m, layers, n, &nx), 0);
        if (!k)
            assert_in_range(m.bytes[n], 239000000, 241000000);
        for (unsigned percent = 20; percent <= 100; percent += 10)
            plan_in_time(&m, percent, first, most);
        swn_partition_model_free(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimum), cmocka_unit_test(test_count),       cmocka_unit_test(test_paper_counts),
        cmocka_unit_test(test_deep),    cmocka_unit_test(test_real_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
