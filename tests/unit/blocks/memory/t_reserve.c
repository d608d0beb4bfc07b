/* Description: reserved address space takes nothing from anybody, and what is opened of it is ordinary memory. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blocks/memory/arena.h"
#include "base/huge_pages.h"
#include "tests/unit/support/kernel_does.h"
#include "blocks/memory/reserve.h"
#include "tests/unit/support/smaps.h"

#define GIB ((size_t)1 << 30)
#define MIB ((size_t)1 << 20)

/* A field of /proc/self/status, in KiB. */
static long status_kib(const char *field)
{
    char line[128];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, field, strlen(field)) && line[strlen(field)] == ':')
            kib = strtol(line + strlen(field) + 1, NULL, 10);
    fclose(f);
    return kib;
}

/* Whether the flags of the mapping with `at` have this one. */
static int has_flag(const void *at, const char *flag)
{
    char line[512], want[8];
    int found = -1, here = 0;
    FILE *f = fopen("/proc/self/smaps", "re");
    assert_non_null(f);
    snprintf(want, sizeof want, " %s", flag);
    while (found < 0 && fgets(line, sizeof line, f)) {
        unsigned long lo, hi;
        if (sscanf(line, "%lx-%lx ", &lo, &hi) == 2)
            here = (uintptr_t)at >= lo && (uintptr_t)at < hi;
        else if (here && !strncmp(line, "VmFlags:", 8))
            found = strstr(line, want) != NULL;
    }
    fclose(f);
    return found;
}

static int readable(const void *at)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int can = write(ends[1], at, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return can;
}

static void is_nothing(void **state)
{
    (void)state;
    long size = status_kib("VmSize"), data = status_kib("VmData"), rss = status_kib("VmRSS");
    char *at = swn_reserve(8 * GIB);
    assert_non_null(at);
    assert_int_equal((uintptr_t)at % SWN_HUGE, 0);
    assert_int_equal(status_kib("VmSize") - size, 8 * GIB >> 10);
    assert_in_range(status_kib("VmData") - data, 0, 64);
    assert_in_range(status_kib("VmRSS") - rss, 0, 512);
    assert_false(readable(at));
    assert_int_equal(has_flag(at, "dd"), 1);
    swn_reserve_release(at, 8 * GIB);
    assert_int_equal(status_kib("VmSize"), size);
    assert_null(swn_reserve(0));
    assert_null(swn_reserve(SIZE_MAX - MIB));
    assert_int_equal(errno, ENOMEM);
}

static void opened_and_closed(void **state)
{
    (void)state;
    char *at = swn_reserve(64 * MIB);
    assert_non_null(at);
    assert_int_equal(swn_reserve_open(at + 2 * MIB, 2 * MIB), 0);
    assert_int_equal(swn_reserve_open(at + 4 * MIB, 2 * MIB), 0);
    assert_int_equal(swn_smaps_kib((uintptr_t)at + 2 * MIB, "Size"), 4096); /* one mapping */
    assert_int_equal(has_flag(at + 2 * MIB, "dd"), 1);
    swn_reserve_dump(at + 2 * MIB, 4 * MIB, 1);
    assert_int_equal(has_flag(at + 2 * MIB, "dd"), 0);
    for (size_t i = 0; i < 4 * MIB; i += SWN_PAGE)
        assert_int_equal(at[2 * MIB + i], 0);
    memset(at + 2 * MIB, 1, 4 * MIB);
    assert_false(readable(at));
    assert_false(readable(at + 6 * MIB));
    swn_reserve_drop(at + 2 * MIB, 2 * MIB);
    assert_int_equal(at[2 * MIB], 0);
    assert_int_equal(at[4 * MIB], 1);
    long rss = status_kib("VmRSS");
    assert_int_equal(swn_reserve_close(at + 2 * MIB, 4 * MIB), 0);
    assert_true(status_kib("VmRSS") <= rss - 1024);
    assert_false(readable(at + 4 * MIB));
    assert_int_equal(has_flag(at + 2 * MIB, "dd"), 1);
    assert_int_equal(swn_smaps_kib((uintptr_t)at, "Size"), 65536); /* as it was: one mapping */
    assert_int_equal(swn_reserve_open(at + 2 * MIB, 2 * MIB), 0);
    assert_int_equal(at[2 * MIB], 0);
    swn_reserve_release(at, 64 * MIB);
}

static void of_a_file(void **state)
{
    (void)state;
    int fd = memfd_create("t_reserve", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 4 * MIB), 0);
    char *at = swn_reserve(8 * MIB);
    assert_int_equal(swn_reserve_open_file(at, 2 * MIB, PROT_READ | PROT_WRITE, fd, 2 * MIB), 0);
    assert_int_equal(swn_reserve_open_file(at + 2 * MIB, 2 * MIB, PROT_READ, fd, 2 * MIB), 0);
    at[5] = 7;
    assert_int_equal(at[2 * MIB + 5], 7);
    assert_int_equal(has_flag(at, "dd"), 1);
    assert_int_equal(swn_reserve_close(at, 2 * MIB), 0);
    assert_false(readable(at));
    assert_int_equal(at[2 * MIB + 5], 7);
    swn_reserve_release(at, 8 * MIB);
    assert_int_equal(swn_reserve_open_file(at, MIB, PROT_READ, -1, 0), -EBADF);
    close(fd);
}

static void table_of_zeros(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__) /* it has memory of its own for what is read */
    skip();
#endif
    long data = status_kib("VmData");
    char *at = swn_reserve_zeros(64 * MIB);
    long rss = status_kib("VmRSS"), sum = 0;
    for (size_t i = 0; i < 64 * MIB; i += SWN_PAGE)
        sum += at[i];
    assert_int_equal(sum, 0);
    assert_in_range(status_kib("VmRSS") - rss, 0, 1024);
    assert_in_range(status_kib("VmData") - data, 0, 64);
    assert_int_equal(swn_reserve_open(at, SWN_PAGE), 0);
    at[1] = 1;
    assert_int_equal(at[SWN_PAGE], 0);
    swn_reserve_release(at, 64 * MIB);
}

/* Runs it in a child, which may lock and limit itself: 77 when it must not. */
static void in_child(int (*does)(void))
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* their shadow would be locked, all of it */
    skip();
#endif
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(does());
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int locks(void)
{
    char *before = swn_reserve(8 * GIB), *open = swn_reserve(8 * MIB);
    swn_reserve_open(open, 4 * MIB);
    if (swn_reserve_all_locked() || swn_reserve_is_locked(before))
        return 1;
    if (mlockall(MCL_CURRENT | MCL_FUTURE))
        return 77;
    long rss = status_kib("VmRSS");
    if (!swn_reserve_all_locked() || !swn_reserve_is_locked(before) || rss > 256 << 10)
        return 2;
    char *after = swn_reserve(8 * GIB); /* nothing of it is filled */
    if (!after || status_kib("VmRSS") > rss + 1024)
        return 3;
    swn_reserve_open(after, 4 * MIB);
    if (status_kib("VmRSS") < rss + 4096)
        return 4;
    memset(open, 1, 4 * MIB);
    swn_reserve_drop(open, 2 * MIB);
    if (open[0] || !open[2 * MIB])
        return 5;
    rss = status_kib("VmRSS");
    if (swn_reserve_close(after, 4 * MIB) || status_kib("VmRSS") > rss - 4000)
        return 6;
    return munlockall() || swn_reserve_all_locked() ? 7 : 0;
}

static void locked_memory(void **state)
{
    (void)state;
    in_child(locks);
}

static int is_limited(void)
{
    struct rlimit data = {.rlim_cur = (rlim_t)status_kib("VmData") * 1024 + 32 * MIB, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_DATA, &data))
        return 77;
    char *at = swn_reserve(8 * GIB);
    if (!at || swn_reserve_open(at, 8 * MIB))
        return 1;
    at[0] = 1;
    if (swn_reserve_open(at + 8 * MIB, 64 * MIB) != -ENOMEM || readable(at + 8 * MIB) || at[0] != 1)
        return 2;
    return swn_reserve_close(at, 8 * MIB) || swn_reserve_open(at + MIB, 8 * MIB) ? 3 : 0;
}

static void limited_data(void **state)
{
    (void)state;
    in_child(is_limited);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_nothing),     cmocka_unit_test(opened_and_closed), cmocka_unit_test(of_a_file),
        cmocka_unit_test(table_of_zeros), cmocka_unit_test(locked_memory),     cmocka_unit_test(limited_data),
    };
    if (!swn_probe_leaves_out()) /* under an emulator nothing of this shows */
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
