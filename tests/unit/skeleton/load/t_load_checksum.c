/* Description: no operator ends with bytes of a store that do not match their checksum, and what comes in slices is not
 * read once more for that. */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "skeleton/load/load.h"
#include "skeleton/tiling/slice.h"

#define ROW_BYTES ((size_t)6144)
#define BYTES ((size_t)(17 * MIB / ROW_BYTES * ROW_BYTES))
#define BUDGET (14 * MIB)
#define CORRUPT 5 /* exit status */

static const struct swn_row_geometry rows = {.bytes = ROW_BYTES, .block = 1, .threads = 1, .shape = 1};
static struct swn_engine *const e = &swn_engine_one;
static struct tensor weight;
static _Atomic uint64_t read_bytes;

static ssize_t counted(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    ssize_t n = swn_io_sys.pread(ctx, fd, buf, len, off);
    atomic_fetch_add(&read_bytes, n > 0 ? (uint64_t)n : 0);
    return n;
}

static void name_one(char *name, unsigned i)
{
    sprintf(name, "layer%u.weight", i);
}

/* A byte of the weight in its store. */
static void spoil(size_t at)
{
    char path[5000] = "";
    unsigned char byte;
    DIR *d = opendir(e->config.store_dir);
    CHECK(d);
    for (struct dirent *entry; (entry = readdir(d));)
        if (strstr(entry->d_name, ".swnstore"))
            snprintf(path, sizeof path, "%s/%s", e->config.store_dir, entry->d_name);
    closedir(d);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    off_t off = (off_t)(swn_arena_find(e->arena, weight.own)->extent + at);
    CHECK(fd >= 0 && pread(fd, &byte, 1, off) == 1);
    byte ^= 1;
    CHECK(pwrite(fd, &byte, 1, off) == 1 && fsync(fd) == 0);
    close(fd);
}

/* A weight larger than the budget, loaded by reference. */
static void load(void)
{
    static struct swn_io io;
    uint64_t off;
    io = swn_io_sys;
    io.pread = counted;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_PREAD, &io) == 0);
    int fd = weights_file(1, BYTES, name_one, &off);
    CHECK(tensor_make(&weight, BYTES, 1));
    CHECK(swn_load_read(fd, (void *)weight.own, BYTES, (off_t)off) == (ssize_t)BYTES);
    weight.stamp = 100;
    swn_engine_after_alloc();
    for (unsigned i = 0; i < SWN_AGED_OPS; i++) {
        struct swn_op op;
        op_open(&op, NULL, NULL, 0);
        op_close(&op);
    }
    atomic_store(&read_bytes, 0);
}

/* An operator on this many slices of it, in turn from `first` on, and then perhaps on the rest by its own address. */
static void product(size_t first, size_t most, size_t by_address)
{
    static const enum swn_use use = SWN_USE_WEIGHT;
    static size_t bytes[4096];
    struct tensor *t = &weight;
    struct swn_op op;
    op_open(&op, &t, &use, 1);
    if (!op.args[0].sliced)
        swn_slice_offer(&op, 0, &rows);
    CHECK(op.args[0].sliced);
    size_t n = op_slices(&op, 0, bytes, 4096), off = 0;
    CHECK(n > 4);
    for (size_t i = 0; i < n; i++, off += bytes[i - 1])
        if (i >= first && i - first < most)
            CHECK(swn_slice_lend(&op, 0, off, bytes[i]));
    CHECK(swn_slice_lend(&op, 0, by_address ? BYTES : 0, by_address) == NULL);
    op_close(&op);
}

static void once(void *arg)
{
    (void)arg;
    load();
    product(0, SIZE_MAX, 0);
    /* and what is read ahead for the next time */
    CHECK(atomic_load(&read_bytes) >= BYTES && atomic_load(&read_bytes) < BYTES + BUDGET / 2);
    for (unsigned i = 0; i < 4; i++) {
        uint64_t before = atomic_load(&read_bytes);
        product(0, SIZE_MAX, 0);
        CHECK(atomic_load(&read_bytes) < before + BYTES + BUDGET / 2);
    }
    CHECK(tensor_right(&weight, weight.own));
}

/* The first slice, and then never the others: they are not read to be checked. */
static void a_part(void *arg)
{
    (void)arg;
    load();
    product(0, 1, 0);
    CHECK(atomic_load(&read_bytes) < BYTES);
    product(0, 1, 0);
    product(1, 1, 0);
    CHECK(atomic_load(&read_bytes) < BYTES + BUDGET);
}

/* A store into the weight is the program's; the checksum is of what was read. */
static void stored_into(void *arg)
{
    (void)arg;
    load();
    product(0, 2, 0);
    weight.stamp = 7;
    tensor_stamp(&weight, weight.own, 7);
    product(0, SIZE_MAX, 0);
    CHECK(tensor_right(&weight, weight.own));
}

static void spoilt_last(void *arg)
{
    (void)arg;
    load();
    spoil(BYTES - 1);
    product(0, SIZE_MAX, 0);
}

static void spoilt_first(void *arg)
{
    (void)arg;
    load();
    spoil(0);
    product(0, SIZE_MAX, 0);
}

static void spoilt_part(void *arg)
{
    (void)arg;
    load();
    for (size_t at = 0; at < BYTES; at += 512 << 10)
        spoil(at);
    product(1, 1, 0);
}

/* Nobody computes with it. */
static void spoilt_elsewhere(void *arg)
{
    (void)arg;
    load();
    spoil(BYTES - 1);
    product(0, 1, 0);
}

/* The bytes were right each time so far. */
static void spoilt_later(void *arg)
{
    (void)arg;
    load();
    for (unsigned i = 0; i < 3; i++)
        product(0, SIZE_MAX, 0);
    spoil(BYTES / 2);
    product(0, SIZE_MAX, 0);
}

static void spoilt_address(void *arg)
{
    (void)arg;
    load();
    spoil(BYTES / 2);
    product(0, 0, 1);
}

/* An operator that does not know of slices. */
static void spoilt_whole(void *arg)
{
    static const enum swn_use use = SWN_USE_WEIGHT;
    struct tensor *t = &weight;
    struct swn_op op;
    (void)arg;
    load();
    spoil(BYTES / 2);
    op_open(&op, &t, &use, 1);
    op_close(&op);
}

/* It is checked before the weight becomes resident to be written. */
static void spoilt_home(void *arg)
{
    static const enum swn_use use = SWN_USE_WRITE;
    struct tensor *t = &weight;
    struct swn_op op;
    (void)arg;
    load();
    spoil(BYTES - 1);
    op_open(&op, &t, &use, 1);
    op_close(&op);
}

#define ALONE(name, status)                                                                                            \
    static void name##_alone(void **state)                                                                             \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        assert_int_equal(run_alone(name, NULL, 120), status);                                                          \
    }

ALONE(once, 0)
ALONE(a_part, 0)
ALONE(stored_into, 0)
ALONE(spoilt_last, CORRUPT)
ALONE(spoilt_first, CORRUPT)
ALONE(spoilt_part, CORRUPT)
ALONE(spoilt_elsewhere, 0)
ALONE(spoilt_later, CORRUPT)
ALONE(spoilt_address, CORRUPT)
ALONE(spoilt_whole, CORRUPT)
ALONE(spoilt_home, CORRUPT)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(once_alone),           cmocka_unit_test(a_part_alone),
        cmocka_unit_test(stored_into_alone),    cmocka_unit_test(spoilt_last_alone),
        cmocka_unit_test(spoilt_first_alone),   cmocka_unit_test(spoilt_part_alone),
        cmocka_unit_test(spoilt_address_alone), cmocka_unit_test(spoilt_whole_alone),
        cmocka_unit_test(spoilt_home_alone),    cmocka_unit_test(spoilt_elsewhere_alone),
        cmocka_unit_test(spoilt_later_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
