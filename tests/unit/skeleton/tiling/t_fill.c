/* Description: a tensor larger than the budget that is overwritten piece by piece has the right bytes at its own
 * address, in little memory, also where the disk fails; and what fits the budget is written where it is. */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "blocks/memory/publish.h"
#include "skeleton/tiling/fill.h"
#include "skeleton/engine/accounting.h"

#define BUDGET (16 * MIB)
#define BYTES (40 * MIB + 4096 + 64)

static struct swn_engine *const e = &swn_engine_one;
static struct swn_io io;
static struct tensor tensor;
static char *wanted; /* bytes of the stamp that comes next */
static _Atomic int failing;

static ssize_t pwrite_or_fail(void *ctx, int fd, const void *buf, size_t len, uint64_t off)
{
    return atomic_load(&failing) ? -EIO : swn_io_sys.pwrite(ctx, fd, buf, len, off);
}

static void begin(void)
{
    io = swn_io_sys;
    io.pwrite = pwrite_or_fail;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, &io) == 0);
    CHECK(tensor_make(&tensor, BYTES, 1));
    wanted = calloc(1, BYTES);
    CHECK(wanted);
}

/* An operator that overwrites the tensor with the bytes of `stamp`, as far as `upto`. Returns how many pieces. */
static unsigned overwrite(uint64_t stamp, size_t upto, int fail_from)
{
    static const enum swn_use use = SWN_USE_OVERWRITE;
    struct tensor other = {.len = BYTES}, *t = &tensor;
    struct swn_op op;
    size_t most, count, done = 0;
    unsigned n = 0;
    tensor_stamp(&other, (uintptr_t)wanted, stamp);
    op_open(&op, &t, &use, 1);
    struct swn_fill *f = swn_fill_begin(&op, 0, &most);
    if (f) {
        CHECK(most >= 65536 && 2 * most <= BUDGET / 8);
        for (; done < upto; done += count, n++) {
            count = BYTES - done < most ? BYTES - done : most;
            atomic_store(&failing, fail_from >= 0 && n >= (unsigned)fail_from);
            memcpy(swn_fill_next(f, count), wanted + done, count);
            CHECK(swn_engine_resident(e) <= BUDGET);
        }
        swn_fill_end(f, 1);
        atomic_store(&failing, 0);
    }
    op_close(&op);
    tensor.stamp = stamp;
    return n;
}

static void right_bytes(void *arg)
{
    (void)arg;
    begin();
    for (uint64_t stamp = 2; stamp < 5; stamp++) {
        uint64_t before = e->writes.spill->written_bytes;
        CHECK(overwrite(stamp, BYTES, -1) > 8);
        CHECK(e->writes.spill->written_bytes - before >= BYTES);
        CHECK(tensor_right(&tensor, tensor.own));
        op_read(&tensor);
    }
    CHECK(engine_counters().peak_resident <= BUDGET && !engine_counters().over_budget_peak &&
          atomic_load(&e->nonweight.small_bytes) == 0);
    /* Whoever stores by its own address is right, too. */
    tensor_stamp(&tensor, tensor.own, 9);
    op_read(&tensor);
    tensor_free(&tensor);
    engine_is_empty();
}

/* Given up half-way: what has been made is there. */
static void half(void *arg)
{
    (void)arg;
    begin();
    CHECK(overwrite(2, BYTES / 2, -1) > 4);
    CHECK(tensor_right_part(&tensor, tensor.own, 0, BYTES / 2 / 64 * 64));
    CHECK(overwrite(3, BYTES, -1) > 8);
    CHECK(tensor_right(&tensor, tensor.own));
    CHECK(overwrite(4, 0, -1) == 0);
    tensor_free(&tensor);
    engine_is_empty();
}

static void failing_disk(void *arg)
{
    (void)arg;
    begin();
    for (int from = 0; from < 40; from += 13) {
        CHECK(overwrite((uint64_t)from + 2, BYTES, from) > 8);
        CHECK(tensor_right(&tensor, tensor.own));
        tensor_free(&tensor); /* what could not be written is in memory from now on, and goes there */
        CHECK(tensor_make(&tensor, BYTES, 1));
    }
    tensor_free(&tensor);
    engine_is_empty();
}

/* What fits, what two operators write at once, and what was cut. */
static void tensor_that_fits_is_not_filled_in_pieces(void *arg)
{
    static const enum swn_use use = SWN_USE_OVERWRITE;
    struct tensor small, *t = &small;
    struct swn_op op, other;
    size_t most;
    (void)arg;
    begin();
    CHECK(tensor_make(&small, MIB, 5));
    op_open(&op, &t, &use, 1);
    CHECK(!swn_fill_begin(&op, 0, &most));
    op_close(&op);
    t = &tensor;
    op_open(&op, &t, &use, 1);
    op_open(&other, &t, &use, 1);
    CHECK(!swn_fill_begin(&op, 0, &most));
    op_close(&other);
    op_close(&op);
    tensor_free(&small);
    tensor_free(&tensor);
    engine_is_empty();
}

/* A weight that lies before it, and has a chunk in common with it, is read while its pieces are being made: what the
 * file held of the chunk before comes into no frame. */
static void neighbour_is_read(void *arg)
{
    static const enum swn_use use = SWN_USE_OVERWRITE;
    struct tensor before, others[12], *t = &tensor;
    struct swn_op op;
    size_t most, count, len = 12 * MIB;
    (void)arg;
    CHECK(engine_begin(BUDGET / 2, SWN_CONFIG_AUTO, NULL) == 0);
    CHECK(tensor_make(&before, MIB + SWN_GRANULE, 20));
    CHECK(tensor_make(&tensor, len, 1));
    for (unsigned i = 0; i < 12; i++)
        CHECK(tensor_make(&others[i], MIB, 30 + i));
    for (unsigned i = 0; i < 12; i++)
        op_read(&others[i]);
    const struct swn_range *r = swn_arena_find(e->arena, before.own), *big = swn_arena_find(e->arena, tensor.own);
    CHECK(r->state == SWN_FILE_BACKED && !tensor_in_frames(&before));
    CHECK(swn_residency_chunks(&e->res, r).end == swn_residency_chunks(&e->res, big).first + 1);
    op_open(&op, &t, &use, 1);
    struct swn_fill *f = swn_fill_begin(&op, 0, &most);
    CHECK(f);
    op_read(&before); /* in a thread of its own, where there is PyTorch */
    CHECK(tensor_mapped(&before));
    wanted = calloc(1, len);
    CHECK(wanted);
    tensor_stamp(&tensor, (uintptr_t)wanted, 2);
    for (size_t done = 0; done < len; done += count) {
        count = len - done < most ? len - done : most;
        memcpy(swn_fill_next(f, count), wanted + done, count);
    }
    swn_fill_end(f, 1);
    CHECK(tensor_right(&tensor, tensor.own)); /* without an operator */
    op_close(&op);
    op_read(&tensor);
    op_read(&before);
}

IN_A_CHILD(right_bytes, 120)
IN_A_CHILD(half, 120)
IN_A_CHILD(failing_disk, 120)
IN_A_CHILD(tensor_that_fits_is_not_filled_in_pieces, 120)
IN_A_CHILD(neighbour_is_read, 120)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_bytes),       cmocka_unit_test(test_half),
        cmocka_unit_test(test_failing_disk),      cmocka_unit_test(test_tensor_that_fits_is_not_filled_in_pieces),
        cmocka_unit_test(test_neighbour_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
