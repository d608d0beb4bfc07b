/* Description: what reads say of a disk: queued ones its speed, those that nothing was before its answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "profiles/disk_speed.h"
#include "tests/unit/support/random.h"

#define SPEED 2.0 /* bytes per ns */
#define READ 120e3
#define WAIT 300e3

static void assert_near(double value, double wanted, double tolerance)
{
    if (fabs(value - wanted) > tolerance * wanted)
        fail_msg("%g instead of %g", value, wanted);
}

/* A disk that serves all reads of a burst at once: they come one right behind the other, at the end of it. Bursts of so
 * many reads of such sizes; between them nothing is under way for a moment. */
static void bursts(struct swn_disk_speed *p, int count, int reads, double least, double most, double speed)
{
    double now = p->done_ns + 1e6;
    for (int i = 0; i < count; i++) {
        double bytes[64], sum = 0, took;
        for (int k = 0; k < reads; k++)
            sum += bytes[k] = uniform(least, most);
        took = (WAIT + reads * READ + sum / speed) * uniform(0.9, 1.1);
        for (int k = 0; k < reads; k++) /* the more are under way, the later is the first */
            swn_disk_speed_add(p, bytes[k], now, now + took * (reads > SWN_DISK_SPEED_BATCH ? (k + 1.0) / reads : 1));
        now += took + 1e6;
    }
}

/* Reads without a pause: the next but one is asked for when one is done. */
static void stream(struct swn_disk_speed *p, int count, double least, double most, double speed)
{
    double now = p->done_ns, before = now - 1;
    for (int i = 0; i < count; i++) {
        double bytes = uniform(least, most), begun = before;
        before = now;
        now += (bytes / speed + READ) * uniform(0.9, 1.1);
        swn_disk_speed_add(p, bytes, begun, now);
    }
}

static void test_told_apart(void **state)
{
    (void)state;
    struct swn_disk_speed p = {0};
    struct swn_disk_model d = {7, 8, 9, 0};
    assert_int_equal(swn_disk_speed_get(&p, &d), 0);
    bursts(&p, 6, 1, 2e6, 4e6, SPEED);
    assert_int_equal(swn_disk_speed_get(&p, &d), 0);
    assert_true(d.bytes_per_ns == 7 && d.read_ns == 8 && d.wait_ns == 9);
    for (int i = 0; i < 40; i++) {
        bursts(&p, 10, 1 + i % 3, 0.5e6, 8e6, SPEED);
        stream(&p, 100, 0.5e6, 8e6, SPEED);
    }
    assert_int_equal(swn_disk_speed_get(&p, &d), SWN_DISK_SPEED_SPEED | SWN_DISK_SPEED_READ | SWN_DISK_SPEED_WAIT);
    assert_near(d.bytes_per_ns, SPEED, 0.05);
    assert_near(d.read_ns, READ, 0.5);
    assert_near(d.wait_ns, WAIT, 0.3);
}

/* What sizes that hardly differ cannot tell is taken to be the usual; together the two are what reads take. */
static void test_one_size(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i < 100; i++) {
        struct swn_disk_speed p = {0};
        struct swn_disk_model d;
        stream(&p, 800, 2.2e6, 2.4e6, SPEED);
        assert_int_equal(swn_disk_speed_get(&p, &d), SWN_DISK_SPEED_SPEED | SWN_DISK_SPEED_READ);
        assert_near(2.3e6 / d.bytes_per_ns + d.read_ns, 2.3e6 / SPEED + READ, 0.03);
        assert_true(d.wait_ns == 0);
        worst = d.read_ns > worst ? d.read_ns : worst;
    }
    assert_true(worst < 2.5 * READ);
}

/* Where nothing is ever queued for long, bursts of different sizes tell all the same, also if it was otherwise before.
 */
static void test_all_alone(void **state)
{
    (void)state;
    for (int queued_before = 0; queued_before < 2; queued_before++) {
        struct swn_disk_speed p = {0};
        struct swn_disk_model d;
        if (queued_before)
            stream(&p, 500, 0.5e6, 8e6, 3 * SPEED);
        for (int i = 0; i < 300; i++)
            bursts(&p, 3, 1 + i % 2, 0.5e6, 8e6, SPEED);
        assert_int_equal(swn_disk_speed_get(&p, &d), SWN_DISK_SPEED_SPEED | SWN_DISK_SPEED_WAIT);
        assert_near(d.bytes_per_ns, SPEED, 0.06);
        assert_near(d.wait_ns + 1.5 * d.read_ns, WAIT + 1.5 * READ, 0.3);
    }
}

/* A process that was stopped for a while has no slow disk; one whose disk has become slow has. */
static void test_stalls(void **state)
{
    (void)state;
    struct swn_disk_speed p = {0};
    struct swn_disk_model d, after;
    for (int when = 0; when < 40; when++) { /* also while nothing is known yet, in a row or ahead of one */
        struct swn_disk_speed young = {0};
        for (int i = 0; i < 400; i++) {
            bursts(&young, 1, 1 + i % 4, 0.25e6, 2e6, SPEED);
            stream(&young, 12, 0.25e6, 2e6, SPEED);
            if (i == when)
                swn_disk_speed_add(&young, 4e6, young.done_ns + (when % 2 ? 1 : -1), young.done_ns + 200e6);
        }
        assert_true(swn_disk_speed_get(&young, &d) & SWN_DISK_SPEED_WAIT);
        assert_near(d.bytes_per_ns, SPEED, 0.1);
        assert_near(d.wait_ns, WAIT, 0.4);
    }
    stream(&p, 400, 0.5e6, 8e6, SPEED);
    assert_true(swn_disk_speed_get(&p, &d) & SWN_DISK_SPEED_READ);
    for (int i = 0; i < 50; i++) {
        swn_disk_speed_add(&p, 4e6, p.done_ns - 1, p.done_ns + 60e9);
        swn_disk_speed_add(&p, 4e6, p.done_ns - 1, p.done_ns + 4e6 / SPEED + READ);
    }
    assert_true(swn_disk_speed_get(&p, &after) & SWN_DISK_SPEED_SPEED);
    assert_near(4e6 / after.bytes_per_ns + after.read_ns, 4e6 / d.bytes_per_ns + d.read_ns, 0.02);
    for (int i = 0; i < 4000; i++)
        swn_disk_speed_add(&p, 4e6 + 1e6 * (i / 4 % 2), p.done_ns - 1, p.done_ns + 30 * 4e6 / SPEED);
    assert_true(swn_disk_speed_get(&p, &after) & SWN_DISK_SPEED_SPEED);
    assert_near(4.5e6 / after.bytes_per_ns + after.read_ns, 30 * 4e6 / SPEED, 0.2);
}

/* What waits for a read that does not count, as for a weight that comes to stay, is none of a slow disk's, nor does it
 * wait for an answer. */
static void test_others(void **state)
{
    (void)state;
    for (int others = 0; others < 2; others++) {
        struct swn_disk_speed p = {0};
        struct swn_disk_model d;
        for (int i = 0; i < 200; i++) {
            stream(&p, 12, 0.5e6, 4e6, SPEED);
            double asked = p.done_ns + 1e6;
            if (others)
                swn_disk_speed_skip(&p, asked + 8e6);
            swn_disk_speed_add(&p, 2e6, asked, (others ? asked + 8e6 : asked) + 2e6 / SPEED + READ);
        }
        assert_int_equal(swn_disk_speed_get(&p, &d),
                         SWN_DISK_SPEED_SPEED | SWN_DISK_SPEED_READ | (others ? 0 : SWN_DISK_SPEED_WAIT));
        assert_near(d.bytes_per_ns, SPEED, 0.06);
        assert_true(d.wait_ns < READ);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_told_apart), cmocka_unit_test(test_one_size), cmocka_unit_test(test_all_alone),
        cmocka_unit_test(test_stalls),     cmocka_unit_test(test_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
