/* Description: the time of a pass over blocks is what a step-by-step simulation and sums by hand say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "scheduler/planner/block_pipeline.h"
#include "tests/unit/support/random.h"

#define MOST 12

static void assert_time(double value, double wanted)
{
    if (fabs(value - wanted) > 1e-9 * (1 + wanted))
        fail_msg("%.12g instead of %.12g", value, wanted);
}

static void test_by_hand(void **state)
{
    (void)state;
    double done[4];
    /* computing hides everything but the first read */
    struct swn_delay slow[] = {{1, 10, 1}, {2, 10, 1}, {3, 10, 1}};
    assert_time(swn_pass_latency(slow, 3, 2, done), 31);
    assert_time(done[0], 11);
    assert_time(done[1], 21);
    /* reading hides the computing: 5 + 5 is read without a gap, the third when block 0 is done and gone */
    struct swn_delay fast[] = {{5, 1, 0.5}, {5, 1, 0.5}, {5, 1, 0.5}};
    assert_time(swn_pass_latency(fast, 3, 2, NULL), 5 + 5 + 0.5 + 5 + 1);
    /* one block in memory at a time: nothing overlaps */
    assert_time(swn_pass_latency(fast, 3, 1, NULL), 3 * 6 + 2 * 0.5);
    /* all of them: the disk never waits */
    assert_time(swn_pass_latency(fast, 3, 3, NULL), 16);
    assert_time(swn_pass_latency(fast, 1, 2, NULL), 6);
    assert_time(swn_pass_latency(fast, 0, 2, NULL), 0);
}

static void test_eq4(void **state)
{
    (void)state;
    /* t_ov(2) = (1 + 9) - (4 + 0) = 6, t_ov(3) = (1 + 2) - (5 + 6) < 0, t_ov(4) = (2 + 0) - (1 + 0) = 1 */
    struct swn_delay blocks[] = {{3, 2, 1}, {3, 4, 1}, {9, 5, 2}, {2, 1, 1}};
    assert_time(swn_pass_eq4(blocks, 4), 7);
    assert_time(swn_pass_eq4(blocks, 1), 0);
}

/* Two workers that take one step after the other, a tick at a time: times are whole numbers of ticks. */
struct worker {
    size_t block;
    unsigned left;
    int busy;
};

static unsigned simulate(const struct swn_delay *blocks, size_t n, size_t m)
{
    unsigned released[MOST] = {0}, loaded[MOST] = {0}, computed[MOST] = {0}, now = 0;
    struct worker disk = {0}, processor = {0};
    size_t next_load = 0, next_release = 0, next_compute = 0;
    int releasing = 0;
    for (;; now++) {
        for (int again = 1; again;) {
            again = 0;
            if (disk.busy && !disk.left) {
                (releasing ? released : loaded)[disk.block] = 1;
                disk.busy = 0;
                again = 1;
            }
            if (processor.busy && !processor.left) {
                computed[processor.block] = 1;
                processor.busy = 0;
                again = 1;
            }
            if (!disk.busy && next_load < n) {
                if (next_load < m + next_release) { /* there is room: fewer than m blocks are in memory */
                    disk = (struct worker){next_load, (unsigned)blocks[next_load].in, 1};
                    next_load++;
                    releasing = 0;
                    again = 1;
                } else if (computed[next_release]) {
                    disk = (struct worker){next_release, (unsigned)blocks[next_release].out, 1};
                    next_release++;
                    releasing = 1;
                    again = 1;
                }
            }
            if (!processor.busy && next_compute < n && loaded[next_compute]) {
                processor = (struct worker){next_compute, (unsigned)blocks[next_compute].ex, 1};
                next_compute++;
                again = 1;
            }
        }
        if (computed[n - 1])
            return now;
        disk.left -= disk.busy && disk.left;
        processor.left -= processor.busy && processor.left;
    }
}

static void test_simulated(void **state)
{
    (void)state;
    for (int run = 0; run < 3000; run++) {
        struct swn_delay blocks[MOST];
        size_t n = 1 + rnd_below(MOST), m = 1 + rnd_below(4);
        uint64_t in = 1 + rnd_below(30), ex = 1 + rnd_below(30), out = 1 + rnd_below(10);
        for (size_t i = 0; i < n; i++)
            blocks[i] = (struct swn_delay){(double)rnd_below(in), (double)rnd_below(ex), (double)rnd_below(out)};
        assert_time(swn_pass_latency(blocks, n, m, NULL), simulate(blocks, n, m));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_eq4),
        cmocka_unit_test(test_simulated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
