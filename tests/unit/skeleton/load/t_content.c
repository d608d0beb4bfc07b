/* Description: weights of two files are the same when their bytes are, and not already when their checksums are. */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "skeleton/load/load.h"

#define BYTES ((size_t)17 * MIB + 4096 + 64) /* more than the budget, no whole pieces, chunks or blocks */
#define BUDGET (14 * MIB)

static struct swn_engine *const e = &swn_engine_one;
static struct tensor first, twin, other;

static void name_one(char *name, unsigned i)
{
    sprintf(name, "layer%u.weight", i);
}

static void load(int fd, struct tensor *t, uint64_t off)
{
    CHECK(tensor_make(t, BYTES, 1));
    CHECK(swn_load_read(fd, (void *)t->own, BYTES, (off_t)off) == (ssize_t)BYTES);
}

/* Two files with the same weight, of which the second one has another weight behind it. */
static void load_all(void)
{
    uint64_t off;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_PREAD, &swn_io_sys) == 0);
    int fd = weights_file(1, BYTES, name_one, &off);
    load(fd, &first, off);
    fd = weights_file(2, BYTES, name_one, &off);
    load(fd, &twin, off);
    load(fd, &other, off + BYTES);
    swn_engine_after_alloc();
}

static int alike(const struct tensor *a, const struct tensor *b)
{
    uint64_t of_a[2], of_b[2];
    return swn_load_content(a->own, BYTES, of_a) && swn_load_content(b->own, BYTES, of_b) &&
           !memcmp(of_a, of_b, sizeof of_a);
}

/* Another byte in the store, whose checksums stay. */
static void forge(const struct tensor *t, size_t at)
{
    char path[64];
    unsigned char byte;
    const struct swn_range *r = swn_arena_find(e->arena, t->own);
    snprintf(path, sizeof path, "/proc/self/fd/%d", r->file->fetch.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && pread(fd, &byte, 1, (off_t)(r->extent + at)) == 1);
    byte ^= 1;
    CHECK(pwrite(fd, &byte, 1, (off_t)(r->extent + at)) == 1 && fsync(fd) == 0);
    close(fd);
}

static void compared(void *arg)
{
    (void)arg;
    load_all();
    CHECK(alike(&first, &twin) && swn_load_same(first.own, twin.own, BYTES));
    CHECK(swn_load_same(first.own, first.own, BYTES));
    CHECK(!alike(&first, &other) && !swn_load_same(first.own, other.own, BYTES));
}

static void forged(void *arg)
{
    const size_t places[] = {0, MIB, BYTES - 1};
    (void)arg;
    load_all();
    for (unsigned i = 0; i < 3; i++) {
        forge(&twin, places[i]);
        CHECK(alike(&first, &twin) && !swn_load_same(first.own, twin.own, BYTES));
        forge(&twin, places[i]);
        CHECK(swn_load_same(first.own, twin.own, BYTES));
    }
}

/* What is no registered weight as a whole, or no longer. */
static void unknown(void *arg)
{
    uint64_t content[2];
    (void)arg;
    load_all();
    CHECK(!swn_load_content(first.own + 4096, BYTES - 4096, content) &&
          !swn_load_content(first.own, BYTES - 64, content));
    CHECK(!swn_load_same(first.own, twin.own, BYTES - 64) && !swn_load_same((uintptr_t)content, twin.own, BYTES));
    tensor_stamp(&twin, twin.own, 7);
    CHECK(!swn_load_content(twin.own, BYTES, content) && !swn_load_same(first.own, twin.own, BYTES));
}

#define ALONE(name)                                                                                                    \
    static void name##_alone(void **state)                                                                             \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        assert_int_equal(run_alone(name, NULL, 120), 0);                                                               \
    }

ALONE(compared)
ALONE(forged)
ALONE(unknown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compared_alone),
        cmocka_unit_test(forged_alone),
        cmocka_unit_test(unknown_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
