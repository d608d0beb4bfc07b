/* Calls every function that swapnet stands before with NULL and extreme arguments, and writes down what came of it: the
 * result, errno, and how the process ended, should it end. A process with swapnet has to write the same lines.
 *
 * Each function is called in a child of its own, as some calls end the process, with or without swapnet. Lines go to
 * memory that parent and children share: some calls close all descriptors. */
#define _GNU_SOURCE
#include <aio.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

/* What it is about. */
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define PAGE 4096
#define LENGTH ((size_t)1 << 20)
#define UNTOUCHED 4242 /* errno before each call */
#define ZEROCOPY 0x4000000
#define HOW_LONG_S 20

static char *text;     /* shared with the children */
static size_t *length; /* of it */
static char *mine;     /* memory of a tensor's, or of the program's */
static size_t far;     /* from there to the end of what a process may have: the kernel takes no length beyond */

/* Volatile: the compiler knows which functions take no NULL. */
static void *volatile nil;
static void *volatile low = (void *)8;
static void *volatile top = (void *)-1;
static char *volatile edge; /* a page without access; the bytes before it may be read and written */

static int bytes_fd, sink, pipe_in, pipe_out, sockets[2];

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    __builtin_va_list args;
    __builtin_va_start(args, format);
    int n = vsnprintf(text + *length, LENGTH - *length, format, args);
    __builtin_va_end(args);
    *length += n > 0 && *length + (size_t)n < LENGTH ? (size_t)n : 0;
}

/* The call as a line. A place of memory is none of the result. */
#define CALL(call)                                                                                                     \
    do {                                                                                                               \
        errno = UNTOUCHED;                                                                                             \
        long call_gave = (long)(call);                                                                                 \
        say_number(#call, call_gave);                                                                                  \
    } while (0)
#define PLACE(call)                                                                                                    \
    do {                                                                                                               \
        errno = UNTOUCHED;                                                                                             \
        void *call_gave = (void *)(call);                                                                              \
        say_place(#call, call_gave);                                                                                   \
    } while (0)

static void say_number(const char *call, long gave)
{
    int err = errno;
    say("    %s = %ld, errno %d\n", call, gave, err);
}

static void say_place(const char *call, const void *gave)
{
    int err = errno;
    say("    %s = %s, errno %d\n", call, gave == MAP_FAILED ? "-1" : gave ? "a place" : "NULL", err);
}

static void open_all(void)
{
    int ends[2];
    char some[100] = "some bytes";
    bytes_fd = memfd_create("bytes", 0);
    sink = memfd_create("sink", 0);
    if (write(bytes_fd, some, 100) != 100 || pipe2(ends, O_NONBLOCK) ||
        socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, sockets))
        _exit(9);
    pipe_in = ends[1];
    pipe_out = ends[0];
}

static void rewind_all(void)
{
    lseek(bytes_fd, 0, SEEK_SET);
    lseek(sink, 0, SEEK_SET);
}

/* One buffer. */
#define ONE(call, ...)                                                                                                 \
    do {                                                                                                               \
        rewind_all();                                                                                                  \
        CALL(call(-1, mine, 1 __VA_ARGS__));                                                                           \
        CALL(call(INT_MIN, mine, 1 __VA_ARGS__));                                                                      \
        CALL(call(fd, nil, 0 __VA_ARGS__));                                                                            \
        CALL(call(fd, nil, 10 __VA_ARGS__));                                                                           \
        CALL(call(fd, low, 10 __VA_ARGS__));                                                                           \
        CALL(call(fd, top, 10 __VA_ARGS__));                                                                           \
        CALL(call(fd, edge, 10 __VA_ARGS__));                                                                          \
        CALL(call(fd, edge - 5, 10 __VA_ARGS__));                                                                      \
        CALL(call(fd, mine, 0 __VA_ARGS__));                                                                           \
        CALL(call(-1, mine, SIZE_MAX __VA_ARGS__));                                                                    \
    } while (0)
/* More than any file has: the kernel takes less. */
#define TOO_MUCH(call, ...)                                                                                            \
    do {                                                                                                               \
        rewind_all();                                                                                                  \
        CALL(call(fd, mine, SIZE_MAX __VA_ARGS__));                                                                    \
        CALL(call(fd, mine, SSIZE_MAX __VA_ARGS__));                                                                   \
        CALL(call(fd, mine, far __VA_ARGS__));                                                                         \
    } while (0)
#define AT(call)                                                                                                       \
    do {                                                                                                               \
        CALL(call(fd, mine, 1, -1));                                                                                   \
        CALL(call(fd, mine, 1, INT64_MIN));                                                                            \
        CALL(call(fd, mine, 0, INT64_MAX));                                                                            \
        CALL(call(pipe_in, mine, 1, 0));                                                                               \
    } while (0)

/* A vector of buffers. */
#define VECTOR(call, ...)                                                                                              \
    do {                                                                                                               \
        struct iovec whole = {mine, SIZE_MAX}, wild[] = {{mine, 1}, {low, 10}}, *last = (void *)(edge - sizeof *last); \
        struct iovec two[] = {{mine, SSIZE_MAX}, {mine, SSIZE_MAX}};                                                   \
        *last = (struct iovec){mine, 1};                                                                               \
        rewind_all();                                                                                                  \
        CALL(call(-1, &whole, 1 __VA_ARGS__));                                                                         \
        CALL(call(fd, nil, 0 __VA_ARGS__));                                                                            \
        CALL(call(fd, nil, 1 __VA_ARGS__));                                                                            \
        CALL(call(fd, low, 1 __VA_ARGS__));                                                                            \
        CALL(call(fd, top, 1 __VA_ARGS__));                                                                            \
        CALL(call(fd, (void *)edge, 1 __VA_ARGS__));                                                                   \
        CALL(call(fd, last, 2 __VA_ARGS__));                                                                           \
        CALL(call(fd, last, -1 __VA_ARGS__));                                                                          \
        CALL(call(fd, last, IOV_MAX __VA_ARGS__));                                                                     \
        CALL(call(fd, last, IOV_MAX + 1 __VA_ARGS__));                                                                 \
        CALL(call(fd, &whole, 1 __VA_ARGS__));                                                                         \
        CALL(call(fd, two, 2 __VA_ARGS__));                                                                            \
        CALL(call(fd, wild, 2 __VA_ARGS__));                                                                           \
        CALL(call(fd, wild, 0 __VA_ARGS__));                                                                           \
    } while (0)
#define VECTOR_AT(call, ...)                                                                                           \
    do {                                                                                                               \
        struct iovec v = {mine, 1};                                                                                    \
        CALL(call(fd, &v, 1, INT64_MIN __VA_ARGS__));                                                                  \
        CALL(call(fd, &v, 1, -2 __VA_ARGS__));                                                                         \
    } while (0)
#define MANY(call)                                                                                                     \
    do {                                                                                                               \
        struct iovec v[] = {{mine, SSIZE_MAX}};                                                                        \
        rewind_all();                                                                                                  \
        CALL(call(fd, v, 1));                                                                                          \
        v[0].iov_len = far;                                                                                            \
        CALL(call(fd, v, 1));                                                                                          \
    } while (0)

#define COMMA ,
#define TEST(name) static void try_##name(void)
/* A test whose steps are macros that know the descriptor as fd. */
#define OF(file, name, steps)                                                                                          \
    TEST(name)                                                                                                         \
    {                                                                                                                  \
        int fd = file;                                                                                                 \
        steps;                                                                                                         \
    }

OF(bytes_fd, read, ONE(read); TOO_MUCH(read))
OF(bytes_fd, pread, ONE(pread, COMMA 0); TOO_MUCH(pread, COMMA 0); AT(pread))
OF(bytes_fd, pread64, ONE(pread64, COMMA 0); TOO_MUCH(pread64, COMMA 0); AT(pread64))
OF(bytes_fd, readv, VECTOR(readv); MANY(readv))
OF(bytes_fd, preadv, VECTOR(preadv, COMMA 0); VECTOR_AT(preadv))
OF(bytes_fd, preadv64, VECTOR(preadv64, COMMA 0); VECTOR_AT(preadv64))
OF(bytes_fd, preadv2, VECTOR(preadv2, COMMA 0 COMMA 0); VECTOR_AT(preadv2, COMMA - 1))
OF(bytes_fd, preadv64v2, VECTOR(preadv64v2, COMMA 0 COMMA 0); VECTOR_AT(preadv64v2, COMMA - 1))
OF(sink, write, ONE(write))
OF(sink, pwrite, ONE(pwrite, COMMA 0); AT(pwrite))
OF(sink, pwrite64, ONE(pwrite64, COMMA 0); AT(pwrite64))
OF(sink, writev, VECTOR(writev))
OF(sink, pwritev, VECTOR(pwritev, COMMA 0); VECTOR_AT(pwritev))
OF(sink, pwritev64, VECTOR(pwritev64, COMMA 0); VECTOR_AT(pwritev64))
OF(sink, pwritev2, VECTOR(pwritev2, COMMA 0 COMMA 0); VECTOR_AT(pwritev2, COMMA - 1))
OF(sink, pwritev64v2, VECTOR(pwritev64v2, COMMA 0 COMMA 0); VECTOR_AT(pwritev64v2, COMMA - 1))

TEST(vmsplice)
{
    int fd = pipe_in;
    VECTOR(vmsplice, COMMA 0);
    struct iovec v = {mine, 1};
    CALL(vmsplice(pipe_in, &v, 1, UINT_MAX));
    CALL(vmsplice(pipe_in, &v, SIZE_MAX, 0));
    CALL(vmsplice(bytes_fd, &v, 1, 0));
}

TEST(process_vm_readv)
{
    struct iovec here = {mine, 8}, there = {mine + 64, 8}, whole = {mine, SIZE_MAX};
    struct iovec *last = (void *)(edge - sizeof *last);
    *last = here;
    pid_t me = getpid();
    CALL(process_vm_readv(-1, &here, 1, &there, 1, 0));
    CALL(process_vm_readv(me, nil, 1, &there, 1, 0));
    CALL(process_vm_readv(me, nil, 0, nil, 0, 0));
    CALL(process_vm_readv(me, low, 1, &there, 1, 0));
    CALL(process_vm_readv(me, (void *)edge, 1, &there, 1, 0));
    CALL(process_vm_readv(me, last, 2, &there, 1, 0));
    CALL(process_vm_readv(me, &here, 1, low, 1, 0));
    CALL(process_vm_readv(me, &here, ULONG_MAX, &there, 1, 0));
    CALL(process_vm_readv(me, &whole, 1, &there, 1, 0));
    CALL(process_vm_readv(me, &here, 1, &there, 1, ULONG_MAX));
    CALL(process_vm_readv(me, &here, 1, &there, 1, 0));
}

TEST(syscall)
{
    struct iovec here = {mine, 8}, there = {mine + 64, 8};
    long me = getpid(), nobody = -1, read_there = SYS_process_vm_readv;
    CALL(syscall(-1L));
    CALL(syscall(LONG_MAX));
    CALL(syscall(SYS_close, -1));
    CALL(syscall(SYS_mprotect, top, ULONG_MAX, ULONG_MAX));
    CALL(syscall(SYS_read, bytes_fd, nil, 0UL));
    CALL(syscall(read_there, nobody, &here, 1UL, &there, 1UL, 0UL));
    CALL(syscall(read_there, me, nil, 1UL, &there, 1UL, 0UL));
    CALL(syscall(read_there, me, low, 1UL, &there, 1UL, 0UL));
    CALL(syscall(read_there, me, (void *)edge, 1UL, &there, 1UL, 0UL));
    CALL(syscall(read_there, me, &here, ULONG_MAX, &there, 1UL, 0UL));
    CALL(syscall(read_there, me, &here, 1UL, &there, 1UL, ULONG_MAX));
    CALL(syscall(read_there, me, &here, 1UL, &there, 1UL, 0UL));
}

#define STREAM(call)                                                                                                   \
    do {                                                                                                               \
        FILE *f = fdopen(dup(bytes_fd), "r"), *out = fdopen(dup(sink), "w");                                           \
        CALL(call(nil, 0, 0, nil));                                                                                    \
        CALL(call(nil, 0, 5, f));                                                                                      \
        CALL(call(mine, SIZE_MAX, 0, f));                                                                              \
        CALL(call(mine, 0, SIZE_MAX, f));                                                                              \
        CALL(call(mine, 1, 1, out));                                                                                   \
        rewind(f);                                                                                                     \
        CALL(call(mine, 1, SIZE_MAX, f));                                                                              \
        rewind(f);                                                                                                     \
        CALL(call(mine, SIZE_MAX, 1, f));                                                                              \
        rewind(f);                                                                                                     \
        CALL(call(mine, SIZE_MAX, 2, f));                                                                              \
        rewind(f);                                                                                                     \
        CALL(call(mine, (size_t)1 << 33, (size_t)1 << 33, f));                                                         \
        rewind(f);                                                                                                     \
        CALL(call(nil, 1, 10, f));                                                                                     \
    } while (0)
TEST(fread)
{
    STREAM(fread);
}
#undef fread_unlocked
TEST(fread_unlocked)
{
    STREAM(fread_unlocked);
}

static int send_one(void)
{
    return (int)syscall(SYS_sendto, sockets[0], "x", 1, 0, NULL, 0);
}

#define EMPTY_AND(call, ...)                                                                                           \
    do {                                                                                                               \
        CALL(call(sockets[1], mine, 10, 0 __VA_ARGS__));                                                               \
        void *volatile wild[] = {nil, low, top, edge};                                                                 \
        for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {                                                      \
            send_one();                                                                                                \
            CALL(call(sockets[1], wild[i], 10, 0 __VA_ARGS__));                                                        \
            CALL(call(sockets[1], mine, SIZE_MAX, 0 __VA_ARGS__));                                                     \
        }                                                                                                              \
        CALL(call(-1, mine, SIZE_MAX, 0 __VA_ARGS__));                                                                 \
        CALL(call(bytes_fd, mine, 1, 0 __VA_ARGS__));                                                                  \
        CALL(call(sockets[1], mine, 1, -1 __VA_ARGS__));                                                               \
    } while (0)
TEST(recv)
{
    EMPTY_AND(recv);
}
TEST(recvfrom)
{
    EMPTY_AND(recvfrom, COMMA nil COMMA nil);
    send_one();
    CALL(recvfrom(sockets[1], mine, 1, 0, low, low));
}

#define SENDER(call, ...)                                                                                              \
    do {                                                                                                               \
        int flags[] = {0, ZEROCOPY};                                                                                   \
        void *volatile wild[] = {nil, low, top, edge};                                                                 \
        for (int i = 0; i < 8; i++) {                                                                                  \
            CALL(call(sockets[0], wild[i / 2], 10, flags[i % 2] __VA_ARGS__));                                         \
            CALL(call(sockets[0], mine, SIZE_MAX, flags[i % 2] __VA_ARGS__));                                          \
            CALL(call(-1, wild[i / 2], SIZE_MAX, flags[i % 2] __VA_ARGS__));                                           \
        }                                                                                                              \
        CALL(call(sockets[0], mine, 1, -1 __VA_ARGS__));                                                               \
        CALL(call(bytes_fd, mine, 1, ZEROCOPY __VA_ARGS__));                                                           \
    } while (0)
TEST(send)
{
    SENDER(send);
}
TEST(sendto)
{
    SENDER(sendto, COMMA nil COMMA 0);
    CALL(sendto(sockets[0], mine, 1, ZEROCOPY, low, 100));
    CALL(sendto(sockets[0], mine, 1, 0, low, UINT_MAX));
}

#define MESSAGE(call)                                                                                                  \
    do {                                                                                                               \
        struct iovec good = {mine, 1}, whole = {mine, SIZE_MAX}, wild = {low, 1};                                      \
        struct {                                                                                                       \
            void *volatile v;                                                                                          \
            size_t n;                                                                                                  \
        } vectors[] = {{nil, 0},   {nil, 1},   {low, 1},    {top, 1},          {edge, 1},                              \
                       {&good, 1}, {&wild, 1}, {&whole, 1}, {&good, SIZE_MAX}, {&good, IOV_MAX + 1}};                  \
        int flags[] = {0, ZEROCOPY};                                                                                   \
        for (int f = 0; f < 2; f++) {                                                                                  \
            CALL(call(sockets[side], nil, flags[f]));                                                                  \
            CALL(call(sockets[side], low, flags[f]));                                                                  \
            CALL(call(sockets[side], top, flags[f]));                                                                  \
            CALL(call(sockets[side], (void *)edge, flags[f]));                                                         \
            CALL(call(sockets[side], (void *)(edge - 8), flags[f]));                                                   \
            CALL(call(-1, nil, flags[f]));                                                                             \
            for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {                                            \
                struct msghdr m = {.msg_iov = vectors[i].v, .msg_iovlen = vectors[i].n};                               \
                if (side)                                                                                              \
                    send_one();                                                                                        \
                CALL(call(sockets[side], &m, flags[f]));                                                               \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)
TEST(sendmsg)
{
    int side = 0;
    MESSAGE(sendmsg);
}
TEST(recvmsg)
{
    int side = 1;
    MESSAGE(recvmsg);
}

#define MESSAGES(call, ...)                                                                                            \
    do {                                                                                                               \
        struct iovec good = {mine, 1};                                                                                 \
        struct mmsghdr *last = (void *)(edge - sizeof *last);                                                          \
        void *volatile vectors[] = {&good, nil, low, edge};                                                            \
        int flags[] = {0, ZEROCOPY};                                                                                   \
        for (int f = 0; f < 2; f++) {                                                                                  \
            CALL(call(sockets[side], nil, 0, flags[f] __VA_ARGS__));                                                   \
            CALL(call(sockets[side], nil, 1, flags[f] __VA_ARGS__));                                                   \
            CALL(call(sockets[side], low, 1, flags[f] __VA_ARGS__));                                                   \
            CALL(call(sockets[side], (void *)edge, 1, flags[f] __VA_ARGS__));                                          \
            CALL(call(-1, nil, UINT_MAX, flags[f] __VA_ARGS__));                                                       \
            for (int i = 0; i < 12; i++) {                                                                             \
                *last = (struct mmsghdr){.msg_hdr = {.msg_iov = vectors[i / 3], .msg_iovlen = i == 1 ? SIZE_MAX : 1}}; \
                if (side)                                                                                              \
                    send_one();                                                                                        \
                CALL(call(sockets[side], last, i % 3 == 0 ? 1 : i % 3 == 1 ? 2 : UINT_MAX, flags[f] __VA_ARGS__));     \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)
TEST(sendmmsg)
{
    int side = 0;
    MESSAGES(sendmmsg);
}
TEST(recvmmsg)
{
    int side = 1;
    MESSAGES(recvmmsg, COMMA nil);
}

/* libaio's, which is not there: the system call, whose errors are its results. */
static int submit(aio_context_t context, long n, struct iocb **list)
{
    static int (*theirs)(aio_context_t, long, struct iocb **);
    *(void **)&theirs = dlsym(RTLD_DEFAULT, "io_submit");
    if (theirs)
        return theirs(context, n, list);
    int before = errno, done = (int)syscall(SYS_io_submit, context, n, list);
    done = done < 0 ? -errno : done;
    errno = before;
    return done;
}

TEST(io_submit)
{
    aio_context_t context = 0;
    struct iovec wild = {low, 1};
    if (syscall(SYS_io_setup, 8, &context)) {
        say("    no queue\n");
        return;
    }
    struct iocb good = {.aio_fildes = (unsigned)bytes_fd, .aio_lio_opcode = IOCB_CMD_PREAD, .aio_nbytes = 1};
    struct iocb bad = {.aio_fildes = UINT_MAX, .aio_lio_opcode = IOCB_CMD_PREADV, .aio_nbytes = 1};
    struct iocb vector = {.aio_fildes = (unsigned)bytes_fd, .aio_lio_opcode = IOCB_CMD_PREADV, .aio_nbytes = 1};
    good.aio_buf = (uintptr_t)mine;
    vector.aio_buf = (uintptr_t)low;
    struct iocb **last = (void *)(edge - sizeof *last);
    *last = &good;
    CALL(submit(0, 1, last));
    CALL(submit(context, 0, NULL));
    CALL(submit(context, 1, NULL));
    CALL(submit(context, 1, low));
    CALL(submit(context, 1, (void *)edge));
    CALL(submit(context, -1, last));
    CALL(submit(context, 1, (struct iocb *[]){NULL}));
    CALL(submit(context, 1, (struct iocb *[]){low}));
    CALL(submit(context, 1, (struct iocb *[]){&bad}));
    CALL(submit(context, 1, (struct iocb *[]){&vector}));
    vector.aio_buf = (uintptr_t)&wild;
    CALL(submit(context, 1, (struct iocb *[]){&vector}));
    vector.aio_nbytes = UINT64_MAX;
    CALL(submit(context, 1, (struct iocb *[]){&vector}));
    good.aio_nbytes = UINT64_MAX;
    CALL(submit(context, 1, last));
    good.aio_nbytes = 1;
    CALL(submit(context, 2, last));
    CALL(submit(context, LONG_MAX, last));
}

#define QUEUED(call, cb, buf, fd)                                                                                      \
    do {                                                                                                               \
        struct cb one = {.aio_fildes = fd, .aio_buf = mine, .aio_nbytes = 1, .aio_reqprio = -1};                       \
        one.aio_sigevent.sigev_notify = SIGEV_NONE;                                                                    \
        CALL(call(&one));                                                                                              \
        CALL(aio_error((struct aiocb *)&one));                                                                         \
        one.aio_reqprio = 0;                                                                                           \
        one.aio_nbytes = buf;                                                                                          \
        for (int i = 0; i < 3; i++) {                                                                                  \
            const struct aiocb *list[] = {(struct aiocb *)&one};                                                       \
            one.aio_fildes = i == 1 ? -1 : fd;                                                                         \
            one.aio_buf = i == 2 ? low : mine;                                                                         \
            CALL(call(&one));                                                                                          \
            aio_suspend(list, 1, NULL);                                                                                \
            CALL(aio_error(list[0]));                                                                                  \
            CALL(aio_return((struct aiocb *)&one));                                                                    \
        }                                                                                                              \
    } while (0)
TEST(aio_read)
{
    QUEUED(aio_read, aiocb, SIZE_MAX, bytes_fd);
}
TEST(aio_read64)
{
    QUEUED(aio_read64, aiocb64, SIZE_MAX, bytes_fd);
}
TEST(aio_write)
{
    QUEUED(aio_write, aiocb, 1, sink);
}
TEST(aio_write64)
{
    QUEUED(aio_write64, aiocb64, 1, sink);
}

TEST(close)
{
    int fds[] = {-1, INT_MIN, INT_MAX, 99999, bytes_fd, bytes_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        CALL(close(fds[i]));
}
TEST(close_range)
{
    CALL(close_range(5, 3, 0));
    CALL(close_range(UINT_MAX, UINT_MAX, 0));
    CALL(close_range(UINT_MAX, UINT_MAX, -1));
    CALL(close_range(100000, UINT_MAX, 1 << 30));
    CALL(close_range(INT_MAX, UINT_MAX, 0));
    CALL(close_range((unsigned)sink, UINT_MAX, 4));
    CALL(fcntl(sink, F_GETFD));
    CALL(close_range((unsigned)bytes_fd, (unsigned)bytes_fd, 2));
    CALL(fcntl(bytes_fd, F_GETFD));
    CALL(close_range(0, UINT_MAX, 0));
    CALL(fcntl(sink, F_GETFD));
}
TEST(closefrom)
{
    CALL((closefrom(INT_MAX), 0));
    CALL(fcntl(sink, F_GETFD));
    CALL((closefrom(INT_MIN), 0));
    CALL(fcntl(0, F_GETFD));
}
TEST(dup2)
{
    CALL(dup2(-1, 100));
    CALL(dup2(sink, -1));
    CALL(dup2(sink, INT_MAX));
    CALL(dup2(INT_MIN, INT_MIN));
    CALL(dup2(99999, 99999));
    CALL(dup2(sink, sink) == sink);
    CALL(dup2(sink, 2));
}
TEST(dup3)
{
    CALL(dup3(-1, 100, 0));
    CALL(dup3(sink, -1, 0));
    CALL(dup3(sink, INT_MAX, 0));
    CALL(dup3(sink, sink, 0));
    CALL(dup3(sink, 100, -1));
    CALL(dup3(sink, 2, O_CLOEXEC));
}

#define MAPPER(call)                                                                                                   \
    do {                                                                                                               \
        int both = PROT_READ | PROT_WRITE;                                                                             \
        PLACE(call(nil, 0, both, MAP_PRIVATE, bytes_fd, 0));                                                           \
        PLACE(call(nil, SIZE_MAX, both, MAP_PRIVATE, bytes_fd, 0));                                                    \
        PLACE(call(nil, SIZE_MAX, PROT_READ, MAP_PRIVATE, bytes_fd, 0));                                               \
        PLACE(call(nil, (size_t)1 << 62, both, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));                                   \
        PLACE(call(nil, PAGE, both, MAP_PRIVATE, -1, 0));                                                              \
        PLACE(call(nil, PAGE, PROT_READ, MAP_PRIVATE, INT_MIN, 0));                                                    \
        PLACE(call(nil, (size_t)2 << 20, PROT_READ, MAP_PRIVATE, INT_MAX, 0));                                         \
        PLACE(call(nil, (size_t)2 << 20, both, MAP_PRIVATE, pipe_in, 0));                                              \
        PLACE(call(nil, PAGE, both, MAP_PRIVATE, bytes_fd, 1));                                                        \
        PLACE(call(nil, PAGE, both, MAP_PRIVATE, bytes_fd, -PAGE));                                                    \
        PLACE(call(nil, (size_t)2 << 20, both, MAP_PRIVATE, bytes_fd, INT64_MAX / PAGE * PAGE));                       \
        PLACE(call(nil, PAGE, -1, MAP_PRIVATE, bytes_fd, 0));                                                          \
        PLACE(call(nil, PAGE, both, 0, bytes_fd, 0));                                                                  \
        PLACE(call(low, PAGE, both, MAP_PRIVATE | MAP_FIXED, bytes_fd, 0));                                            \
        PLACE(call(top, PAGE, both, MAP_PRIVATE, bytes_fd, 0));                                                        \
        PLACE(call(nil, (size_t)2 << 20, both, MAP_PRIVATE, bytes_fd, 0));                                             \
    } while (0)
TEST(mmap)
{
    MAPPER(mmap);
}
TEST(mmap64)
{
    MAPPER(mmap64);
}
TEST(munmap)
{
    size_t len = (size_t)2 << 20;
    char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, bytes_fd, 0);
    CALL(munmap(nil, 0));
    CALL(munmap(nil, SIZE_MAX));
    CALL(munmap(low, PAGE));
    CALL(munmap(top, 1));
    CALL(munmap(at + 1, len));
    CALL(munmap(at, 0));
    CALL(munmap(at, SIZE_MAX));
    CALL(munmap(at, SIZE_MAX - PAGE));
    CALL(munmap(mine + 1, 10));
    CALL(munmap(mine, 0));
    CALL(munmap(mine, SIZE_MAX));
    CALL(at[0] + mine[0] * 0);
    CALL(munmap(at, len));
    CALL(munmap(at, len));
}
TEST(mremap)
{
    size_t len = (size_t)2 << 20;
    char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, bytes_fd, 0);
    PLACE(mremap(nil, 0, 0, 0));
    PLACE(mremap(low, PAGE, PAGE, 0));
    PLACE(mremap(top, 1, PAGE, 0));
    PLACE(mremap(at + 1, PAGE, PAGE, 0));
    PLACE(mremap(at, len, 0, 0));
    PLACE(mremap(at, len, SIZE_MAX - PAGE, MREMAP_MAYMOVE));
    PLACE(mremap(at, len, len, -1, nil));
    PLACE(mremap(at, len, len, MREMAP_FIXED, nil));
    PLACE(mremap(at, len, len, MREMAP_FIXED | MREMAP_MAYMOVE, at + 1));
    CALL(at[0] * 0);
    CALL(munmap(at, len));
}
TEST(madvise)
{
    int advice[] = {MADV_NORMAL, MADV_DONTNEED, MADV_FREE, MADV_WIPEONFORK, 24, -1, INT_MAX};
    char *at = mmap(NULL, (size_t)2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE, bytes_fd, 0);
    for (size_t i = 0; i < sizeof advice / sizeof *advice; i++) {
        CALL(madvise(nil, 0, advice[i]));
        CALL(madvise(low, PAGE, advice[i]));
        CALL(madvise(top, 1, advice[i]));
        CALL(madvise(at, SIZE_MAX, advice[i]));
        CALL(madvise(at, SIZE_MAX - PAGE, advice[i]));
        CALL(madvise(at + 1, PAGE, advice[i]));
        CALL(madvise(at, 0, advice[i]));
        CALL(madvise(edge, PAGE, advice[i]));
        CALL(madvise(mine + 1, PAGE, advice[i]));
        CALL(madvise(mine, SIZE_MAX, advice[i]));
    }
}
TEST(mlockall)
{
    CALL(mlockall(0));
    CALL(mlockall(-1));
    CALL(mlockall(8));
    CALL(mlockall(MCL_ONFAULT));
}

#define LIMITER(call, ...)                                                                                             \
    do {                                                                                                               \
        struct rlimit backwards = {2, 1}, *last = (void *)(edge - 8);                                                  \
        CALL(call(__VA_ARGS__ - 1, &backwards LAST));                                                                  \
        CALL(call(__VA_ARGS__ 9999, &backwards LAST));                                                                 \
        CALL(call(__VA_ARGS__ INT_MIN, nil LAST));                                                                     \
        CALL(call(__VA_ARGS__ RLIMIT_AS, nil LAST));                                                                   \
        CALL(call(__VA_ARGS__ RLIMIT_AS, low LAST));                                                                   \
        CALL(call(__VA_ARGS__ RLIMIT_AS, top LAST));                                                                   \
        CALL(call(__VA_ARGS__ RLIMIT_AS, (void *)edge LAST));                                                          \
        CALL(call(__VA_ARGS__ RLIMIT_AS, last LAST));                                                                  \
        CALL(call(__VA_ARGS__ RLIMIT_AS, &backwards LAST));                                                            \
        CALL(call(__VA_ARGS__ RLIMIT_CORE, &backwards LAST));                                                          \
    } while (0)
#define LAST
typedef int (*set_fn)(int, const void *);
TEST(setrlimit)
{
    set_fn set = (set_fn)setrlimit;
    LIMITER(set, );
}
TEST(setrlimit64)
{
    set_fn set = (set_fn)setrlimit64;
    LIMITER(set, );
}
#undef LAST
#define LAST , nil
#define OF_A_PROCESS(call)                                                                                             \
    do {                                                                                                               \
        LIMITER(call, 0, );                                                                                            \
        CALL(call(-1, RLIMIT_AS, nil, nil));                                                                           \
        CALL(call(INT_MAX, RLIMIT_AS, low, low));                                                                      \
        CALL(call(getpid(), RLIMIT_AS, low, low));                                                                     \
        CALL(call(0, RLIMIT_AS, nil, low));                                                                            \
    } while (0)
typedef int (*set_of_fn)(pid_t, int, const void *, void *);
TEST(prlimit)
{
    set_of_fn set = (set_of_fn)prlimit;
    OF_A_PROCESS(set);
}
TEST(prlimit64)
{
    set_of_fn set = (set_of_fn)prlimit64;
    OF_A_PROCESS(set);
}

static void *leaf(void *arg)
{
    return arg;
}

TEST(pthread_create)
{
    pthread_attr_t attr;
    pthread_t thread;
    void *result = NULL;
    cpu_set_t none;
    CPU_ZERO(&none);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, (size_t)1 << 62);
    CALL(pthread_create(&thread, &attr, leaf, nil));
    pthread_attr_setstacksize(&attr, (size_t)64 << 10);
    pthread_attr_setaffinity_np(&attr, sizeof none, &none);
    CALL(pthread_create(&thread, &attr, leaf, nil));
    CALL(pthread_create(&thread, nil, leaf, top));
    CALL(pthread_join(thread, &result));
    CALL(result == top);
    /* Ends the process, in either thread; so what it returns may or may not be told. */
    pthread_create(&thread, nil, (void *(*)(void *))nil, nil);
    pause();
}

#define MASKS(call)                                                                                                    \
    do {                                                                                                               \
        sigset_t set, old;                                                                                             \
        sigemptyset(&set);                                                                                             \
        CALL(call(-1, nil, nil));                                                                                      \
        CALL(call(99, nil, &old));                                                                                     \
        CALL(call(99, &set, nil));                                                                                     \
        CALL(call(INT_MIN, &set, &old));                                                                               \
        CALL(call(SIG_BLOCK, nil, nil));                                                                               \
        CALL(call(SIG_SETMASK, &set, nil));                                                                            \
    } while (0)
TEST(sched_yield)
{
    CALL(sched_yield());
}

TEST(pthread_sigmask)
{
    MASKS(pthread_sigmask);
}
TEST(sigprocmask)
{
    MASKS(sigprocmask);
}
TEST(pthread_attr_setsigmask_np)
{
    pthread_attr_t attr;
    sigset_t set, got;
    pthread_attr_init(&attr);
    CALL(pthread_attr_getsigmask_np(&attr, &got));
    sigfillset(&set);
    CALL(pthread_attr_setsigmask_np(&attr, &set));
    CALL(pthread_attr_getsigmask_np(&attr, &got));
    CALL(pthread_attr_setsigmask_np(&attr, nil));
    CALL(pthread_attr_getsigmask_np(&attr, &got));
}

static const int numbers[] = {INT_MIN, -1, 0, SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGUSR1, 32, 33, 64, 65, INT_MAX};
#define EACH_NUMBER(i) for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)

TEST(sigaction)
{
    EACH_NUMBER(i)
    {
        struct sigaction act = {.sa_handler = SIG_IGN}, old;
        memset(&act.sa_mask, -1, sizeof act.sa_mask);
        say("    of %d\n", numbers[i]);
        CALL(sigaction(numbers[i], nil, nil));
        CALL(sigaction(numbers[i], &act, nil));
        CALL(sigaction(numbers[i], nil, &old));
        act.sa_flags = -1 & ~SA_SIGINFO;
        CALL(sigaction(numbers[i], &act, &old));
        act.sa_handler = SIG_ERR;
        CALL(sigaction(numbers[i], &act, &old));
        CALL(sigaction(numbers[i], &act, &old) ? 0 : old.sa_handler == SIG_ERR);
    }
}

static void handler(int sig)
{
    (void)sig;
}

#define INSTALLER(call)                                                                                                \
    do {                                                                                                               \
        EACH_NUMBER(i)                                                                                                 \
        {                                                                                                              \
            struct sigaction act = {.sa_flags = 0};                                                                    \
            int sig = numbers[i];                                                                                      \
            say("    of %d\n", sig);                                                                                   \
            CALL(call(sig, SIG_ERR));                                                                                  \
            CALL(call(sig, SIG_IGN) == SIG_ERR);                                                                       \
            CALL(call(sig, SIG_ERR));                                                                                  \
            CALL(call(sig, handler));                                                                                  \
            CALL(sigaction(sig, NULL, &act) ? 0 : act.sa_flags &(SA_RESTART | (int)SA_RESETHAND | SA_NODEFER));        \
            CALL(call(sig, SIG_DFL) == handler);                                                                       \
        }                                                                                                              \
    } while (0)
sighandler_t bsd_signal(int sig, sighandler_t handler);
sighandler_t __sysv_signal(int sig, sighandler_t handler);
TEST(signal)
{
    INSTALLER(signal);
}
TEST(bsd_signal)
{
    INSTALLER(bsd_signal);
}
TEST(ssignal)
{
    INSTALLER(ssignal);
}
TEST(sysv_signal)
{
    INSTALLER(sysv_signal);
}
TEST(__sysv_signal)
{
    INSTALLER(__sysv_signal);
}
TEST(sigset)
{
    INSTALLER(sigset);
}
TEST(sighold)
{
    EACH_NUMBER(i) CALL(sighold(numbers[i]));
}
TEST(sigignore)
{
    EACH_NUMBER(i) CALL(sigignore(numbers[i]));
}
TEST(sigblock)
{
    CALL(sigblock(0));
    CALL(sigblock(-1) & ~(1 << (SIGSEGV - 1)));
    CALL(sigblock(INT_MIN) & ~(1 << (SIGSEGV - 1))); /* SIGSEGV is never blocked */
}
TEST(sigsetmask)
{
    CALL(sigsetmask(0));
    CALL(sigsetmask(-1) & ~(1 << (SIGSEGV - 1)));
    CALL(sigsetmask(INT_MIN) & ~(1 << (SIGSEGV - 1)));
}

TEST(setcontext)
{
    CALL(setcontext(nil));
    CALL(setcontext(low));
    CALL(setcontext((void *)edge));
}
TEST(swapcontext)
{
    static ucontext_t here;
    CALL(swapcontext(&here, nil));
    CALL(swapcontext(&here, low));
    CALL(swapcontext(&here, (void *)edge));
}

/* Where the program is linked with a CUDA runtime. */
#ifdef WITH_CUDA
int cudaHostRegister(void *p, size_t bytes, unsigned flags);
int cudaHostUnregister(void *p);
TEST(cudaHostRegister)
{
    CALL(cudaHostRegister(nil, 0, 0));
    CALL(cudaHostRegister(nil, SIZE_MAX, 0));
    CALL(cudaHostRegister(mine, 0, 0));
    CALL(cudaHostRegister(mine, SIZE_MAX, 0));
    CALL(cudaHostRegister(top, 1, UINT_MAX));
}
TEST(cudaHostUnregister)
{
    CALL(cudaHostUnregister(nil));
    CALL(cudaHostUnregister(top));
    CALL(cudaHostUnregister(mine));
}
#endif

#define EACH(name)                                                                                                     \
    {                                                                                                                  \
#name, try_##name                                                                                              \
    }
static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
    EACH(read),
    EACH(pread),
    EACH(pread64),
    EACH(readv),
    EACH(preadv),
    EACH(preadv64),
    EACH(preadv2),
    EACH(preadv64v2),
    EACH(write),
    EACH(pwrite),
    EACH(pwrite64),
    EACH(writev),
    EACH(pwritev),
    EACH(pwritev64),
    EACH(pwritev2),
    EACH(pwritev64v2),
    EACH(vmsplice),
    EACH(process_vm_readv),
    EACH(syscall),
    EACH(fread),
    EACH(fread_unlocked),
    EACH(recv),
    EACH(recvfrom),
    EACH(recvmsg),
    EACH(recvmmsg),
    EACH(send),
    EACH(sendto),
    EACH(sendmsg),
    EACH(sendmmsg),
    EACH(io_submit),
    EACH(aio_read),
    EACH(aio_read64),
    EACH(aio_write),
    EACH(aio_write64),
    EACH(close),
    EACH(close_range),
    EACH(closefrom),
    EACH(dup2),
    EACH(dup3),
    EACH(mmap),
    EACH(mmap64),
    EACH(munmap),
    EACH(mremap),
    EACH(madvise),
    EACH(mlockall),
    EACH(setrlimit),
    EACH(setrlimit64),
    EACH(prlimit),
    EACH(prlimit64),
    EACH(pthread_create),
    EACH(sched_yield),
    EACH(pthread_sigmask),
    EACH(sigprocmask),
    EACH(pthread_attr_setsigmask_np),
    EACH(sigaction),
    EACH(signal),
    EACH(bsd_signal),
    EACH(ssignal),
    EACH(sysv_signal),
    EACH(__sysv_signal),
    EACH(sigset),
    EACH(sighold),
    EACH(sigignore),
    EACH(sigblock),
    EACH(sigsetmask),
    EACH(setcontext),
    EACH(swapcontext),
#ifdef WITH_CUDA
    EACH(cudaHostRegister),
    EACH(cudaHostUnregister),
#endif
};

static void in_a_child(size_t i)
{
    int status = 0;
    say("%s\n", tests[i].name);
    pid_t pid = fork();
    if (!pid) {
        alarm(HOW_LONG_S);
        open_all();
        tests[i].run();
        _exit(0);
    }
    waitpid(pid, &status, 0);
    if (status)
        say("    ended by signal %d, or with %d\n", WTERMSIG(status), WEXITSTATUS(status));
}

/* The lines, for whoever has loaded this as a library. memory: 64 KiB that may be written to. */
const char *hostile_calls(void *memory);
const char *hostile_calls(void *memory)
{
    int both = PROT_READ | PROT_WRITE;
    mine = memory;
    far = ((uintptr_t)1 << 47) - PAGE - (uintptr_t)memory;
    text = mmap(NULL, LENGTH, both, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    length = mmap(NULL, PAGE, both, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *pages = mmap(NULL, (size_t)2 * PAGE, both, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (text == MAP_FAILED || length == MAP_FAILED || pages == MAP_FAILED || mprotect(pages + PAGE, PAGE, PROT_NONE))
        return "";
    edge = pages + PAGE;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        in_a_child(i);
    return text;
}

int main(void)
{
    static char memory[64 << 10] __attribute__((aligned(PAGE)));
    return puts(hostile_calls(memory)) < 0;
}
