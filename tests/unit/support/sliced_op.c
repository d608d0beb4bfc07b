#define _GNU_SOURCE
#include "tests/unit/support/sliced_op.h"
#include "skeleton/tiling/slice.h"

uint64_t op_shape = 1;
size_t op_right_from;

size_t op_take_slices(struct swn_op *op, const struct tensor *t, size_t row_bytes, size_t most)
{
    static __thread size_t bytes[4096];
    size_t n = op_slices(op, 0, bytes, 4096), off = 0;
    CHECK(n > 0);
    for (size_t i = 0; i < n; i++, off += bytes[i - 1]) {
        CHECK(bytes[i] % row_bytes == 0);
        if (i >= most)
            continue;
        const void *at = swn_slice_lend(op, 0, off, bytes[i]);
        if (!at) /* another thread's plan */
            return i;
        CHECK(tensor_right_part(t, (uintptr_t)at, off, bytes[i]));
    }
    CHECK(off == t->len);
    if (most >= n)
        CHECK(swn_slice_lend(op, 0, off, 0) == NULL);
    return n;
}

static int are_right(struct swn_op *op, size_t row_bytes)
{
    static __thread size_t bytes[4096];
    size_t n = op_slices(op, 0, bytes, 4096);
    int right = 1;
    for (size_t i = 0; i < n; i++)
        right &= bytes[i] >= op_right_from && bytes[i] % row_bytes == 0;
    return right;
}

/* As shim/torch/slices.cpp has them, both. */
static int lengthened(struct swn_op *op)
{
    size_t next = 0;
    int right;
    do {
        right = next && next >= op_right_from;
        next = swn_slice_refused(op, 0, op_shape, next, right);
    } while (next);
    return right;
}

/* 0: the operator takes its weight whole. */
static int tried(struct swn_op *op, size_t row_bytes)
{
    if (are_right(op, row_bytes) || (lengthened(op) && are_right(op, row_bytes)))
        return 1;
    CHECK(swn_slice_lend(op, 0, op->args[0].bytes, 1) == NULL);
    return 0;
}

size_t op_sliced_by(struct tensor *t, const struct swn_row_geometry *rows, size_t most)
{
    static const enum swn_use weight = SWN_USE_WEIGHT;
    struct swn_op op;
    op_open(&op, &t, &weight, 1);
    size_t supposed = op.args[0].sliced ? 0 : swn_slice_offer(&op, 0, rows);
    if (supposed && supposed < op_right_from)
        lengthened(&op);
    size_t n = op.args[0].sliced && tried(&op, rows->bytes) ? op_take_slices(&op, t, rows->bytes, most) : 0;
    if (!n || most < n) /* its own address is right, too */
        CHECK(tensor_right(t, (uintptr_t)__atomic_load_n(&t->word, __ATOMIC_ACQUIRE)));
    op_close(&op);
    CHECK((uintptr_t)__atomic_load_n(&t->word, __ATOMIC_ACQUIRE) == t->own);
    return n;
}

size_t op_sliced(struct tensor *t, size_t row_bytes, size_t most)
{
    return op_sliced_by(t, &(struct swn_row_geometry){.bytes = row_bytes, .block = 1, .threads = 1, .shape = op_shape},
                        most);
}

void op_age(void)
{
    for (unsigned i = 0; i < SWN_AGED_OPS; i++) {
        struct swn_op op;
        op_open(&op, NULL, NULL, 0);
        op_close(&op);
    }
}
