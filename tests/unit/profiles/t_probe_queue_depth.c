/* Description: what the probe finds of disks that are known: simulated ones, with a clock of their own, so that neither
 * this machine's disk nor its load has a say.
 */
/* wraps: clock_gettime */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "blocks/memory/fetch_queue.h"
#include "profiles/probe_queue_depth.h"
#include "tests/unit/support/sim_disk.h"

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

static _Atomic uint64_t clock_ns;

int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    (void)id;
    uint64_t now = clock_ns;
    *t = (struct timespec){.tv_sec = (time_t)(now / 1000000000u), .tv_nsec = (long)(now % 1000000000u)};
    return 0;
}

static uint64_t now_ns(void)
{
    return clock_ns;
}

static void pass(uint64_t until_ns)
{
    clock_ns = until_ns > clock_ns ? until_ns : clock_ns;
}

static int probe(struct swn_queue_depth *out, double latency_s, double read_rate)
{
    swn_sim_disk_reset(latency_s, read_rate);
    clock_ns = 1;
    *out = (struct swn_queue_depth){0};
    int rc = swn_probe_queue(out, &swn_sim_disk_io, "/tmp");
    assert_int_equal(swn_sim_disk.open_files, 0);
    return rc;
}

/* The disk's lasting speed with this many reads of that size in flight. */
static double steady(unsigned depth, uint64_t request)
{
    double one_s = swn_sim_disk.latency_s + (double)request / swn_sim_disk.read_rate,
           rate = (double)(depth * request) / one_s;
    return rate < swn_sim_disk.read_rate ? rate : swn_sim_disk.read_rate;
}

/* What was found reads about as fast as the usual, with so much in flight, and was found in time. */
static void check(double latency_s, double read_rate, uint64_t least, uint64_t most, double seconds)
{
    struct swn_queue_depth r;
    assert_int_equal(probe(&r, latency_s, read_rate), 0);
    uint64_t in_flight = r.depth * r.request_bytes;
    if (in_flight < least || in_flight > most || r.depth < SWN_READS_LEAST ||
        steady(r.depth, r.request_bytes) < 0.93 * steady(SWN_FETCH_DEPTH, SWN_FETCH_PIECE))
        fail_msg("%.0f MB/s: %u of %llu KiB", read_rate / 1e6, r.depth, (unsigned long long)(r.request_bytes / KIB));
    double rate = swn_queue_depth_rate(&r, r.depth, r.request_bytes);
    assert_true(rate > 0.7 * steady(r.depth, r.request_bytes) && rate <= read_rate);
    assert_true(swn_queue_depth_rate(&r, SWN_FETCH_DEPTH, SWN_FETCH_PIECE) > 0); /* always there to compare with */
    double took = (double)clock_ns / 1e9;
    if (took > seconds)
        fail_msg("%.0f MB/s: %.2f s, %llu MiB", read_rate / 1e6, took, (unsigned long long)(swn_sim_disk.bytes / MIB));
    swn_queue_depth_free(&r);
}

static void known_disks(void **state)
{
    (void)state;
    check(80e-6, 3e9, 6 * MIB, 8 * MIB, 3);     /* NVMe */
    check(120e-6, 550e6, MIB, 2 * MIB, 3);      /* SATA */
    check(1e-3, 90e6, 256 * KIB, MIB, 3);       /* a good SD card */
    check(2e-3, 20e6, 256 * KIB, MIB, 4);       /* a bad one */
    check(10e-3, 200e6, 2 * MIB, 8 * MIB, 4);   /* far away */
    check(1e-3, 2e9, 4 * MIB, 8 * MIB, 3);      /* far away, and fast */
    check(1e-3, 200e3, 256 * KIB, 8 * MIB, 40); /* broken: it comes to an end */
}

static void few_bytes(void **state)
{
    (void)state;
    struct swn_queue_depth r;
    assert_int_equal(probe(&r, 80e-6, 50e9), 0);
    assert_true(swn_sim_disk.bytes <= 8 * 1024 * MIB && swn_sim_disk.written <= 64 * MIB &&
                swn_sim_disk.largest == 4 * MIB);
    swn_queue_depth_free(&r);
    assert_int_equal(probe(&r, 1e-3, 20e6), 0);
    assert_true(swn_sim_disk.bytes <= 80 * MIB && swn_sim_disk.written <= 16 * MIB);
    swn_queue_depth_free(&r);
}

static void no_direct_reads(void **state)
{
    (void)state;
    struct swn_queue_depth r;
    swn_sim_disk.no_direct = 1;
    assert_int_equal(probe(&r, 80e-6, 3e9), -EOPNOTSUPP);
    swn_sim_disk.no_direct = 0;
    assert_true(!r.depth && !r.measured);
}

static void bad_disk(void **state)
{
    (void)state;
    struct swn_queue_depth r;
    for (long at = 1; at < 1000; at = at * 2 + 1) {
        swn_sim_disk.fails_at = at;
        assert_int_equal(probe(&r, 80e-6, 3e9), -EIO);
        assert_true(!r.depth && !r.measured);
    }
    swn_sim_disk.fails_at = 0;
}

int main(void)
{
    alarm(300); /* a hang is a failure */
    swn_sim_disk.now_ns = now_ns;
    swn_sim_disk.pass = pass;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_disks),
        cmocka_unit_test(few_bytes),
        cmocka_unit_test(no_direct_reads),
        cmocka_unit_test(bad_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
