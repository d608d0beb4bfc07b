/* Description: the ways to memory that the processor and a GPU share, on stand-ins for every kind of device, which end
 * the program when one of the device's rules is broken. */
#define _GNU_SOURCE
#include "skeleton/device/unified.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/fakes/cuda/standin.h"

#define BYTES ((size_t)1 << 20)

static struct swn_cuda cuda;

static const struct {
    const char *device, *backend; /* that it gets unasked; NULL: none */
    const char *others[2];        /* and could have */
} rows[] = {
    {"nano", "managed", {NULL}},
    {"xavier", "registered", {"managed"}},
    {"orin", "registered", {"managed"}},
    {"thor", "pageable", {"registered", "managed"}},
    {"discrete", NULL, {"registered", "managed"}},
};
#define ROWS (sizeof rows / sizeof rows[0])

static const enum swn_config_unified wishes[] = {SWN_CONFIG_UNIFIED_PAGEABLE, SWN_CONFIG_UNIFIED_REGISTERED,
                                                 SWN_CONFIG_UNIFIED_MANAGED};

static int is_one_of(const char *name, size_t row)
{
    for (size_t i = 0; i < 2; i++)
        if (rows[row].others[i] && !strcmp(rows[row].others[i], name))
            return 1;
    return rows[row].backend && !strcmp(rows[row].backend, name);
}

static void chosen(void **state)
{
    struct swn_unified_traits traits;
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        standin_be(rows[i].device);
        assert_int_equal(swn_unified_traits_get(&cuda, 0, &traits), 0);
        const struct swn_unified_backend *b = swn_unified_choose(&traits, SWN_CONFIG_UNIFIED_AUTO);
        assert_int_equal(b != NULL, rows[i].backend != NULL);
        if (b)
            assert_string_equal(b->name, rows[i].backend);
        assert_null(swn_unified_choose(&traits, SWN_CONFIG_UNIFIED_OFF));
        for (size_t w = 0; w < 3; w++) {
            const char *name = swn_config_unified_name((int)wishes[w]);
            b = swn_unified_choose(&traits, wishes[w]);
            assert_int_equal(b != NULL, is_one_of(name, i));
            if (b)
                assert_string_equal(b->name, name);
        }
    }
    assert_int_not_equal(swn_unified_traits_get(&cuda, 7, &traits), 0);
    assert_int_equal(cudaGetLastError(), 0); /* PyTorch must not take it for a kernel's */
}

static void launch(const struct swn_unified_block *b, unsigned us)
{
    const void *at = b->device;
    standin_launch(NULL, us, &at, &b->bytes, 1);
}

/* One block of every backend that a device knows, while a kernel reads the one before. */
static void used(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS * 3; i++) {
        struct swn_unified_traits traits;
        standin_be(rows[i / 3].device);
        assert_int_equal(swn_unified_traits_get(&cuda, 0, &traits), 0);
        const struct swn_unified_backend *way = swn_unified_choose(&traits, wishes[i % 3]);
        struct swn_unified_block blocks[4] = {{0}};
        for (int n = 0; way && n < 4; n++) {
            struct swn_unified_block *b = &blocks[n];
            b->bytes = BYTES;
            if (way->shares)
                b->host = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            assert_int_equal(way->open(&cuda, &traits, b), 0);
            assert_int_equal((uintptr_t)b->host % 4096, 0);
            memset(b->host, n + 1, BYTES);
            assert_int_equal(way->hand_over(&cuda, &traits, b), 0);
            launch(b, 2000);
        }
        for (int n = 0; way && n < 4; n++) {
            assert_int_equal(*(char *)standin_view(blocks[n].device), n + 1);
            void *host = blocks[n].host;
            assert_int_equal(way->close(&cuda, &blocks[n]), 0); /* not while the kernels run */
            if (way->shares) {
                memset(host, 9, BYTES);
                munmap(host, BYTES);
            }
        }
        assert_int_equal(standin_live(STANDIN_REGISTERED) + standin_live(STANDIN_MANAGED), 0);
    }
}

/* Every call that can fail, fails once: nothing is left behind, and the runtime has no error for PyTorch to find. */
static void failing(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS * 3; i++) {
        struct swn_unified_traits traits;
        standin_be(rows[i / 3].device);
        assert_int_equal(swn_unified_traits_get(&cuda, 0, &traits), 0);
        const struct swn_unified_backend *way = swn_unified_choose(&traits, wishes[i % 3]);
        void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int failed = 1;
        for (unsigned n = 1; way && failed; n++) {
            struct swn_unified_block b = {.host = way->shares ? memory : NULL, .bytes = BYTES};
            standin_fail(n);
            int err = way->open(&cuda, &traits, &b), handed = err ? 0 : way->hand_over(&cuda, &traits, &b);
            failed = err || handed;
            standin_fail(0);
            if (!err)
                assert_int_equal(way->close(&cuda, &b), 0);
            assert_int_equal(standin_live(STANDIN_REGISTERED) + standin_live(STANDIN_MANAGED), 0);
            assert_int_equal(cudaGetLastError(), 0);
            assert_true(n < 5);
        }
        munmap(memory, BYTES);
    }
}

/* The rules are rules: breaking one ends the program. */
static int ends(void (*test)(void))
{
    pid_t pid = fork();
    if (!pid) {
        for (int sig = 1; sig < 32; sig++)
            signal(sig, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        alarm(20);
        test();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) || WEXITSTATUS(status) != 0; /* a sanitizer's exit status is its own */
}

static struct swn_unified_block made(const char *device, enum swn_config_unified wish, int hand_over)
{
    struct swn_unified_traits traits;
    struct swn_unified_block b = {.bytes = BYTES};
    standin_be(device);
    swn_unified_traits_get(&cuda, 0, &traits);
    const struct swn_unified_backend *way = swn_unified_choose(&traits, wish);
    if (way->shares)
        b.host = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (way->open(&cuda, &traits, &b) || (hand_over && way->hand_over(&cuda, &traits, &b)))
        _exit(0);
    return b;
}

static void touched_while_a_kernel_runs(void)
{
    struct swn_unified_block b = made("orin", SWN_CONFIG_UNIFIED_MANAGED, 1);
    launch(&b, 100);
    usleep(50000); /* that it has ended does not count before the program has waited for it */
    *(volatile char *)b.host = 1;
}

static void used_while_attached_to_the_host(void)
{
    struct swn_unified_block b = made("nano", SWN_CONFIG_UNIFIED_AUTO, 0);
    launch(&b, 100);
}

static void written_while_a_kernel_reads(void)
{
    struct swn_unified_block b = made("orin", SWN_CONFIG_UNIFIED_AUTO, 1);
    launch(&b, 100000);
    usleep(20000);
    *(volatile char *)b.host = 1;
    cudaDeviceSynchronize();
}

static void memory_unknown_to_the_device(void)
{
    struct swn_unified_block b = {.device = malloc(BYTES), .bytes = BYTES};
    standin_be("xavier");
    launch(&b, 100);
}

static void touched_after_waiting(void)
{
    struct swn_unified_block b = made("orin", SWN_CONFIG_UNIFIED_MANAGED, 1);
    launch(&b, 1000);
    cudaDeviceSynchronize();
    *(volatile char *)b.host = 1;
}

/* A stream that is known to be captured no more is not asked about again: its program may have destroyed it. */
static void captured_once(void)
{
    void *stream;
    standin_be("orin");
    cudaStreamCreateWithFlags(&stream, 1);
    standin_capture(stream, 1);
    if (!swn_cuda_capturing(&cuda, stream) || !swn_cuda_capture_under_way(&cuda))
        abort();
    standin_capture(stream, 0);
    if (swn_cuda_capturing(&cuda, stream))
        abort();
    cudaStreamDestroy(stream);
    if (swn_cuda_capture_under_way(&cuda))
        abort();
}

static void rules(void **state)
{
    (void)state;
    assert_true(ends(touched_while_a_kernel_runs));
    assert_true(ends(used_while_attached_to_the_host));
    assert_true(ends(written_while_a_kernel_reads));
    assert_true(ends(memory_unknown_to_the_device));
    assert_false(ends(touched_after_waiting));
    assert_false(ends(captured_once));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules), /* first: a fork does not take the kernels' thread along */
        cmocka_unit_test(chosen),
        cmocka_unit_test(used),
        cmocka_unit_test(failing),
    };
    standin_be("orin");
    if (swn_cuda_find(&cuda))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
