/* Description: extents of the spill file: written and read back, dropped, and never half there after an error;
 * a file that is full. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blocks/memory/spill_file.h"

#define MIB ((size_t)1 << 20)
#define BIG (9 * MIB) /* more than one request */

/* The kernel's table, with pwrite and open that misbehave as told. */
static struct swn_io io;
static struct {
    int calls, from, to; /* pwrite calls from..to (counted from 0) return `err`, or `shorten` bytes */
    int err;
    size_t shorten;
    int no_tmpfile, no_direct, fsync_err, opens, open_err;
} fault;

static ssize_t fault_pwrite(void *ctx, int fd, const void *buf, size_t len, uint64_t off)
{
    int call = fault.calls++;
    if (call >= fault.from && call < fault.to) {
        if (fault.err)
            return fault.err;
        if (fault.shorten < len) {
            /* Direct descriptors take whole blocks only; what is beyond the short count must be written again. */
            swn_io_sys.pwrite(ctx, fd, buf, (fault.shorten + 4095) / 4096 * 4096, off);
            return (ssize_t)fault.shorten;
        }
    }
    return swn_io_sys.pwrite(ctx, fd, buf, len, off);
}

static int fault_open(void *ctx, const char *path, int flags, mode_t mode)
{
    fault.opens++;
    if (fault.open_err)
        return fault.open_err;
    if (fault.no_tmpfile && (flags & O_TMPFILE) == O_TMPFILE)
        return -EOPNOTSUPP;
    if (fault.no_direct && (flags & O_DIRECT))
        return -EINVAL;
    return swn_io_sys.open(ctx, path, flags, mode);
}

static int fault_fsync(void *ctx, int fd)
{
    return fault.fsync_err ? fault.fsync_err : swn_io_sys.fsync(ctx, fd);
}

static char dir[512];
static unsigned char *data, *back;
static struct swn_extent_file *file;

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/t_spill_file.XXXXXX", tmp && *tmp ? tmp : "/var/tmp");
    if (!mkdtemp(dir))
        return -1;
    memset(&fault, 0, sizeof fault);
    io = swn_io_sys;
    io.pwrite = fault_pwrite;
    io.open = fault_open;
    io.fsync = fault_fsync;
    data = aligned_alloc(4096, BIG);
    back = aligned_alloc(4096, BIG);
    if (!data || !back)
        return -1;
    for (size_t i = 0; i < BIG; i++)
        data[i] = (unsigned char)((i * 2654435761U) >> 13);
    file = NULL;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (file)
        swn_spill_close(file);
    free(data);
    free(back);
    char sub[600];
    snprintf(sub, sizeof sub, "%s/a/b", dir);
    rmdir(sub);
    snprintf(sub, sizeof sub, "%s/a", dir);
    rmdir(sub);
    return rmdir(dir); /* fails when anything was left in it */
}

static long long blocks(void)
{
    struct stat st;
    assert_int_equal(fstat(file->fetch.fd, &st), 0);
    return (long long)st.st_blocks * 512;
}

static void check_back(uint64_t off, const unsigned char *expect, size_t size)
{
    memset(back, 0, size);
    assert_int_equal(pread(file->fetch.fd, back, size, (off_t)off), (ssize_t)size);
    assert_memory_equal(back, expect, size);
}

static void open_file(void)
{
    assert_int_equal(swn_spill_open(&file, &io, dir), 0);
}

static void no_names_left(void)
{
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        assert_true(!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."));
    closedir(d);
}

/* Where nothing has been yet. */
static int write_new(struct swn_extent_file *f, const void *buf, size_t size, uint64_t *off)
{
    *off = swn_spill_lay_out(f, size);
    return swn_spill_write(f, buf, size, *off);
}

static void writes_and_reads(void **state)
{
    (void)state;
    open_file();
    no_names_left();
    assert_string_equal(file->dir, dir);
    static const size_t sizes[] = {4096, 65536, BIG, 4096 * 3, 5 * MIB};
    uint64_t at[5], end = 0;
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(write_new(file, data + i * 4096 * (sizes[i] < BIG), sizes[i], &at[i]), 0);
        assert_int_equal(at[i], end);
        end += sizes[i];
        assert_int_equal(file->tail, end);
        assert_int_equal(file->live_bytes, end);
        assert_int_equal(file->written_bytes, end);
    }
    for (size_t i = 0; i < 5; i++)
        check_back(at[i], data + i * 4096 * (sizes[i] < BIG), sizes[i]);
    struct stat st;
    assert_int_equal(fstat(file->fetch.fd, &st), 0);
    assert_int_equal(st.st_nlink, 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, end);
}

static void drop_punches(void **state)
{
    (void)state;
    uint64_t a, b, c;
    open_file();
    assert_int_equal(write_new(file, data, 4 * MIB, &a), 0);
    assert_int_equal(write_new(file, data + MIB, MIB, &b), 0);
    assert_int_equal(write_new(file, data, 2 * MIB, &c), 0);
    long long full = blocks();
    assert_true(full >= (long long)(7 * MIB));
    swn_spill_drop(file, a, 4 * MIB);
    assert_true(blocks() <= full - (long long)(4 * MIB) + 65536);
    assert_int_equal(file->live_bytes, 3 * MIB);
    assert_int_equal(file->written_bytes, 7 * MIB);
    check_back(b, data + MIB, MIB);
    check_back(c, data, 2 * MIB);
    /* Offsets stay their owner's. */
    uint64_t d;
    assert_int_equal(write_new(file, data, MIB, &d), 0);
    assert_int_equal(d, 7 * MIB);
    swn_spill_drop(file, b, MIB);
    swn_spill_drop(file, c, 2 * MIB);
    swn_spill_drop(file, d, MIB);
    assert_int_equal(file->live_bytes, 0);
    assert_true(blocks() <= 65536);
}

static void expect_failure(int err)
{
    uint64_t off, live = file->live_bytes, written = file->written_bytes;
    long long before = blocks();
    assert_int_equal(write_new(file, data, BIG, &off), err);
    assert_int_equal(file->live_bytes, live);
    assert_int_equal(file->written_bytes, written);
    assert_true(blocks() <= before + 65536);
}

static void errors_leave_nothing(void **state)
{
    (void)state;
    static const int errors[] = {-ENOSPC, -EDQUOT, -EIO, -EFBIG, -EROFS};
    uint64_t first, next;
    for (int direct = 1; direct >= 0; direct--) {
        fault.no_direct = !direct;
        open_file();
        assert_true(direct || file->fetch.direct_fd == -1);
        fault.calls = fault.from = fault.to = 0;
        assert_int_equal(write_new(file, data + MIB, MIB, &first), 0);
        for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
            for (int nth = 0; nth < 3; nth++) {
                fault.calls = 0;
                fault.from = nth;
                fault.to = 1 << 30;
                fault.err = errors[i];
                expect_failure(errors[i]);
            }
        }
        fault.to = 0;
        /* Nothing is broken for good. */
        assert_int_equal(write_new(file, data, BIG, &next), 0);
        assert_true(next >= first + MIB);
        check_back(first, data + MIB, MIB);
        check_back(next, data, BIG);
        if (!direct) {
            fault.fsync_err = -EIO;
            expect_failure(-EIO);
            fault.fsync_err = 0;
        }
        swn_spill_close(file);
        file = NULL;
    }
}

static void repeats(void **state)
{
    (void)state;
    uint64_t off;
    open_file();
    static const int errors[] = {-EINTR, -EAGAIN, -EIO};
    for (size_t i = 0; i < 3; i++)
        for (int nth = 0; nth < 3; nth++) {
            fault.calls = 0;
            fault.from = nth;
            fault.to = nth + (errors[i] == -EIO ? SWN_IO_RETRIES : 50);
            fault.err = errors[i];
            assert_int_equal(write_new(file, data, BIG, &off), 0);
            assert_int_equal(fault.calls, 3 + fault.to - fault.from);
            check_back(off, data, BIG);
            swn_spill_drop(file, off, BIG);
        }
    fault.calls = fault.from = 0;
    fault.to = SWN_IO_RETRIES + 1;
    expect_failure(-EIO);
    assert_int_equal(fault.calls, SWN_IO_RETRIES + 1);
}

static void falls_back_to_the_cache(void **state)
{
    (void)state;
    uint64_t off;
    open_file();
    if (file->fetch.direct_fd < 0) {
        print_message("skipped: no O_DIRECT in the directory of the tests\n");
        skip();
    }
    for (int nth = 0; nth < 3; nth++) { /* a direct write refused, be it the first or a later one */
        fault.calls = 0;
        fault.from = nth;
        fault.to = nth + 1;
        fault.err = -EINVAL;
        assert_int_equal(write_new(file, data, BIG, &off), 0);
        assert_int_equal(fault.calls, nth + 1 + 3);
        check_back(off, data, BIG);
    }
    fault.calls = fault.from = 0;
    fault.to = 1 << 30;
    expect_failure(-EINVAL);
}

static void short_writes(void **state)
{
    (void)state;
    static const size_t counts[] = {4096, 8192, 65536, 65536 + 512, 4096 * 5 + 1};
    uint64_t off;
    for (int direct = 1; direct >= 0; direct--) {
        fault.no_direct = !direct;
        open_file();
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            for (int forever = 0; forever < 2; forever++) {
                size_t size = forever ? MIB + 4096 * 3 : BIG;
                fault.calls = 0;
                fault.from = forever ? 0 : 1;
                fault.to = forever ? 1 << 30 : 2;
                fault.err = 0;
                fault.shorten = counts[i];
                assert_int_equal(write_new(file, data, size, &off), 0);
                check_back(off, data, size);
                swn_spill_drop(file, off, size);
            }
        }
        /* No progress at all is an error, not a loop. */
        fault.calls = fault.from = 0;
        fault.to = 1 << 30;
        fault.shorten = 0;
        expect_failure(-EIO);
        if (direct && file->fetch.direct_fd >= 0) {
            fault.shorten = 512;
            expect_failure(-EIO);
        }
        fault.to = 0;
        swn_spill_close(file);
        file = NULL;
    }
}

static void without_tmpfile(void **state)
{
    (void)state;
    uint64_t off;
    fault.no_tmpfile = 1;
    open_file();
    no_names_left();
    assert_int_equal(write_new(file, data, MIB, &off), 0);
    check_back(off, data, MIB);
}

static void directories(void **state)
{
    (void)state;
    char path[5000];
    snprintf(path, sizeof path, "%s/a/b", dir);
    assert_int_equal(swn_spill_open(&file, &io, path), 0); /* made on the way */
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    swn_spill_close(file);
    file = NULL;

    snprintf(path, sizeof path, "%s/plain", dir);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(swn_spill_open(&file, &io, path), -ENOTDIR);
    strcat(path, "/below");
    assert_int_equal(swn_spill_open(&file, &io, path), -ENOTDIR);
    snprintf(path, sizeof path, "%s/plain", dir);
    assert_int_equal(unlink(path), 0);
    memset(path, 'x', sizeof path - 1);
    path[0] = '/';
    path[sizeof path - 1] = 0;
    assert_int_equal(swn_spill_open(&file, &io, path), -ENAMETOOLONG);
    fault.open_err = -EMFILE;
    assert_int_equal(swn_spill_open(&file, &io, dir), -EMFILE);
    fault.open_err = 0;

    /* Not ours to write: asked by a child that is nobody, should we be root. */
    assert_int_equal(chmod(dir, 0555), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        if (!geteuid() && (setgid(65534) || setuid(65534)))
            _exit(1);
        int rc = swn_spill_open(&file, &io, dir);
        snprintf(path, sizeof path, "%s/new", dir);
        int below = swn_spill_open(&file, &io, path);
        _exit(rc == -EACCES && below == -EACCES ? 0 : 2);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(chmod(dir, 0700), 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_null(file);
}

/* Dropped later, in stretches; and at once where there is no room otherwise. */
static void drops_later(void **state)
{
    (void)state;
    uint64_t off[4];
    open_file();
    swn_spill_defer(file);
    for (int i = 0; i < 4; i++)
        assert_int_equal(write_new(file, data, MIB, &off[i]), 0);
    long long full = blocks();
    swn_spill_drop(file, off[0], MIB);
    swn_spill_drop(file, off[1], MIB);
    swn_spill_drop(file, off[3], MIB);
    assert_int_equal(file->live_bytes, MIB);
    assert_int_equal(blocks(), full);
    assert_int_equal(swn_spill_punch(file), 1);
    assert_int_equal(swn_spill_punch(file), 1);
    assert_int_equal(swn_spill_punch(file), 0);
    assert_true(blocks() < full / 2);
    check_back(off[2], data, MIB);

    swn_spill_drop(file, off[2], MIB);
    fault.calls = 0;
    fault.to = 1;
    fault.err = -ENOSPC;
    assert_int_equal(write_new(file, data, MIB, &off[0]), 0);
    assert_int_equal(swn_spill_punch(file), 0);
    check_back(off[0], data, MIB);
}

/* An owner that writes to its place again finds no hole there later, whatever is dropped beside it. */
static void writes_where_it_was(void **state)
{
    (void)state;
    uint64_t off[3];
    open_file();
    swn_spill_defer(file);
    for (int i = 0; i < 3; i++)
        assert_int_equal(write_new(file, data, MIB, &off[i]), 0);
    long long full = blocks();
    swn_spill_drop(file, off[0], MIB);
    swn_spill_drop(file, off[2], MIB);
    assert_int_equal(swn_spill_write_again(file, data + MIB, MIB, off[1]), 0);
    assert_int_equal(file->live_bytes, MIB);
    assert_int_equal(file->written_bytes, 4 * MIB);
    while (swn_spill_punch(file))
        ;
    check_back(off[1], data + MIB, MIB);
    assert_true(blocks() < full / 2);
    assert_int_equal(file->tail, 3 * MIB);

    fault.calls = 0;
    fault.to = 1 << 30;
    fault.err = -EIO;
    assert_int_equal(swn_spill_write_again(file, data, MIB, off[1]), -EIO);
    assert_int_equal(file->live_bytes, 0);
    assert_true(blocks() <= 65536);
}

/* EFBIG, or offsets that file systems do not have; an empty file is not to be replaced. */
static void full(void **state)
{
    (void)state;
    uint64_t off;
    open_file();
    assert_int_equal(swn_spill_is_full(file), 0);
    assert_int_equal(write_new(file, data, MIB, &off), 0);
    assert_int_equal(swn_spill_is_full(file), 0);
    fault.calls = 0;
    fault.to = 1 << 30;
    fault.err = -EFBIG;
    assert_int_equal(write_new(file, data, MIB, &off), -EFBIG);
    assert_int_equal(swn_spill_is_full(file), 1);
    check_back(0, data, MIB);
    swn_spill_close(file);
    fault.to = 0;
    open_file();
    assert_int_equal(write_new(file, data, MIB, &off), 0);
    swn_spill_lay_out(file, (uint64_t)1 << 40);
    assert_int_equal(swn_spill_is_full(file), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(writes_and_reads, setup, teardown),
        cmocka_unit_test_setup_teardown(drop_punches, setup, teardown),
        cmocka_unit_test_setup_teardown(errors_leave_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(repeats, setup, teardown),
        cmocka_unit_test_setup_teardown(falls_back_to_the_cache, setup, teardown),
        cmocka_unit_test_setup_teardown(short_writes, setup, teardown),
        cmocka_unit_test_setup_teardown(without_tmpfile, setup, teardown),
        cmocka_unit_test_setup_teardown(directories, setup, teardown),
        cmocka_unit_test_setup_teardown(drops_later, setup, teardown),
        cmocka_unit_test_setup_teardown(writes_where_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(full, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
