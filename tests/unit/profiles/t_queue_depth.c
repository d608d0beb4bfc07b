/* Description: of what was measured the least in flight is chosen that reads about as fast as any. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/support/random.h"
#include "profiles/queue_depth.h"

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void expect(const struct swn_read_rate *rates, size_t n, unsigned depth, uint64_t request)
{
    const struct swn_read_rate *chosen = swn_queue_depth_choose(rates, n);
    if (!chosen || chosen->depth != depth || chosen->request_bytes != request)
        fail_msg("%u of %llu KiB instead of %u of %llu", chosen ? chosen->depth : 0,
                 chosen ? (unsigned long long)(chosen->request_bytes / KIB) : 0, depth,
                 (unsigned long long)(request / KIB));
}

/* The same in every order. */
static void expect_anyhow(struct swn_read_rate *rates, size_t n, unsigned depth, uint64_t request)
{
    for (int i = 0; i < 50; i++) {
        size_t a = rnd_below(n), b = rnd_below(n);
        struct swn_read_rate r = rates[a];
        rates[a] = rates[b];
        rates[b] = r;
        expect(rates, n, depth, request);
    }
}

static void enough_and_no_more(void **state)
{
    (void)state;
    struct swn_read_rate rates[] = {
        {2, 128 * KIB, 400}, {4, 128 * KIB, 700},  {8, 128 * KIB, 960}, {16, 128 * KIB, 990},
        {2, MIB, 965},       {32, 128 * KIB, 980}, {8, MIB, 1000},      {32, MIB, 999},
    };
    expect_anyhow(rates, COUNT(rates), 8, 128 * KIB);
}

/* What is 5 percent slower is as good, what is 6 percent slower is not. */
static void within(void **state)
{
    (void)state;
    struct swn_read_rate rates[] = {{2, MIB, 940}, {4, MIB, 950}, {8, MIB, 1000}};
    expect_anyhow(rates, COUNT(rates), 4, MIB);
    for (size_t i = 0; i < COUNT(rates); i++)
        rates[i].bytes_per_s = rates[i].depth == 4 ? 949 : rates[i].bytes_per_s;
    expect_anyhow(rates, COUNT(rates), 8, MIB);
}

static void ties(void **state)
{
    (void)state;
    struct swn_read_rate rates[] = {{8, 512 * KIB, 1000}, {4, MIB, 970}, {32, 128 * KIB, 1000}, {8, MIB, 1000}};
    expect_anyhow(rates, COUNT(rates), 4, MIB);
    struct swn_read_rate twice[] = {{4, MIB, 970}, {4, MIB, 990}, {4, MIB, 980}};
    assert_true(swn_queue_depth_choose(twice, COUNT(twice)) == &twice[1]);
}

/* Nor does it say what the others are held against. */
static void one_at_a_time(void **state)
{
    (void)state;
    struct swn_read_rate rates[] = {{1, 4 * MIB, 2000}, {2, 512 * KIB, 970}, {8, MIB, 1000}};
    expect_anyhow(rates, COUNT(rates), 2, 512 * KIB);
    assert_null(swn_queue_depth_choose(rates, 0));
    struct swn_read_rate one = {1, MIB, 1000}, none = {8, MIB, 0};
    assert_null(swn_queue_depth_choose(&one, 1));
    assert_null(swn_queue_depth_choose(&none, 1));
}

/* At 2 GB/s, 1 MiB is read before a thread has a processor again, 4 MiB are not. */
static void lasting(void **state)
{
    (void)state;
    struct swn_read_rate rates[] = {{8, 128 * KIB, 2e9}, {4, 512 * KIB, 2e9}, {8, 512 * KIB, 2e9}, {8, MIB, 2e9}};
    expect_anyhow(rates, COUNT(rates), 8, 512 * KIB);
    for (size_t i = 0; i < COUNT(rates); i++)
        rates[i].bytes_per_s = 20e9; /* none does */
    expect_anyhow(rates, COUNT(rates), 8, MIB);
}

/* A disk that needs 4 MiB in flight, seen through 2 percent of noise: never much less, never much more. */
static void noise(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {128 * KIB, 512 * KIB, MIB, 4 * MIB};
    for (int run = 0; run < 1000; run++) {
        struct swn_read_rate rates[24];
        size_t n = 0;
        for (unsigned depth = 1; depth <= 32; depth *= 2)
            for (size_t s = 0; s < COUNT(sizes); s++) {
                double full = (double)(depth * sizes[s]) / (4.0 * (double)MIB);
                rates[n++] = (struct swn_read_rate){depth, sizes[s], 2e9 * (full < 1 ? full : 1) * uniform(0.98, 1.02)};
            }
        const struct swn_read_rate *chosen = swn_queue_depth_choose(rates, n);
        assert_non_null(chosen);
        uint64_t in_flight = chosen->depth * chosen->request_bytes;
        assert_int_equal(in_flight, 4 * MIB);
    }
}

static void rate(void **state)
{
    (void)state;
    struct swn_queue_depth r = {.measured = calloc(2, sizeof *r.measured), .measured_count = 2};
    r.measured[0] = (struct swn_read_rate){2, MIB, 5};
    r.measured[1] = (struct swn_read_rate){4, MIB, 7};
    assert_true(swn_queue_depth_rate(&r, 4, MIB) == 7);
    assert_true(swn_queue_depth_rate(&r, 4, 2 * MIB) == 0);
    swn_queue_depth_free(&r);
    assert_true(!r.measured && !r.measured_count && swn_queue_depth_rate(&r, 4, MIB) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(enough_and_no_more),
        cmocka_unit_test(within),
        cmocka_unit_test(ties),
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(lasting),
        cmocka_unit_test(noise),
        cmocka_unit_test(rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
