/* Description: only regular files are opened: what else there is, devices and FIFOs, is told without opening it. The
 * limit of files is an error and no signal. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/file_io.h"

static char dir[] = "/tmp/t_file_io-XXXXXX";
static int opened; /* otherwise than for a look */

static int count_opens(void *ctx, const char *path, int flags, mode_t mode)
{
    opened += !(flags & O_PATH);
    return swn_io_sys.open(ctx, path, flags, mode);
}

static void test_only_regular_files_are_opened(void **state)
{
    (void)state;
    struct swn_io io = swn_io_sys;
    char fifo[PATH_MAX], link[PATH_MAX], file[PATH_MAX], why[SWN_ERRMSG];
    io.open = count_opens;
    snprintf(fifo, sizeof fifo, "%s/.swapnet-0123456789abcdef.tmp", dir); /* named as one of ours that is left over */
    snprintf(link, sizeof link, "%s/link", dir);
    snprintf(file, sizeof file, "%s/file", dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(symlink("file", link), 0);

    assert_int_equal(swn_open_regular(&io, fifo, 0, why), -EINVAL);
    assert_non_null(strstr(why, "not a regular file"));
    assert_int_equal(swn_open_regular(&io, "/dev/null", 0, NULL), -EINVAL);
    assert_int_equal(swn_open_regular(&io, dir, 0, NULL), -EINVAL);
    assert_int_equal(swn_open_regular(&io, link, O_NOFOLLOW, NULL), -ELOOP);
    assert_int_equal(swn_open_regular(&io, link, 0, NULL), -ENOENT);
    swn_atomic_file_clean(&io, dir);
    assert_int_equal(opened, 0);

    int made = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(made >= 0 && !close(made));
    int fd = swn_open_regular(&io, link, 0, why);
    assert_true(fd >= 0 && opened == 1 && !(fcntl(fd, F_GETFL) & O_NONBLOCK));
    close(fd);
    unlink(fifo);
    unlink(link);
    unlink(file);
}

/* In a child with a limit of a MiB, as a program that is not prepared for SIGXFSZ. 0: all was refused, and the rest
 * goes on. */
static int meets_the_limit(void)
{
    const struct swn_io *io = &swn_io_sys;
    char byte = 1;
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, 1 << 20});
    int fd = swn_open_unlinked(io, dir);
    return fd < 0 || io->pwrite(io->ctx, fd, &byte, 1, 1 << 20) != -EFBIG ||
           io->ftruncate(io->ctx, fd, 2 << 20) != -EFBIG || io->fallocate(io->ctx, fd, 0, 1 << 20, 4096) != -EFBIG ||
           io->pwrite(io->ctx, fd, &byte, 1, (1 << 20) - 1) != 1 || io->ftruncate(io->ctx, fd, 4096);
}

static void test_the_limit_of_files_is_an_error_only(void **state)
{
    (void)state;
    int status = -1;
    pid_t child = fork();
    if (!child)
        _exit(meets_the_limit());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_only_regular_files_are_opened),
                                       cmocka_unit_test(test_the_limit_of_files_is_an_error_only)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
