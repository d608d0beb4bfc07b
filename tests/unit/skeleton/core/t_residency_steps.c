/* Description: each error of the pool and the spill file comes with the advice that helps against it; a cache that is
 * only read does not take the spill file; a full spill file is replaced, and closed when nothing lies in it; a disk
 * that does not take what was stored ends the program. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "skeleton/core/residency_steps.h"
#include "skeleton/engine/engine.h"
#include "tests/unit/support/engine_fixture.h"

static void test_advice_is_for_the_cause(void **state)
{
    (void)state;
    static const struct {
        int err;
        const char *says;
    } cases[] = {
        {-EMFILE, "ulimit -n"},     {-EFBIG, "ulimit -f"},      {-ENOMEM, "ulimit -v"}, {-EACCES, "can write to"},
        {-EPERM, "can write to"},   {-EROFS, "can write to"},   {-ENOSPC, "more room"}, {-EDQUOT, "more room"},
        {-ENOENT, "SWAPNET_STORE"}, {-ENOTDIR, "can write to"}, {-ENFILE, "ulimit -n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *advice = swn_pool_advice(cases[i].err);
        assert_non_null(strstr(advice, cases[i].says));
        assert_true(!strstr(advice, "ulimit") ||
                    strstr(cases[i].says, "ulimit")); /* no limit is to blame for the others */
    }
    assert_string_equal(swn_pool_advice(-EIO), "");
}

#define NOBODY 65534

/* A cache of root's that others read: what leaves a user's memory goes to the user's own directory. One that is not
 * there is still an error. */
static void test_spill_file_beside_a_cache_that_is_only_read(void **state)
{
    (void)state;
    if (geteuid())
        skip();
    static struct swn_engine e;
    char cache[] = "/tmp/t_residency_steps-XXXXXX", own[] = "/tmp/t_residency_steps-XXXXXX", expected[128];
    e.io = &swn_io_sys;
    assert_non_null(mkdtemp(cache));
    assert_non_null(mkdtemp(own));
    assert_int_equal(chmod(cache, 0755), 0);
    assert_int_equal(chown(own, NOBODY, NOBODY), 0);
    assert_int_equal(setenv("XDG_CACHE_HOME", own, 1), 0);
    snprintf(e.config.store_dir, sizeof e.config.store_dir, "%s", cache);
    snprintf(expected, sizeof expected, "%s/swapnet", own);
    assert_int_equal(seteuid(NOBODY), 0);
    int first = swn_open_spill(&e);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(first, 0);
    assert_string_equal(e.writes.spill_dir, expected);
    swn_spill_close(e.writes.spill);
    e.writes.spill_dir[0] = 0;
    strcat(e.config.store_dir, "/missing");
    assert_int_equal(seteuid(NOBODY), 0);
    int missing = swn_open_spill(&e);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(missing, -EACCES);
    rmdir(expected);
    rmdir(cache);
    rmdir(own);
}

static struct swn_engine *const e = &swn_engine_one;
static struct swn_io io;
static int fsync_err, fsync_fails;

/* The kernel reports a failed write-back once, and may have dropped the pages by then. */
static int bad_fsync(void *ctx, int fd)
{
    struct stat st;
    if (!fsync_fails)
        return swn_io_sys.fsync(ctx, fd);
    fsync_fails--;
    CHECK(!fstat(fd, &st) &&
          !swn_io_sys.fallocate(ctx, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (uint64_t)st.st_size));
    return fsync_err;
}

static int interrupted_fsync(void *ctx, int fd)
{
    if (!fsync_fails)
        return swn_io_sys.fsync(ctx, fd);
    fsync_fails--;
    return fsync_err;
}

enum { BY_ITS_OPERATOR, BY_A_FORK, BY_ANOTHER_WRITE, ENDS };

/* A tensor larger than the budget, whose bytes the disk does not take when its operator ends, or when a program forks
 * before that; or another fsync of the file got the error. */
static void unwritable(void *how)
{
    static const enum swn_use use = SWN_USE_WRITE;
    struct tensor t, *a = &t;
    struct swn_op op;
    io = swn_io_sys;
    io.fsync = bad_fsync;
    CHECK(engine_begin(16 * MIB, SWN_CONFIG_AUTO, &io) == 0);
    CHECK(tensor_make(&t, 40 * MIB, 1));
    op_open(&op, &a, &use, 1);
    tensor_stamp(&t, t.own, 5);
    fsync_err = -EIO;
    fsync_fails = 1;
    if (*(int *)how == BY_A_FORK)
        swn_engine_prefork();
    if (*(int *)how == BY_ANOTHER_WRITE)
        CHECK(swn_spill_sync(e->writes.spill, 0, 0) == -EIO);
    op_close(&op);
    CHECK(0 && "computing goes on");
}

static void test_what_the_disk_does_not_take_ends_the_program(void **state)
{
    (void)state;
    for (int how = 0; how < ENDS; how++)
        assert_int_equal(run_alone(unwritable, &how, 20), SWN_EXIT_UNREADABLE);
}

/* Neither a signal nor a closed descriptor is a failure of the disk. */
static void writable(void *unused)
{
    static const enum swn_use use = SWN_USE_WRITE;
    struct tensor t, *a = &t;
    struct swn_op op;
    (void)unused;
    io = swn_io_sys;
    io.fsync = interrupted_fsync;
    CHECK(engine_begin(16 * MIB, SWN_CONFIG_AUTO, &io) == 0);
    CHECK(tensor_make(&t, 40 * MIB, 1));
    for (unsigned i = 0; i < 2; i++) {
        op_open(&op, &a, &use, 1);
        tensor_stamp(&t, t.own, 5 + i);
        fsync_err = i ? -EBADF : -EINTR;
        fsync_fails = 1;
        op_close(&op);
        CHECK(!fsync_fails && tensor_right(&t, t.own));
    }
}

static void test_other_failures_do_not(void **state)
{
    (void)state;
    assert_int_equal(run_alone(writable, NULL, 20), 0);
}

#define FILE_MOST (24 * MIB)
static int opened, closed;

static ssize_t bounded_pwrite(void *ctx, int fd, const void *buf, size_t len, uint64_t off)
{
    return off + len > FILE_MOST ? -EFBIG : swn_io_sys.pwrite(ctx, fd, buf, len, off);
}

static int counted_open(void *ctx, const char *path, int flags, mode_t mode)
{
    int fd = swn_io_sys.open(ctx, path, flags, mode);
    opened += fd >= 0;
    return fd;
}

static int counted_close(void *ctx, int fd)
{
    closed++;
    return swn_io_sys.close(ctx, fd);
}

static int no_holes(void *ctx, int fd, int mode, uint64_t off, uint64_t len)
{
    return mode & FALLOC_FL_PUNCH_HOLE ? -EOPNOTSUPP : swn_io_sys.fallocate(ctx, fd, mode, off, len);
}

/* Of all files that this process has open and that have no name. */
static size_t bytes_of_unnamed(void)
{
    size_t bytes = 0;
    struct stat st;
    for (int fd = 0; fd < 256; fd++)
        if (!fstat(fd, &st) && S_ISREG(st.st_mode) && !st.st_nlink)
            bytes += (size_t)st.st_blocks * 512;
    return bytes;
}

enum { LIMITED, WITHOUT_HOLES, FORKS, CAUSES };

/* Tensors made anew again and again, which always lie in new places. */
static void full(void *cause)
{
    struct tensor t[8];
    int limited = *(int *)cause == LIMITED;
    io = swn_io_sys;
    if (*(int *)cause == WITHOUT_HOLES)
        io.fallocate = no_holes;
    if (limited)
        io.pwrite = bounded_pwrite;
    io.open = counted_open;
    io.close = counted_close;
    CHECK(engine_begin(16 * MIB, SWN_CONFIG_AUTO, &io) == 0);
    for (unsigned round = 0; round < (limited ? 8 : 40); round++) {
        for (unsigned i = 0; i < 8; i++)
            CHECK(tensor_make(&t[i], 4 * MIB, 8 * round + i + 1));
        for (unsigned i = 0; i < 8; i++)
            CHECK(tensor_right(&t[i], t[i].own));
        if (*(int *)cause == FORKS) {
            swn_engine_prefork();
            swn_engine_postfork_parent();
        }
        for (unsigned i = 0; i < 8; i++)
            tensor_free(&t[i]);
    }
    struct swn_counters counters = engine_counters();
    CHECK(!counters.over_budget_peak && counters.peak_resident <= 16 * MIB);
    CHECK(swn_spilled_so_far(e) > 4 * FILE_MOST);
    CHECK(opened >= (limited ? 8 : 4) && opened - closed <= 4); /* two for each file */
    CHECK(bytes_of_unnamed() < 2 * (400 * MIB));                /* each file is counted for both of its descriptors */
}

static void test_full_spill_file_is_replaced(void **state)
{
    (void)state;
    for (int cause = 0; cause < CAUSES; cause++)
        assert_int_equal(run_alone(full, &cause, 20), 0);
}

static int crowded_err = -ENOSPC;

/* A disk on which there is room for what is out of memory, and for little more. */
static ssize_t crowded_pwrite(void *ctx, int fd, const void *buf, size_t len, uint64_t off)
{
    struct stat st;
    CHECK(!fstat(fd, &st));
    int is_new = lseek(fd, (off_t)off, SEEK_DATA) != (off_t)off;
    return is_new && (size_t)st.st_blocks * 512 + len > 72 * MIB ? crowded_err
                                                                 : swn_io_sys.pwrite(ctx, fd, buf, len, off);
}

/* Tensors that come back keep their places on the disk, as long as there is room. */
static void crowded(void *err)
{
    static const enum swn_use use = SWN_USE_WRITE;
    struct tensor t[24], *a;
    struct swn_op op;
    crowded_err = *(int *)err;
    io = swn_io_sys;
    io.pwrite = crowded_pwrite;
    CHECK(engine_begin(64 * MIB, SWN_CONFIG_AUTO, &io) == 0);
    for (unsigned i = 0; i < 24; i++)
        CHECK(tensor_make(&t[i], 4 * MIB, i + 1));
    for (unsigned k = 0; k < 120; k++) {
        a = &t[k * 7 % 24];
        op_open(&op, &a, &use, 1);
        tensor_stamp(a, a->own, 100 + k);
        op_close(&op);
    }
    for (unsigned i = 0; i < 24; i++)
        CHECK(tensor_right(&t[i], t[i].own));
    struct swn_counters counters = engine_counters();
    CHECK(!counters.over_budget_peak && counters.peak_resident <= 64 * MIB);
    CHECK(swn_spilled_so_far(e) > 4 * 72 * MIB);
}

static void test_places_are_given_up_for_room(void **state)
{
    (void)state;
    int errors[] = {-ENOSPC, -EDQUOT};
    for (int i = 0; i < 2; i++)
        assert_int_equal(run_alone(crowded, &errors[i], 20), 0);
}

/* The last of what lay in the file is gone when it turns out to be full. */
static void full_and_empty(void *unused)
{
    struct tensor t[8];
    (void)unused;
    io = swn_io_sys;
    io.pwrite = bounded_pwrite;
    CHECK(engine_begin(16 * MIB, SWN_CONFIG_AUTO, &io) == 0);
    for (unsigned round = 0; round < 40; round++) {
        for (unsigned i = 0; i < 5; i++)
            CHECK(tensor_make(&t[i], 4 * MIB, 8 * round + i + 1) && tensor_right(&t[i], t[i].own));
        for (unsigned i = 0; i < 5; i++)
            tensor_free(&t[i]);
    }
    CHECK(!engine_counters().over_budget_peak && swn_spilled_so_far(e) > FILE_MOST);
}

static void test_full_spill_file_is_closed_when_it_is_empty(void **state)
{
    (void)state;
    assert_int_equal(run_alone(full_and_empty, NULL, 20), 0);
}

/* A tensor that fits into no file stays in memory, is said once, and does not keep others there. */
static void too_large(void *unused)
{
    struct tensor big, t[8];
    char said[4096] = "";
    FILE *file = tmpfile();
    (void)unused;
    io = swn_io_sys;
    io.pwrite = bounded_pwrite;
    CHECK(file && engine_begin(48 * MIB, SWN_CONFIG_AUTO, &io) == 0 && !redirect_stderr(fileno(file)));
    CHECK(tensor_make(&big, FILE_MOST + 4 * MIB, 1));
    for (unsigned round = 0; round < 8; round++) {
        for (unsigned i = 0; i < 8; i++)
            CHECK(tensor_make(&t[i], 4 * MIB, 8 * round + i + 2));
        for (unsigned i = 0; i < 8; i++) {
            CHECK(tensor_right(&t[i], t[i].own));
            tensor_free(&t[i]);
        }
    }
    CHECK(tensor_right(&big, big.own));
    CHECK(!engine_counters().over_budget_peak && swn_spilled_so_far(e) > 4 * 4 * MIB);
    rewind(file);
    CHECK(fread(said, 1, sizeof said - 1, file) > 0 && strstr(said, "File too large"));
    CHECK(!strstr(strstr(said, "File too large") + 1, "File too large"));
}

static void test_tensor_that_fits_into_no_file(void **state)
{
    (void)state;
    assert_int_equal(run_alone(too_large, NULL, 20), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_advice_is_for_the_cause),
                                       cmocka_unit_test(test_spill_file_beside_a_cache_that_is_only_read),
                                       cmocka_unit_test(test_what_the_disk_does_not_take_ends_the_program),
                                       cmocka_unit_test(test_other_failures_do_not),
                                       cmocka_unit_test(test_full_spill_file_is_replaced),
                                       cmocka_unit_test(test_full_spill_file_is_closed_when_it_is_empty),
                                       cmocka_unit_test(test_tensor_that_fits_into_no_file),
                                       cmocka_unit_test(test_places_are_given_up_for_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
