/* Description: a scratch file is larger than the memory it is read into, none of it is there twice, and reads find what
 * was written wherever they begin.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "blocks/memory/fetch_queue.h"
#include "base/io.h"
#include "profiles/scratch_file.h"

#define PAGE ((size_t)4096)
#define MIB ((size_t)1 << 20)
#define FILE_BYTES (9 * MIB + 3 * PAGE)

static struct swn_scratch scratch;
static struct swn_fetch *queue;

static const char *dir(void)
{
    const char *tmp = getenv("TMPDIR");
    return tmp && *tmp ? tmp : "/var/tmp";
}

static int open_both(void **state)
{
    (void)state;
    struct swn_fetch_opts opts = {.io = &swn_io_sys, .best_path = SWN_FETCH_URING};
    return swn_scratch_open(&scratch, &swn_io_sys, dir(), FILE_BYTES, 2 * MIB, 0) || swn_fetch_start(&queue, &opts);
}

static int close_both(void **state)
{
    (void)state;
    swn_fetch_stop(queue);
    swn_scratch_close(&scratch);
    return 0;
}

static const uint64_t *read_at(size_t at, size_t bytes)
{
    struct swn_scratch_read r;
    assert_int_equal(swn_scratch_submit(&scratch, queue, at, bytes, &r), 0);
    assert_int_equal(swn_scratch_await(&r), 0);
    const char *buf = scratch.buf, *to = r.job.buf;
    assert_true(to >= buf && to + bytes <= buf + scratch.room);
    return r.job.buf;
}

/* By the first words of its pages. */
static void different_pages(void **state)
{
    (void)state;
    static uint64_t first[FILE_BYTES / PAGE];
    size_t n = 0;
    assert_int_equal(scratch.bytes, FILE_BYTES);
    assert_int_equal(scratch.room, 2 * MIB);
    for (size_t at = 0; at < FILE_BYTES; at += 3 * PAGE) {
        const uint64_t *words = read_at(at, 3 * PAGE);
        for (size_t i = 0; i < 3; i++)
            first[n++] = words[i * PAGE / sizeof *words];
    }
    assert_int_equal(n, FILE_BYTES / PAGE);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            assert_true(first[i] != first[j]);
}

static void same_bytes_in_any_place(void **state)
{
    (void)state;
    static uint64_t once[MIB / sizeof(uint64_t)];
    memcpy(once, read_at(5 * MIB, MIB), MIB);
    const uint64_t *words = read_at(5 * MIB - 7 * PAGE, 2 * MIB);
    assert_memory_equal(words + 7 * PAGE / sizeof *words, once, MIB);
}

static void larger_than_its_memory(void **state)
{
    (void)state;
    struct swn_scratch_read r;
    assert_int_equal(swn_scratch_submit(&scratch, queue, 0, 2 * MIB + PAGE, &r), -EINVAL);
    assert_int_equal(swn_scratch_submit(&scratch, queue, FILE_BYTES - PAGE, 2 * PAGE, &r), -EINVAL);
}

static void smaller_than_its_memory(void **state)
{
    (void)state;
    struct swn_scratch small;
    assert_int_equal(swn_scratch_open(&small, &swn_io_sys, dir(), 3 * PAGE, MIB, 0), 0);
    assert_int_equal(small.bytes, 3 * PAGE);
    assert_int_equal(small.room, 3 * PAGE);
    swn_scratch_close(&small);
}

int main(void)
{
    alarm(300); /* a hang is a failure */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(different_pages),
        cmocka_unit_test(same_bytes_in_any_place),
        cmocka_unit_test(larger_than_its_memory),
        cmocka_unit_test(smaller_than_its_memory),
    };
    return cmocka_run_group_tests(tests, open_both, close_both);
}
