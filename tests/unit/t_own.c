/* Description: descriptors that the program closed behind our back: noticed, never used, never closed a second time. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "swn_bell.h"
#include "swn_io.h"
#include "swn_own.h"

static char ours[] = "/tmp/t_own.XXXXXX", theirs[] = "/tmp/t_own.XXXXXX";

static int make_files(void **state)
{
    (void)state;
    int a = mkstemp(ours), b = mkstemp(theirs);
    int bad = a < 0 || b < 0 || write(a, "ours", 4) != 4 || write(b, "theirs", 6) != 6;
    close(a);
    close(b);
    return bad;
}

static int remove_files(void **state)
{
    (void)state;
    return unlink(ours) | unlink(theirs);
}

/* The program's: closes fd and opens its own file under that number. */
static void take(int fd)
{
    int file = open(theirs, O_RDWR | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(dup2(file, fd), fd);
    close(file);
}

static void assert_untouched(int fd)
{
    char text[16];
    assert_int_equal(pread(fd, text, sizeof text, 0), 6);
    assert_memory_equal(text, "theirs", 6);
    close(fd);
}

static void a_number_taken(void **state)
{
    const struct swn_io *io = &swn_io_sys;
    char text[4];
    struct stat st;
    void *at = NULL;
    (void)state;
    int fd = io->open(NULL, ours, O_RDWR | O_CLOEXEC, 0);
    assert_int_equal(io->pread(NULL, fd, text, 4, 0), 4);
    take(fd);
    assert_int_equal(swn_owns(fd), 0);
    assert_int_equal(io->pread(NULL, fd, text, 4, 0), -EBADF);
    assert_int_equal(io->pwrite(NULL, fd, "x", 1, 0), -EBADF);
    assert_int_equal(io->fstat(NULL, fd, &st), -EBADF);
    assert_int_equal(io->fsync(NULL, fd), -EBADF);
    assert_int_equal(io->ftruncate(NULL, fd, 0), -EBADF);
    assert_int_equal(io->fallocate(NULL, fd, 0, 0, 1 << 20), -EBADF);
    assert_int_equal(io->fadvise(NULL, fd, 0, 0, POSIX_FADV_DONTNEED), -EBADF);
    assert_int_equal(io->mmap(NULL, &at, 4096, PROT_READ, MAP_PRIVATE, fd, 0), -EBADF);
    assert_int_equal(io->close(NULL, fd), -EBADF);
    assert_untouched(fd);
}

/* Whoever still holds a number that was taken must not find another file of ours there. */
static void no_number_twice(void **state)
{
    const struct swn_io *io = &swn_io_sys;
    (void)state;
    int lost = io->open(NULL, ours, O_RDONLY | O_CLOEXEC, 0);
    close(lost);
    int next = io->open(NULL, theirs, O_RDONLY | O_CLOEXEC, 0);
    assert_true(next >= 0 && next != lost);
    assert_int_equal(swn_owns(next), 1);
    assert_int_equal(swn_owns(lost), 0);
    assert_int_equal(io->close(NULL, lost), -EBADF);
    assert_int_equal(io->close(NULL, next), 0);
    assert_int_equal(fcntl(next, F_GETFD), -1);
}

static void strangers(void **state)
{
    (void)state;
    int fd = open(theirs, O_RDONLY | O_CLOEXEC);
    assert_int_equal(swn_owns(fd), 1); /* not ours to judge */
    assert_int_equal(swn_owns(-1), 1);
    assert_int_equal(swn_own(-1), -1);
    close(fd);
}

static void many(void **state)
{
    int fd[600];
    (void)state;
    for (int i = 0; i < 600; i++)
        fd[i] = swn_own(open(ours, O_RDONLY | O_CLOEXEC));
    for (int i = 0; i < 600; i++)
        if (fd[i] >= 0) {
            assert_int_equal(swn_owns(fd[i]), 1);
            assert_int_equal(swn_own_close(fd[i]), 0);
        }
}

static void bells(void **state)
{
    struct swn_bell b;
    (void)state;
    assert_int_equal(swn_bell_open(&b), 0);
    struct pollfd p = {.fd = swn_bell_poll_fd(&b), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 0), 0);
    for (int i = 0; i < 70000; i++) /* more than a pipe holds */
        assert_int_equal(swn_bell_ring(&b), 0);
    assert_int_equal(poll(&p, 1, 0), 1);
    assert_int_equal(swn_bell_hush(&b), 1);
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_int_equal(swn_bell_hush(&b), 0);
    take(b.in);
    assert_int_equal(swn_bell_ring(&b), -EBADF);
    int in = b.in;
    swn_bell_close(&b);
    assert_untouched(in);
    assert_int_equal(swn_bell_poll_fd(&b), -1);
}

/* What a close of many goes around. */
static void the_first(void **state)
{
    (void)state;
    int low = swn_own(open(ours, O_RDONLY | O_CLOEXEC)), lost = swn_own(open(ours, O_RDONLY | O_CLOEXEC));
    int high = swn_own(fcntl(low, F_DUPFD_CLOEXEC, 700)), theirs_fd = open(theirs, O_RDONLY | O_CLOEXEC);
    assert_int_equal(swn_own_first(0, INT_MAX), low);
    assert_int_equal(swn_own_first(low, low), low);
    assert_int_equal(swn_own_first(low + 1, high), lost);
    take(lost);
    assert_int_equal(swn_own_first(low + 1, INT_MAX), high);
    assert_int_equal(swn_own_first(low + 1, high - 1), -1);
    assert_int_equal(swn_own_first(theirs_fd, theirs_fd), -1);
    assert_int_equal(swn_own_first(high + 1, INT_MAX), -1);
    assert_int_equal(swn_own_close(lost), -EBADF);
    assert_int_equal(swn_own_close(high) | swn_own_close(low), 0);
    assert_int_equal(swn_own_first(0, INT_MAX), -1);
    close(theirs_fd);
    close(lost);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_taken), cmocka_unit_test(no_number_twice), cmocka_unit_test(strangers),
        cmocka_unit_test(many),           cmocka_unit_test(bells),           cmocka_unit_test(the_first),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
