/* Description: descriptors that the program closed behind our back: noticed, never used, never closed a second time. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/wakeup_pipe.h"
#include "base/io.h"
#include "base/fd_registry.h"
#include "tests/unit/support/kernel_does.h"

static char ours[] = "/tmp/t_fd_registry.XXXXXX", theirs[] = "/tmp/t_fd_registry.XXXXXX";

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
    assert_int_equal(swn_fd_is_ours(fd), 0);
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
    assert_int_equal(swn_fd_is_ours(next), 1);
    assert_int_equal(swn_fd_is_ours(lost), 0);
    assert_int_equal(io->close(NULL, lost), -EBADF);
    assert_int_equal(io->close(NULL, next), 0);
    assert_int_equal(fcntl(next, F_GETFD), -1);
}

static void strangers(void **state)
{
    (void)state;
    int fd = open(theirs, O_RDONLY | O_CLOEXEC);
    assert_int_equal(swn_fd_is_ours(fd), 1); /* not ours to judge */
    assert_int_equal(swn_fd_is_ours(-1), 1);
    assert_int_equal(swn_fd_registry(-1), -1);
    close(fd);
}

static void many(void **state)
{
    int fd[600];
    (void)state;
    for (int i = 0; i < 600; i++)
        fd[i] = swn_fd_registry(open(ours, O_RDONLY | O_CLOEXEC));
    for (int i = 0; i < 600; i++)
        if (fd[i] >= 0) {
            assert_int_equal(swn_fd_is_ours(fd[i]), 1);
            assert_int_equal(swn_fd_registry_close(fd[i]), 0);
        }
}

static void bells(void **state)
{
    struct swn_wakeup_pipe b;
    (void)state;
    assert_int_equal(swn_wakeup_pipe_open(&b), 0);
    struct pollfd p = {.fd = swn_wakeup_pipe_poll_fd(&b), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 0), 0);
    for (int i = 0; i < 70000; i++) /* more than a pipe holds */
        assert_int_equal(swn_wakeup_pipe_signal(&b), 0);
    assert_int_equal(poll(&p, 1, 0), 1);
    assert_int_equal(swn_wakeup_pipe_drain(&b), 1);
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_int_equal(swn_wakeup_pipe_drain(&b), 0);
    take(b.in);
    assert_int_equal(swn_wakeup_pipe_signal(&b), -EBADF);
    int in = b.in;
    swn_wakeup_pipe_close(&b);
    assert_untouched(in);
    assert_int_equal(swn_wakeup_pipe_poll_fd(&b), -1);
}

/* What a close of many goes around. */
static void the_first(void **state)
{
    (void)state;
    int low = swn_fd_registry(open(ours, O_RDONLY | O_CLOEXEC)),
        lost = swn_fd_registry(open(ours, O_RDONLY | O_CLOEXEC));
    int high = swn_fd_registry(fcntl(low, F_DUPFD_CLOEXEC, 700)), theirs_fd = open(theirs, O_RDONLY | O_CLOEXEC);
    assert_int_equal(swn_fd_registry_first(0, INT_MAX), low);
    assert_int_equal(swn_fd_registry_first(low, low), low);
    assert_int_equal(swn_fd_registry_first(low + 1, high), lost);
    take(lost);
    assert_int_equal(swn_fd_registry_first(low + 1, INT_MAX), high);
    assert_int_equal(swn_fd_registry_first(low + 1, high - 1), -1);
    assert_int_equal(swn_fd_registry_first(theirs_fd, theirs_fd), -1);
    assert_int_equal(swn_fd_registry_first(high + 1, INT_MAX), -1);
    assert_int_equal(swn_fd_registry_close(lost), -EBADF);
    assert_int_equal(swn_fd_registry_close(high) | swn_fd_registry_close(low), 0);
    assert_int_equal(swn_fd_registry_first(0, INT_MAX), -1);
    close(theirs_fd);
    close(lost);
}

/* A file without a name is gone with its last descriptor, and its inode is the next file's. */
static void an_inode_taken(void **state)
{
    (void)state;
    char path[] = "/var/tmp/t_fd_registry.XXXXXX", other[] = "/var/tmp/t_fd_registry.XXXXXX";
    struct stat before, after;
    int fd = swn_fd_registry(mkstemp(path));
    assert_int_equal(unlink(path) | fstat(fd, &before), 0);
    close(fd);
    int next = mkstemp(other);
    assert_int_equal(unlink(other) | fstat(next, &after), 0);
    assert_int_equal(next, fd);
    assert_true(after.st_ino != before.st_ino || after.st_dev != before.st_dev);
    assert_int_equal(swn_fd_is_ours(fd), 0);
    assert_int_equal(swn_fd_registry_close(fd), -EBADF);
    assert_int_equal(close(next), 0);
}

/* Once lost it is nobody's, whatever is there by now. */
static void lost_for_good(void **state)
{
    (void)state;
    int fd = swn_fd_registry(open(ours, O_RDONLY | O_CLOEXEC)), same = open(ours, O_RDONLY | O_CLOEXEC);
    close(fd);
    assert_int_equal(swn_fd_is_ours(fd), 0);
    assert_int_equal(dup2(same, fd), fd);
    assert_int_equal(swn_fd_is_ours(fd), 0);
    assert_int_equal(swn_fd_registry_first(fd, fd), -1);
    assert_int_equal(swn_fd_registry_close(fd), -EBADF);
    assert_int_equal(close(fd) | close(same), 0);
}

static int without_streams(void)
{
    close(0), close(1), close(2);
    int first = swn_fd_registry(open(ours, O_RDONLY | O_CLOEXEC)),
        second = swn_fd_registry(open(ours, O_RDONLY | O_CLOEXEC));
    return first < 3 || second < 3 || !swn_fd_is_ours(first) || swn_fd_registry_first(0, 2) >= 0 ||
           fcntl(0, F_GETFD) != -1;
}

/* A program that was begun without them opens its own there, one after the other. */
static void standard_streams(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    if (!child)
        _exit(without_streams());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* As in kernels before 5.18: a ring cannot be held without a descriptor. */
static int refuse_ring_numbers(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_register, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IORING_REGISTER_RING_FDS, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* 0: as it should be; 77: there are no rings here, or nothing can be refused. */
static int rings(void)
{
    const struct swn_io *io = &swn_io_sys;
    struct io_uring ring;
    char text[16];
    if (!swn_probe_rings() || refuse_ring_numbers())
        return 77;
    if (io->ring_setup(NULL, &ring, 4))
        return 5;
    int fd = ring.ring_fd, file = open(theirs, O_RDWR | O_CLOEXEC);
    if (fd < 0 || swn_fd_registry_first(fd, fd) != fd)
        return 1;
    io->ring_exit(NULL, &ring);
    if (fcntl(fd, F_GETFD) != -1 || swn_fd_registry_first(fd, fd) >= 0)
        return 2;
    if (io->ring_setup(NULL, &ring, 4) || dup2(file, ring.ring_fd) != ring.ring_fd)
        return 3;
    fd = ring.ring_fd;
    io->ring_exit(NULL, &ring);
    return pread(fd, text, sizeof text, 0) == 6 ? 0 : 4;
}

static void rings_with_a_number(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    if (!child)
        _exit(rings());
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_taken),
        cmocka_unit_test(no_number_twice),
        cmocka_unit_test(strangers),
        cmocka_unit_test(many),
        cmocka_unit_test(bells),
        cmocka_unit_test(the_first),
        cmocka_unit_test(an_inode_taken),
        cmocka_unit_test(lost_for_good),
        cmocka_unit_test(standard_streams),
        cmocka_unit_test(rings_with_a_number),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
