/* A library whose constructor waits for a helper thread, which starts a thread of its own and makes the first call of
 * every function that swapnet stands before. The loader's lock is held meanwhile. */
#define _GNU_SOURCE
#include <aio.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static int failed;

static void *leaf(void *unused)
{
    return unused;
}

static void need(int what)
{
    failed += !what;
}

static void files(void)
{
    char bytes[2][64];
    struct iovec v[2] = {{bytes[0], 1}, {bytes[1], 1}};
    int fd = open("/proc/self/exe", O_RDONLY), null = open("/dev/null", O_WRONLY);
    need(fd >= 0 && null >= 0);
    need(read(fd, bytes, 64) == 64 && pread(fd, bytes, 64, 0) == 64 && pread64(fd, bytes, 64, 0) == 64);
    need(readv(fd, v, 2) == 2 && preadv(fd, v, 2, 0) == 2 && preadv64(fd, v, 2, 0) == 2);
    need(preadv2(fd, v, 2, 0, 0) == 2 && preadv64v2(fd, v, 2, 0, 0) == 2);
    need(write(null, bytes, 1) == 1 && writev(null, v, 2) == 2);
    struct aiocb cb = {.aio_fildes = fd, .aio_buf = bytes, .aio_nbytes = 8};
    const struct aiocb *list[] = {&cb};
    need(!aio_read(&cb) && !aio_suspend(list, 1, NULL) && aio_return(&cb) == 8);
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    need(at != MAP_FAILED && !munmap(at, 4096));
    FILE *f = fopen("/proc/self/exe", "re");
    need(f && fread(bytes, 1, 64, f) == 64 && fread_unlocked(bytes, 1, 1, f) == 1 && !fclose(f));
    need(!close(fd) && !close(null));
}

static void sockets(void)
{
    char bytes[64] = "x";
    struct iovec v = {bytes, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    int pair[2];
    need(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    need(send(pair[0], bytes, 1, 0) == 1 && sendto(pair[0], bytes, 1, 0, NULL, 0) == 1 && sendmsg(pair[0], &m, 0) == 1);
    need(recv(pair[1], bytes, 1, 0) == 1 && recvfrom(pair[1], bytes, 1, 0, NULL, NULL) == 1);
    need(recvmsg(pair[1], &m, 0) == 1);
    close(pair[0]);
    close(pair[1]);
}

static void signals(void)
{
    struct sigaction act;
    sigset_t set;
    need(!sigaction(SIGUSR1, NULL, &act) && !sigaction(SIGSEGV, NULL, &act));
    need(signal(SIGUSR2, SIG_IGN) != SIG_ERR);
    need(!pthread_sigmask(SIG_BLOCK, NULL, &set) && !sigprocmask(SIG_BLOCK, NULL, &set));
    struct rlimit limit;
    need(!getrlimit(RLIMIT_CORE, &limit) && !setrlimit(RLIMIT_CORE, &limit));
}

static void *helper(void *unused)
{
    pthread_t t;
    need(!pthread_create(&t, NULL, leaf, NULL) && !pthread_join(t, NULL));
    files();
    sockets();
    signals();
    return unused;
}

__attribute__((constructor)) static void constructor(void)
{
    pthread_t t;
    need(!pthread_create(&t, NULL, helper, NULL) && !pthread_join(t, NULL));
}

int calls_that_failed(void);
int calls_that_failed(void)
{
    return failed;
}
