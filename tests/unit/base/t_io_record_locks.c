/* Description: record locks that a program holds on a file survive when another descriptor of that file is closed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io_record_locks.h"

static struct swn_io io;
static char path[] = "/tmp/swn-locks-XXXXXX";
static int held; /* the program's own descriptor */

static int setup(void **state)
{
    (void)state;
    swn_keep_locks(&io, &swn_io_sys);
    held = mkstemp(path);
    return held < 0 || ftruncate(held, 100);
}

static int teardown(void **state)
{
    (void)state;
    close(held);
    return unlink(path);
}

static int set(int fd, int command, short type, off_t start, off_t len)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    return fcntl(fd, command, &lock);
}

static int is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* Whether another process finds the byte locked. */
static int locked_for_others(off_t byte)
{
    int status;
    pid_t child = fork();
    if (!child) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
        _exit(fcntl(held, F_GETLK, &lock) ? 2 : lock.l_type != F_UNLCK);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status);
}

static int open_again(void)
{
    int fd = io.open(io.ctx, path, O_RDONLY | O_CLOEXEC, 0);
    assert_true(fd >= 0);
    return fd;
}

static void test_closes_where_there_is_no_lock(void **state)
{
    (void)state;
    int fd = open_again();
    assert_int_equal(io.close(io.ctx, fd), 0);
    assert_false(is_open(fd));
}

static void test_lock_survives(void **state)
{
    (void)state;
    const short types[] = {F_WRLCK, F_RDLCK};
    for (int i = 0; i < 2; i++) {
        int fd = open_again(), other = open_again();
        assert_int_equal(set(held, F_SETLK, types[i], 10, 5), 0);
        assert_int_equal(io.close(io.ctx, fd), 0);
        assert_true(locked_for_others(12));
        /* once it is gone, the next close takes along what waits */
        assert_int_equal(set(held, F_SETLK, F_UNLCK, 0, 0), 0);
        assert_int_equal(io.close(io.ctx, other), 0);
        assert_false(is_open(fd) || is_open(other));
    }
}

static void test_lock_behind_others(void **state)
{
    (void)state;
    int description = open(path, O_RDWR | O_CLOEXEC), fd = open_again();
    assert_int_equal(set(description, F_OFD_SETLK, F_WRLCK, 0, 10), 0);
    assert_int_equal(set(held, F_SETLK, F_WRLCK, 20, 5), 0);
    assert_int_equal(io.close(io.ctx, fd), 0);
    assert_true(locked_for_others(22));
    assert_int_equal(set(held, F_SETLK, F_UNLCK, 0, 0), 0);
    int last = open_again();
    assert_int_equal(io.close(io.ctx, last), 0); /* a lock of another kind is not in the way */
    assert_false(is_open(fd) || is_open(last));
    close(description);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closes_where_there_is_no_lock),
        cmocka_unit_test(test_lock_survives),
        cmocka_unit_test(test_lock_behind_others),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
