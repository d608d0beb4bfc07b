/* tests/unit/support/sim_disk.c - see sim_disk.h. */
#define _GNU_SOURCE
#include "tests/unit/support/sim_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define REQUEST_NS 5000 /* of processor time */

struct swn_sim_disk swn_sim_disk;

static int open_file(void *ctx, const char *path, int flags, mode_t mode)
{
    (void)ctx, (void)path, (void)mode;
    swn_sim_disk.open_files++;
    return flags & O_DIRECT ? 1001 : 1000;
}

static int close_file(void *ctx, int fd)
{
    (void)ctx, (void)fd;
    swn_sim_disk.open_files--;
    return 0;
}

static ssize_t write_some(void *ctx, int fd, const void *buf, size_t len, uint64_t off)
{
    (void)ctx, (void)fd, (void)buf, (void)off;
    swn_sim_disk.pass(swn_sim_disk.now_ns() + (uint64_t)((double)len / swn_sim_disk.write_rate * 1e9));
    swn_sim_disk.written += len;
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
    swn_sim_disk.count = 0;
    return 0;
}

static int ring_read(void *ctx, struct io_uring *ring, int fd, void *buf, size_t len, uint64_t off, uint64_t tag)
{
    (void)ctx, (void)ring, (void)buf;
    assert_true(swn_sim_disk.count < SWN_FETCH_MOST_DEPTH && off + len <= swn_sim_disk.written);
    swn_sim_disk.pass(swn_sim_disk.now_ns() + REQUEST_NS);
    uint64_t ready = swn_sim_disk.now_ns() + (uint64_t)(swn_sim_disk.latency_s * 1e9);
    uint64_t begin = swn_sim_disk.busy_until_ns > ready ? swn_sim_disk.busy_until_ns : ready;
    swn_sim_disk.busy_until_ns = begin + (uint64_t)((double)len / swn_sim_disk.read_rate * 1e9);
    swn_sim_disk.served++;
    swn_sim_disk.bytes += len;
    swn_sim_disk.largest = len > swn_sim_disk.largest ? len : swn_sim_disk.largest;
    swn_sim_disk.reads[swn_sim_disk.count].tag = tag;
    swn_sim_disk.reads[swn_sim_disk.count].end_ns = swn_sim_disk.busy_until_ns;
    swn_sim_disk.reads[swn_sim_disk.count++].res = swn_sim_disk.fails_at && swn_sim_disk.served >= swn_sim_disk.fails_at
                                                       ? -EIO
                                                   : swn_sim_disk.no_direct && fd == 1001 ? -EINVAL
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
    (void)ctx, (void)ring;
    if (!swn_sim_disk.count || (!timeout_ms && swn_sim_disk.reads[0].end_ns > swn_sim_disk.now_ns()))
        return 0;
    swn_sim_disk.pass(swn_sim_disk.reads[0].end_ns);
    *tag = swn_sim_disk.reads[0].tag;
    *res = swn_sim_disk.reads[0].res;
    memmove(&swn_sim_disk.reads[0], &swn_sim_disk.reads[1], --swn_sim_disk.count * sizeof swn_sim_disk.reads[0]);
    return 1;
}

static void ring_exit(void *ctx, struct io_uring *ring)
{
    (void)ctx, (void)ring;
}

static int make_hole(void *ctx, int fd, int mode, uint64_t off, uint64_t len)
{
    (void)ctx, (void)fd, (void)mode, (void)off, (void)len;
    return 0;
}

const struct swn_io swn_sim_disk_io = {.open = open_file,
                                       .close = close_file,
                                       .fallocate = make_hole,
                                       .pwrite = write_some,
                                       .fsync = sync_file,
                                       .fadvise = forget,
                                       .ring_setup = ring_setup,
                                       .ring_read = ring_read,
                                       .ring_submit = ring_submit,
                                       .ring_wait = ring_wait,
                                       .ring_exit = ring_exit};

void swn_sim_disk_reset(double latency_s, double rate)
{
    struct swn_sim_disk *d = &swn_sim_disk;
    d->latency_s = latency_s;
    d->read_rate = d->write_rate = rate;
    d->busy_until_ns = d->bytes = d->written = d->largest = 0;
    d->served = 0;
}
