/* Description: the N-th allocation fails, once or for ever, while a checkpoint is read, a store is built of it, opened
 * and cut anew: that is an error, which leaks nothing and leaves the old store or the new one. */
/* wraps: malloc calloc realloc aligned_alloc posix_memalign strdup */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>

#include "tests/unit/support/archive.h"
#include "tests/unit/support/failing_calls.h"
#include "tests/unit/support/store_fixture.h"

WRAPPED(void *, NULL, aligned_alloc, (size_t to, size_t n), (to, n))
WRAPPED(int, ENOMEM, posix_memalign, (void **p, size_t to, size_t n), (p, to, n))
WRAPPED(char *, NULL, strdup, (const char *s), (s))

static void *bytes;
static size_t size;
static const char *path;

/* 0 or -errno of one try. */
static int read_one(void)
{
    struct reading r = {.n = 0};
    return read_bytes(&r, bytes, size, path, NULL, swn_fix.why);
}

static int build(void)
{
    return swn_store_build(&swn_fix.model.c, &swn_fix.fault.io, swn_fix.path, NULL, swn_fix.why);
}

static int build_with_copies(void)
{
    static const struct swn_store_opts narrow = {.buffer_bytes = 256 << 10, .copies = SWN_COPIES_NARROW};
    return swn_store_build(&swn_fix.model.c, &swn_fix.fault.io, swn_fix.path, &narrow, swn_fix.why);
}

static int open_store(void)
{
    struct swn_store *s = NULL;
    int rc = swn_store_open(&s, &swn_fix.fault.io, swn_fix.path, swn_fix.why);
    if (!rc)
        swn_store_close(s, &swn_fix.fault.io);
    return rc;
}

static int recut(void)
{
    struct swn_store *s = NULL;
    int rc = swn_store_open(&s, &swn_fix.fault.io, swn_fix.path, swn_fix.why);
    if (rc)
        return rc;
    rc = swn_store_recut(s, &swn_fix.fault.io, swn_fix.path, NULL, swn_fix.why);
    swn_store_close(s, &swn_fix.fault.io);
    return rc;
}

static unsigned long fail_each(const char *name, int (*once)(void))
{
    unsigned long points = 0;
    for (int for_ever = 0; for_ever < 2; for_ever++)
        for (unsigned long at = 1;; at++, points++) {
            memset(&fault, 0, sizeof fault);
            fault.at = at;
            fault.for_ever = for_ever;
            fault.armed = 1;
            int rc = once();
            fault.armed = 0;
            assert_int_equal(swn_fix.fault.open_files, 0);
            if (!fault.fired) {
                assert_int_equal(rc, 0);
                break;
            }
            if (rc && rc != -ENOMEM)
                fail_msg("%s, allocation %lu: %d %s", name, at, rc, swn_fix.why);
        }
    print_message("%s: %lu points\n", name, points);
    return points;
}

static void reading(void **state)
{
    (void)state;
    static char header[] = "\x4d\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                           "\"__metadata__\":{\"a\":\"b\"}}12345678";
    struct archive a;
    archive_small(&a);
    archive_finish(&a);
    bytes = a.p;
    size = a.n;
    path = "x.pt";
    assert_true(fail_each("an archive", read_one) > 10);
    archive_free(&a);
    header[0] = (char)(sizeof header - 1 - 8 - 8);
    bytes = header;
    size = sizeof header - 1;
    path = "x.safetensors";
    assert_true(fail_each("safetensors", read_one) > 10);
}

static void stores(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int (*once)(void);
    } all[] = {{"build", build}, {"build with copies", build_with_copies}, {"open", open_store}, {"recut", recut}};
    swn_fix.fault.no_sync = 1;
    swn_store_make(NULL);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_true(fail_each(all[i].name, all[i].once) > 4);
        struct swn_store *s = swn_store_made();
        swn_store_is_right(s);
        swn_store_close(s, &swn_fix.fault.io);
        assert_int_equal(swn_store_files(), 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reading, swn_store_setup_in_memory, swn_store_teardown),
        cmocka_unit_test_setup_teardown(stores, swn_store_setup_in_memory, swn_store_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
