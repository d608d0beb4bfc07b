/* Description: a store is never there half, whichever operation fails while it is built or opened, and building leaves
 * nothing else behind. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/support/store_fixture.h"

static const struct swn_store_opts small = {.buffer_bytes = 64 << 10};

/* The old store or the new one, whole; nothing else. 1: the new one. */
static int old_or_new(uint64_t old_directory, int rc, int strays_allowed)
{
    struct swn_store *s = swn_store_made();
    swn_store_is_right(s);
    int is_new = strcmp(s->layers[0].name, "a") != 0;
    if (rc == 0)
        assert_true(is_new);
    if (!is_new)
        assert_int_equal(s->identity.directory, old_directory);
    swn_store_close(s, &swn_fix.fault.io);
    assert_int_equal(swn_fix.fault.open_files, 0);
    if (!strays_allowed)
        assert_int_equal(swn_store_files(), 2);
    return is_new;
}

/* Each operation of a build over an old store fails once, or it and all that follow. */
static long fail_each(int err, int for_ever)
{
    static const char *const order[] = {"c"};
    const struct swn_store_opts other = {.order = order, .order_count = 1, .buffer_bytes = 256 << 10};
    long most = 0, failed = 0;
    swn_store_make(NULL);
    struct swn_store *s = swn_store_made();
    uint64_t old = s->identity.directory;
    swn_store_close(s, &swn_fix.fault.io);
    for (long at = 1;; at++) {
        swn_fault_arm(&swn_fix.fault, at, for_ever, err);
        int rc = swn_store_build(&swn_fix.model.c, &swn_fix.fault.io, swn_fix.path, &other, swn_fix.why);
        long fired = swn_fix.fault.fired;
        most = swn_fix.fault.count > most ? swn_fix.fault.count : most;
        swn_fault_arm(&swn_fix.fault, 0, 0, 0);
        if (!fired) {
            assert_int_equal(rc, 0);
            break;
        }
        failed += rc != 0;
        /* Where nothing works any more the name cannot be removed either; the next one does it. Nothing is to be made
         * anew where only what was there before is there. */
        if (old_or_new(old, rc, for_ever) || for_ever) {
            swn_store_make(NULL);
            assert_int_equal(swn_store_files(), 2);
        }
    }
    assert_true(failed > 3);
    return most;
}

static void any_operation_fails(void **state)
{
    (void)state;
    static const int errors[] = {-EIO, -ENOSPC, -EDQUOT, -EFBIG, -EINVAL};
    long points = 0;
    swn_fix.fault.no_sync = 1; /* durability has tests of its own */
    for (size_t e = 0; e < sizeof errors / sizeof *errors; e++)
        for (int for_ever = 0; for_ever < 2; for_ever++) {
            long most = fail_each(errors[e], for_ever);
            assert_true(most > 25);
            points += most;
        }
    print_message("%ld points\n", points);
}

static void any_operation_fails_on_disk(void **state)
{
    (void)state;
    swn_fix.fault.no_sync = 1;
    assert_true(fail_each(-EIO, 0) > 25);
}

static void any_operation_of_opening_fails(void **state)
{
    (void)state;
    swn_store_make(NULL);
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        for (long at = 1;; at++) {
            struct swn_store *s = NULL;
            swn_fault_arm(&swn_fix.fault, at, for_ever, -EIO);
            int rc = swn_store_open(&s, &swn_fix.fault.io, swn_fix.path, swn_fix.why);
            if (!rc)
                swn_store_close(s, &swn_fix.fault.io);
            assert_int_equal(swn_fix.fault.open_files, 0);
            if (!swn_fix.fault.fired) {
                assert_int_equal(rc, 0);
                break;
            }
        }
    }
    swn_fault_arm(&swn_fix.fault, 0, 0, 0);
}

static int late_no_room(void *ctx, int fd)
{
    (void)ctx, (void)fd;
    return -ENOSPC;
}

static int no_room(void *ctx, int fd, int mode, uint64_t off, uint64_t len)
{
    (void)ctx, (void)fd, (void)mode, (void)off, (void)len;
    return -ENOSPC;
}

static void enospc(void **state)
{
    (void)state;
    swn_store_make(NULL);
    struct stat st;
    char needed[64];
    assert_int_equal(stat(swn_fix.path, &st), 0);
    snprintf(needed, sizeof needed, "needs %lld bytes", (long long)st.st_size);
    swn_fix.fault.io.fallocate = no_room;
    assert_int_equal(swn_store_build(&swn_fix.model.c, &swn_fix.fault.io, swn_fix.path, NULL, swn_fix.why), -ENOSPC);
    assert_non_null(strstr(swn_fix.why, needed));
    assert_int_equal(swn_store_files(), 2);
    /* File systems that find room for what is written only when it must be on the disk. */
    swn_fault_init(&swn_fix.fault);
    swn_fix.fault.io.fsync = late_no_room;
    swn_fix.why[0] = 0;
    assert_int_equal(swn_store_build(&swn_fix.model.c, &swn_fix.fault.io, swn_fix.path, NULL, swn_fix.why), -ENOSPC);
    assert_non_null(strstr(swn_fix.why, needed));
    assert_int_equal(swn_store_files(), 2);
}

static void short_transfers(void **state)
{
    (void)state;
    static const size_t aligns[] = {4096, 512, 1};
    for (int direct = 1; direct >= 0; direct--) {
        swn_fix.fault.no_direct = !direct;
        for (size_t i = 0; i < 3; i++) {
            if (direct && i) /* the kernel gives direct reads in whole sectors */
                continue;
            swn_fix.fault.short_align = aligns[i];
            swn_store_make(&small);
            swn_fix.fault.short_align = 0;
            struct swn_store *s = swn_store_made();
            swn_store_is_right(s);
            swn_store_close(s, &swn_fix.fault.io);
        }
    }
}

static void touch_source(void *user)
{
    (void)user;
    struct timespec now[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000}};
    assert_int_equal(futimens(swn_fix.model.file.fd, now), 0);
}

static void cut_source(void *user)
{
    (void)user;
    assert_int_equal(ftruncate(swn_fix.model.file.fd, 600000), 0);
}

static void source_changes(void **state)
{
    (void)state;
    swn_store_make(&small);
    swn_fault_arm(&swn_fix.fault, 20, 0, 0);
    swn_fix.fault.hook = touch_source;
    assert_int_equal(swn_store_build(&swn_fix.model.c, &swn_fix.fault.io, swn_fix.path, &small, swn_fix.why), -ESTALE);
    assert_non_null(strstr(swn_fix.why, "model.bin"));
    swn_fix.fault.hook = cut_source;
    swn_fault_arm(&swn_fix.fault, 20, 0, 0);
    assert_int_equal(swn_store_build(&swn_fix.model.c, &swn_fix.fault.io, swn_fix.path, &small, swn_fix.why), -ESTALE);
    assert_int_equal(swn_store_files(), 2);
    swn_fix.fault.hook = NULL;
}

struct watch {
    uint64_t last, total;
    uint64_t stop_at;
};

static int watch_progress(void *user, uint64_t done, uint64_t total)
{
    struct watch *w = user;
    assert_true(done > w->last && done <= total);
    w->last = done;
    w->total = total;
    return w->stop_at && done >= w->stop_at;
}

static void progress(void **state)
{
    (void)state;
    struct watch w = {0};
    struct swn_store_opts opts = {.buffer_bytes = 64 << 10, .progress = watch_progress, .user = &w};
    swn_store_make(&opts);
    uint64_t sum = 0;
    struct swn_store *s = swn_store_made();
    for (size_t i = 0; i < s->extent_count; i++)
        sum += s->extents[i].bytes;
    swn_store_close(s, &swn_fix.fault.io);
    assert_int_equal(w.last, sum);
    assert_int_equal(w.total, sum);
    w = (struct watch){.stop_at = sum / 2};
    assert_int_equal(swn_store_build(&swn_fix.model.c, &swn_fix.fault.io, swn_fix.path, &opts, swn_fix.why),
                     -ECANCELED);
    assert_int_equal(swn_store_files(), 2);
    s = swn_store_made(); /* the old one is still there */
    swn_store_is_right(s);
    swn_store_close(s, &swn_fix.fault.io);
}

static void strays(void **state)
{
    (void)state;
    char dead[700], living[700], other[700];
    snprintf(dead, sizeof dead, "%s/.swapnet-0123456789abcdef.tmp", swn_fix.dir);
    snprintf(living, sizeof living, "%s/.swapnet-fedcba9876543210.tmp", swn_fix.dir);
    snprintf(other, sizeof other, "%s/.swapnet-notes", swn_fix.dir);
    swn_store_spit(dead, "x", 1);
    swn_store_spit(other, "x", 1);
    int fd = open(living, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    swn_store_make(NULL);
    assert_int_equal(access(dead, F_OK), -1);
    assert_int_equal(access(living, F_OK), 0);
    close(fd);
    swn_store_make(NULL);
    assert_int_equal(access(living, F_OK), -1);
    assert_int_equal(unlink(other), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, swn_store_setup, swn_store_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(any_operation_fails, swn_store_setup_in_memory, swn_store_teardown),
        TEST(any_operation_fails_on_disk),
        TEST(any_operation_of_opening_fails),
        TEST(enospc),
        TEST(short_transfers),
        TEST(source_changes),
        TEST(progress),
        TEST(strays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
