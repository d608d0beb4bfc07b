/* Description: what the probe finds of disks that are known: simulated ones, with a clock of their own, so that neither
 * this machine's disk nor its load has a say.
 */
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

#include "swn_fetch.h"
#include "swn_probe_queue.h"

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)
#define REQUEST_NS 5000 /* of processor time */

/* A disk that begins to answer after a while, whatever else it does meanwhile, and answers at so many bytes a second.
 */
static struct {
    double latency_s, read_rate, write_rate;
    int no_direct;
    long fails_at; /* the read from which on all fail; 0: none */
    struct {
        uint64_t tag, end_ns;
        int res;
    } reads[SWN_FETCH_MOST_DEPTH];
    unsigned count;
    uint64_t busy_until_ns, bytes, written, largest;
    long served;
    int open_files;
} disk;

static _Atomic uint64_t clock_ns;

int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    (void)id;
    uint64_t now = clock_ns;
    *t = (struct timespec){.tv_sec = (time_t)(now / 1000000000u), .tv_nsec = (long)(now % 1000000000u)};
    return 0;
}

static int open_file(void *ctx, const char *path, int flags, mode_t mode)
{
    (void)ctx, (void)path, (void)mode;
    disk.open_files++;
    return flags & O_DIRECT ? 1001 : 1000;
}

static int close_file(void *ctx, int fd)
{
    (void)ctx, (void)fd;
    disk.open_files--;
    return 0;
}

static ssize_t write_some(void *ctx, int fd, const void *buf, size_t len, uint64_t off)
{
    (void)ctx, (void)fd, (void)buf, (void)off;
    clock_ns += (uint64_t)((double)len / disk.write_rate * 1e9);
    disk.written += len;
    return (ssize_t)len;
}

static int sync_file(void *ctx, int fd)
{
    (void)ctx, (void)fd;
    return 0;
}

static int forget(void *ctx, int fd, uint64_t off, uint64_t len, int advice)
{
    (void)ctx, (void)fd, (void)off, (void)len, (void)advice;
    return 0;
}

static int ring_setup(void *ctx, struct io_uring *ring, unsigned entries)
{
    (void)ctx, (void)ring, (void)entries;
    disk.count = 0;
    return 0;
}

static int ring_read(void *ctx, struct io_uring *ring, int fd, void *buf, size_t len, uint64_t off, uint64_t tag)
{
    (void)ctx, (void)ring, (void)buf;
    assert_true(disk.count < SWN_FETCH_MOST_DEPTH && off + len <= disk.written);
    uint64_t now = clock_ns += REQUEST_NS, ready = now + (uint64_t)(disk.latency_s * 1e9);
    uint64_t begin = disk.busy_until_ns > ready ? disk.busy_until_ns : ready;
    disk.busy_until_ns = begin + (uint64_t)((double)len / disk.read_rate * 1e9);
    disk.served++;
    disk.bytes += len;
    disk.largest = len > disk.largest ? len : disk.largest;
    disk.reads[disk.count].tag = tag;
    disk.reads[disk.count].end_ns = disk.busy_until_ns;
    disk.reads[disk.count++].res = disk.fails_at && disk.served >= disk.fails_at ? -EIO
                                   : disk.no_direct && fd == 1001                ? -EINVAL
                                                                                 : (int)len;
    return 0;
}

static int ring_submit(void *ctx, struct io_uring *ring)
{
    (void)ctx, (void)ring;
    return 0;
}

static int ring_wait(void *ctx, struct io_uring *ring, int timeout_ms, uint64_t *tag, int *res)
{
    (void)ctx, (void)ring, (void)timeout_ms;
    if (!disk.count)
        return 0;
    if (disk.reads[0].end_ns > clock_ns)
        clock_ns = disk.reads[0].end_ns;
    *tag = disk.reads[0].tag;
    *res = disk.reads[0].res;
    memmove(&disk.reads[0], &disk.reads[1], --disk.count * sizeof disk.reads[0]);
    return 1;
}

static void ring_exit(void *ctx, struct io_uring *ring)
{
    (void)ctx, (void)ring;
}

static const struct swn_io table = {.open = open_file,
                                    .close = close_file,
                                    .pwrite = write_some,
                                    .fsync = sync_file,
                                    .fadvise = forget,
                                    .ring_setup = ring_setup,
                                    .ring_read = ring_read,
                                    .ring_submit = ring_submit,
                                    .ring_wait = ring_wait,
                                    .ring_exit = ring_exit};

static int probe(struct swn_reads *out, double latency_s, double read_rate)
{
    disk.latency_s = latency_s;
    disk.read_rate = disk.write_rate = read_rate;
    disk.busy_until_ns = disk.bytes = disk.written = disk.largest = 0;
    disk.served = 0;
    clock_ns = 1;
    *out = (struct swn_reads){0};
    int rc = swn_probe_queue(out, &table, "/tmp");
    assert_int_equal(disk.open_files, 0);
    return rc;
}

/* What the disk gives for good with so many reads of that size in flight. */
static double steady(unsigned depth, uint64_t request)
{
    double one_s = disk.latency_s + (double)request / disk.read_rate, rate = (double)(depth * request) / one_s;
    return rate < disk.read_rate ? rate : disk.read_rate;
}

/* What was found reads about as fast as the usual, with so much in flight, and was found in time. */
static void check(double latency_s, double read_rate, uint64_t least, uint64_t most, double seconds)
{
    struct swn_reads r;
    assert_int_equal(probe(&r, latency_s, read_rate), 0);
    uint64_t in_flight = r.depth * r.request_bytes;
    if (in_flight < least || in_flight > most || r.depth < SWN_READS_LEAST ||
        steady(r.depth, r.request_bytes) < 0.93 * steady(SWN_FETCH_DEPTH, SWN_FETCH_PIECE))
        fail_msg("%.0f MB/s: %u of %llu KiB", read_rate / 1e6, r.depth, (unsigned long long)(r.request_bytes / KIB));
    double rate = swn_reads_rate(&r, r.depth, r.request_bytes);
    assert_true(rate > 0.7 * steady(r.depth, r.request_bytes) && rate <= read_rate);
    assert_true(swn_reads_rate(&r, SWN_FETCH_DEPTH, SWN_FETCH_PIECE) > 0); /* always there to compare with */
    double took = (double)clock_ns / 1e9;
    if (took > seconds)
        fail_msg("%.0f MB/s: %.2f s, %llu MiB", read_rate / 1e6, took, (unsigned long long)(disk.bytes / MIB));
    swn_reads_free(&r);
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
    struct swn_reads r;
    assert_int_equal(probe(&r, 80e-6, 50e9), 0);
    assert_true(disk.bytes <= 8 * 1024 * MIB && disk.written <= 64 * MIB && disk.largest == 4 * MIB);
    swn_reads_free(&r);
    assert_int_equal(probe(&r, 1e-3, 20e6), 0);
    assert_true(disk.bytes <= 80 * MIB && disk.written <= 16 * MIB);
    swn_reads_free(&r);
}

static void no_direct_reads(void **state)
{
    (void)state;
    struct swn_reads r;
    disk.no_direct = 1;
    assert_int_equal(probe(&r, 80e-6, 3e9), -EOPNOTSUPP);
    disk.no_direct = 0;
    assert_true(!r.depth && !r.measured);
}

static void bad_disk(void **state)
{
    (void)state;
    struct swn_reads r;
    for (long at = 1; at < 1000; at = at * 2 + 1) {
        disk.fails_at = at;
        assert_int_equal(probe(&r, 80e-6, 3e9), -EIO);
        assert_true(!r.depth && !r.measured);
    }
    disk.fails_at = 0;
}

int main(void)
{
    alarm(100); /* a hang is a failure */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_disks),
        cmocka_unit_test(few_bytes),
        cmocka_unit_test(no_direct_reads),
        cmocka_unit_test(bad_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
