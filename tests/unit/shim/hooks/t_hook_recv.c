/* Description: a system call that writes into a tensor of a mapped file pins it, whichever call it is. */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cmocka.h>

#include "shim/hooks/hooks.h"
#include "skeleton/core/op_window.h"
#include "skeleton/engine/section.h"
#include "skeleton/load/mapped_file.h"

#define WEIGHTS 4u
#define BYTES (2 * MIB)
#define BUDGET (24 * MIB)

static struct swn_engine *const e = &swn_engine_one;

static int ends[2]; /* of a connection */
static struct tensor target;

static ssize_t by_read(void *at, size_t n)
{
    return read(ends[0], at, n);
}

static ssize_t by_recv(void *at, size_t n)
{
    return recv(ends[0], at, n, 0);
}

static ssize_t by_fread(void *at, size_t n)
{
    FILE *f = fdopen(dup(ends[0]), "re");
    CHECK(f && !setvbuf(f, NULL, _IONBF, 0));
    size_t got = fread(at, 1, n, f);
    fclose(f);
    return (ssize_t)got;
}

static ssize_t by_readv(void *at, size_t n)
{
    struct iovec two[2] = {{at, n / 2}, {(char *)at + n / 2, n - n / 2}};
    return readv(ends[0], two, 2);
}

static ssize_t by_recvmsg(void *at, size_t n)
{
    struct iovec one = {at, n};
    struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1};
    return recvmsg(ends[0], &m, 0);
}

static ssize_t by_recvmmsg(void *at, size_t n)
{
    struct iovec one = {at, n};
    struct mmsghdr m = {.msg_hdr = {.msg_iov = &one, .msg_iovlen = 1}};
    return recvmmsg(ends[0], &m, 1, 0, NULL) == 1 ? (ssize_t)m.msg_len : -1;
}

static ssize_t (*const calls[])(void *at, size_t n) = {by_read, by_recv, by_fread, by_readv, by_recvmsg, by_recvmmsg};

#define RECEIVED 64u

static void *receive(void *call)
{
    CHECK(calls[*(unsigned *)call]((void *)target.own, RECEIVED) == RECEIVED);
    return NULL;
}

static int receiving(void)
{
    swn_lock(&e->lock);
    int n = swn_arena_find(e->arena, swn_round_up(target.own, SWN_PAGE))->receiving;
    swn_unlock(&e->lock);
    return n;
}

static void name_of(char *name, unsigned i)
{
    sprintf(name, "layer%u.weight", i);
}

/* The operator that makes a range of it. */
static void use(void)
{
    struct swn_op op = {.name = "aten::test", .n = 1};
    op.args[0] =
        (struct swn_arg){.mapped = 1, .data = target.own, .bytes = BYTES, .upto = BYTES, .use = SWN_USE_WEIGHT};
    swn_engine_op_begin(&op);
    CHECK(tensor_right(&target, target.own));
    swn_engine_op_end(&op);
}

static void begin(void)
{
    uint64_t data_off;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    int fd = weights_file(WEIGHTS, BYTES, name_of, &data_off);
    size_t len = data_off + WEIGHTS * BYTES;
    char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(at != MAP_FAILED);
    swn_mapped_file_begin(at, len, fd, 0);
    target = (struct tensor){.own = (uintptr_t)at + data_off + 2 * BYTES, .len = BYTES, .stamp = 102};
    swn_engine_after_alloc();
    use();
}

/* A weight of a mapped file is not made read-only while the kernel waits for what it will write there. */
static void received(void *arg)
{
    char bytes[RECEIVED];
    (void)arg;
    begin();
    CHECK(swn_hooks_may_receive(target.own) && !swn_hooks_may_receive((uintptr_t)bytes));
    memcpy(bytes, (void *)target.own, RECEIVED);
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, receive, &i));
        while (!receiving()) /* the test's time is up if it never is */
            usleep(1000);
        CHECK(send(ends[1], bytes, RECEIVED, 0) == RECEIVED);
        CHECK(!pthread_join(thread, NULL));
        CHECK(receiving() == 0);
    }
    use();
}

IN_A_CHILD(received, 10)

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_received)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
