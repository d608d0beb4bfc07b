/* Description: what a byte takes, as the probe has it, on a disk that is known: what it gives for good, with layers of
 * any size, and not what the first one waits for. The disk's time is real, as the probe has to keep it busy.
 */
/* timed: what a byte takes, on a disk that waits for real */
/* wraps: swn_probe_refs_open swn_probe_refs_close swn_probe_refs_time */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "profiles/probe_layers.h"
#include "profiles/probe_mapping.h"
#include "tests/unit/support/sim_disk.h"

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)
#define REFERENCE_S 1e-6
/* On a machine that has no time for the probe for a while the disk comes to rest after all. */
#define TRIES 3

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pass(uint64_t until_ns)
{
    struct timespec t = {.tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

/* References have no disk below them here: each takes the same. */
static int refs_open;

int __wrap_swn_probe_refs_open(struct swn_probe_refs *p, const struct swn_io *io, struct swn_extent_file *file);
int __wrap_swn_probe_refs_open(struct swn_probe_refs *p, const struct swn_io *io, struct swn_extent_file *file)
{
    (void)p, (void)io, (void)file;
    refs_open = 1;
    return 0;
}

void __wrap_swn_probe_refs_close(struct swn_probe_refs *p);
void __wrap_swn_probe_refs_close(struct swn_probe_refs *p)
{
    assert_true(refs_open || p->res.pagemap_fd < 0); /* 0 would be a standard input */
    refs_open = 0;
}

int __wrap_swn_probe_refs_time(struct swn_probe_refs *p, size_t n, double *in_s, double *out_s);
int __wrap_swn_probe_refs_time(struct swn_probe_refs *p, size_t n, double *in_s, double *out_s)
{
    (void)p;
    *in_s = *out_s = (double)n * REFERENCE_S;
    return 0;
}

static struct swn_profile *profile_of(const uint64_t *sizes, size_t n)
{
    struct swn_profile *p = swn_profile_new(SWN_PROFILE_MODEL, "app.py");
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer %zu", i);
        struct swn_profile_layer *l = swn_profile_add(p, name);
        assert_non_null(l);
        l->l = (struct swn_layer){.bytes = sizes[i], .depth = 1 + i % 3};
    }
    return p;
}

/* Nanoseconds a byte, of layers of these sizes. wait_s: of a read alone; or NULL. */
static double alpha_of(const uint64_t *sizes, size_t n, const struct swn_queue_depth *queue, double *wait_s)
{
    struct swn_profile *p = profile_of(sizes, n);
    assert_int_equal(swn_probe(p, &swn_sim_disk_io, "/tmp", queue), 0);
    assert_int_equal(swn_sim_disk.open_files, 0);
    for (size_t i = 0; i < n; i++)
        assert_true(p->layers[i].read_count == 3 && p->layers[i].release_count == 3);
    assert_int_equal(swn_profile_fit(p), 0);
    assert_true(p->known & SWN_ALPHA);
    double alpha = p->c.alpha * 1e9;
    if (wait_s)
        *wait_s = p->wait_s;
    swn_profile_free(p);
    return alpha;
}

/* 5 ns a byte, of which nothing can be had for 8 ms. The queue has little of several reads on the way at once, so that
 * a byte takes 5.3 and, of small layers, 6.5; if the disk came to rest between them, it would be 6 and 13. One that
 * nothing is read before waits for those 8 ms; of small ones some of that is in what they take in a row already. */
static void busy_all_the_time(void **state)
{
    (void)state;
    static const uint64_t large[] = {7 * MIB, 2 * MIB, 9 * MIB, 20 * MIB, 7 * MIB},
                          small[] = {600 * KIB, 70 * KIB, 900 * KIB, 300 * KIB, MIB, 130 * KIB, 800 * KIB};
    double of_large = 0, of_small = 0, large_waits = 0, small_waits = 0;
    int good = 0;
    swn_sim_disk_reset(8e-3, 200e6);
    swn_sim_disk.write_rate = 1e12;
    for (int i = 0; i < TRIES && !good; i++) {
        of_large = alpha_of(large, sizeof large / sizeof *large, NULL, &large_waits);
        of_small = alpha_of(small, sizeof small / sizeof *small, NULL, &small_waits);
        good = of_large > 4.9 && of_large < 5.7 && of_small > 4.9 && of_small < 8 && large_waits > 5e-3 &&
               large_waits < 9e-3 && small_waits > 5e-3 && small_waits < 9e-3;
    }
    if (!good)
        fail_msg("%.2f and %.2f ns a byte instead of 5.3 and 6.5; %.2f and %.2f ms alone instead of 7 to 8", of_large,
                 of_small, large_waits * 1e3, small_waits * 1e3);
}

/* As the library reads it: a disk that is far away gives less where too little is in flight. */
static void with_the_librarys_queue(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {2 * MIB, 3 * MIB, 5 * MIB};
    struct swn_queue_depth little = {.depth = 2, .request_bytes = 512 * KIB}, none = {0};
    swn_sim_disk_reset(5e-3, 1e9);
    swn_sim_disk.write_rate = 1e12;
    double usual = alpha_of(sizes, sizeof sizes / sizeof *sizes, &none, NULL);
    assert_int_equal(swn_sim_disk.largest, SWN_FETCH_PIECE);
    swn_sim_disk.largest = 0;
    double of_little = alpha_of(sizes, sizeof sizes / sizeof *sizes, &little, NULL);
    assert_int_equal(swn_sim_disk.largest, 512 * KIB);
    if (of_little < 2 * usual)
        fail_msg("%.2f ns a byte with two small requests in flight, %.2f with the usual ones", of_little, usual);
}

static void bad_disk(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {2 * MIB, 70 * KIB, 9 * MIB};
    swn_sim_disk_reset(0, 1e12);
    for (long at = 1; at < 200; at = at * 2 + 1) {
        struct swn_profile *p = profile_of(sizes, sizeof sizes / sizeof *sizes);
        swn_sim_disk.served = 0;
        swn_sim_disk.fails_at = at;
        int rc = swn_probe(p, &swn_sim_disk_io, "/tmp", NULL);
        assert_true(swn_sim_disk.served < at ? rc == 0 : rc == -EIO);
        assert_int_equal(swn_sim_disk.open_files, 0);
        swn_profile_free(p);
    }
    swn_sim_disk.fails_at = 0;
}

/* Of a model that is too large for all of it to be read, some layers, each as often as every other. */
static void much_to_read(void **state)
{
    (void)state;
    uint64_t sizes[200];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        sizes[i] = (1 + i % 5) * 20 * MIB;
    swn_sim_disk_reset(0, 1e15);
    struct swn_profile *p = profile_of(sizes, sizeof sizes / sizeof *sizes);
    assert_int_equal(swn_probe(p, &swn_sim_disk_io, "/tmp", NULL), 0);
    size_t read = 0;
    for (size_t i = 0; i < p->layer_count; i++) {
        assert_true(p->layers[i].read_count == 0 || p->layers[i].read_count == 3);
        read += p->layers[i].read_count;
    }
    assert_true(read > 3 * 10 && read <= 3 * 96 && swn_sim_disk.bytes <= 4096 * MIB + MIB);
    swn_profile_free(p);
}

static int refuse(void *ctx, const char *path, int flags, mode_t mode)
{
    (void)ctx, (void)path, (void)flags, (void)mode;
    return -EACCES;
}

static void no_scratch_file(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {MIB};
    struct swn_io io = swn_sim_disk_io;
    struct swn_profile *p = profile_of(sizes, 1);
    io.open = refuse;
    assert_int_equal(swn_probe(p, &io, "/tmp", NULL), -EACCES);
    assert_true(!p->layers[0].read_count);
    swn_profile_free(p);
}

static void nothing_to_probe(void **state)
{
    (void)state;
    struct swn_profile *p = swn_profile_new(SWN_PROFILE_MODEL, "app.py");
    assert_int_equal(swn_probe(p, &swn_sim_disk_io, "/tmp", NULL), -ENODATA);
    swn_profile_free(p);
}

int main(void)
{
    alarm(300); /* a hang is a failure */
    swn_sim_disk.now_ns = now_ns;
    swn_sim_disk.pass = pass;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(busy_all_the_time), cmocka_unit_test(with_the_librarys_queue),
        cmocka_unit_test(bad_disk),          cmocka_unit_test(much_to_read),
        cmocka_unit_test(no_scratch_file),   cmocka_unit_test(nothing_to_probe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
