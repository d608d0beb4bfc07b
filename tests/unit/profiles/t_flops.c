/* Description: operations counted from shapes are those counted by hand, and those torch.utils.flop_counter counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "profiles/flops.h"

static struct swn_shape shape(unsigned n, ...)
{
    struct swn_shape s = {.n = n};
    va_list args;
    va_start(args, n);
    for (unsigned i = 0; i < n; i++)
        s.d[i] = va_arg(args, int);
    va_end(args);
    return s;
}

static struct swn_flops_op conv(struct swn_shape in, struct swn_shape weight, int stride, int padding, int dilation)
{
    struct swn_flops_op op = {.kind = SWN_FLOPS_CONV, .tensors = 2, .tensor = {in, weight}};
    for (int i = 0; i < SWN_FLOPS_SPATIAL; i++) {
        op.stride[i] = stride;
        op.padding[i] = padding;
        op.dilation[i] = dilation;
    }
    return op;
}

static uint64_t of(enum swn_flops_kind kind, unsigned n, ...)
{
    struct swn_flops_op op = {.kind = kind, .tensors = n};
    va_list args;
    va_start(args, n);
    for (unsigned i = 0; i < n; i++)
        op.tensor[i] = va_arg(args, struct swn_shape);
    va_end(args);
    return swn_flops(&op);
}

static void test_convolution(void **state)
{
    (void)state;
    /* the first layer of ResNet: 64 x 3 x 7 x 7 at 112 x 112 places */
    struct swn_flops_op op = conv(shape(4, 1, 3, 224, 224), shape(4, 64, 3, 7, 7), 2, 3, 1);
    assert_int_equal(swn_flops(&op), 2ull * 64 * 3 * 49 * 112 * 112);
    op = conv(shape(4, 8, 3, 224, 224), shape(4, 64, 3, 7, 7), 2, 3, 1);
    assert_int_equal(swn_flops(&op), 8 * 2ull * 64 * 3 * 49 * 112 * 112);
    op = conv(shape(3, 3, 224, 224), shape(4, 64, 3, 7, 7), 2, 3, 1); /* no batch */
    assert_int_equal(swn_flops(&op), 2ull * 64 * 3 * 49 * 112 * 112);
    op = conv(shape(4, 1, 32, 56, 56), shape(4, 32, 1, 3, 3), 1, 1, 1); /* depthwise */
    assert_int_equal(swn_flops(&op), 2ull * 32 * 9 * 56 * 56);
    op = conv(shape(3, 2, 4, 100), shape(3, 8, 4, 5), 1, 0, 2); /* one dimension, dilated: 92 places */
    assert_int_equal(swn_flops(&op), 2ull * 2 * 8 * 4 * 5 * 92);
    op = conv(shape(5, 1, 2, 8, 8, 8), shape(5, 4, 2, 3, 3, 3), 1, 1, 1);
    assert_int_equal(swn_flops(&op), 2ull * 4 * 2 * 27 * 512);
    op = conv(shape(4, 1, 2, 10, 10), shape(4, 4, 2, 4, 4), 1, 0, 1);
    op.same = 1;
    assert_int_equal(swn_flops(&op), 2ull * 4 * 2 * 16 * 100);
    op = conv(shape(4, 2, 8, 10, 10), shape(4, 8, 4, 3, 3), 2, 1, 1);
    op.kind = SWN_FLOPS_CONV_TRANSPOSE;
    assert_int_equal(swn_flops(&op), 2ull * 2 * 8 * 4 * 9 * 100);
}

static void test_products(void **state)
{
    (void)state;
    assert_int_equal(of(SWN_FLOPS_LINEAR, 2, shape(2, 8, 512), shape(2, 1000, 512)), 2 * 8 * 512 * 1000);
    assert_int_equal(of(SWN_FLOPS_LINEAR, 2, shape(3, 2, 197, 768), shape(2, 3072, 768)), 2ull * 2 * 197 * 768 * 3072);
    assert_int_equal(of(SWN_FLOPS_LINEAR, 2, shape(1, 512), shape(2, 10, 512)), 2 * 5120);
    assert_int_equal(of(SWN_FLOPS_MATMUL, 2, shape(2, 3, 4), shape(2, 4, 5)), 2 * 60);
    assert_int_equal(of(SWN_FLOPS_MATMUL, 2, shape(3, 7, 3, 4), shape(3, 7, 4, 5)), 2 * 7 * 60);
    assert_int_equal(of(SWN_FLOPS_MATMUL, 2, shape(4, 2, 1, 3, 4), shape(3, 7, 4, 5)), 2 * 2 * 7 * 60);
    assert_int_equal(of(SWN_FLOPS_MATMUL, 2, shape(2, 3, 4), shape(1, 4)), 2 * 12);
    assert_int_equal(of(SWN_FLOPS_MATMUL, 2, shape(1, 4), shape(2, 4, 5)), 2 * 20);
    assert_int_equal(of(SWN_FLOPS_MATMUL, 2, shape(1, 4), shape(1, 4)), 2 * 4);
    assert_int_equal(of(SWN_FLOPS_MATMUL_ADD, 3, shape(1, 5), shape(2, 3, 4), shape(2, 4, 5)), 2 * 60);
}

static void test_attention(void **state)
{
    (void)state;
    struct swn_shape q = shape(4, 2, 12, 197, 64), k = shape(4, 2, 12, 50, 64), v = shape(4, 2, 12, 50, 32);
    assert_int_equal(of(SWN_FLOPS_ATTENTION, 3, q, q, q), 2ull * 2 * 12 * (197 * 197 * 64 * 2));
    assert_int_equal(of(SWN_FLOPS_ATTENTION, 3, q, k, v), 2ull * 2 * 12 * (197 * 50 * 64 + 197 * 50 * 32));
    /* a whole encoder layer of width 8, feed-forward 16, three words: its weights once per word, then attention */
    assert_int_equal(of(SWN_FLOPS_ENCODER, 7, shape(3, 1, 3, 8), shape(2, 24, 8), shape(1, 24), shape(2, 8, 8),
                        shape(1, 8), shape(2, 16, 8), shape(2, 8, 16)),
                     2 * 3 * (24 * 8 + 8 * 8 + 2 * 16 * 8) + 2 * 2 * 3 * 3 * 8);
    assert_int_equal(
        of(SWN_FLOPS_RNN, 5, shape(3, 10, 2, 8), shape(2, 64, 8), shape(2, 64, 16), shape(1, 64), shape(1, 64)),
        2 * 20 * (64 * 8 + 64 * 16));
}

static void test_others(void **state)
{
    (void)state;
    assert_int_equal(of(SWN_FLOPS_BATCH_NORM, 1, shape(4, 2, 3, 5, 5)), 2 * 150);
    assert_int_equal(of(SWN_FLOPS_NORM, 1, shape(3, 2, 3, 5)), 5 * 30);
    assert_int_equal(of(SWN_FLOPS_EMBEDDING, 2, shape(2, 50257, 768), shape(2, 1, 32)), 32 * 768);
    assert_int_equal(of(SWN_FLOPS_NONE, 2, shape(2, 3, 4), shape(2, 4, 5)), 0);
}

/* Whatever the shapes are: a number, and no overflow. */
static void test_odd_shapes(void **state)
{
    (void)state;
    int big = INT32_MAX;
    struct swn_shape huge = shape(8, big, big, big, big, big, big, big, big), none = {0}, negative = shape(2, -3, 4);
    assert_true(of(SWN_FLOPS_LINEAR, 2, huge, huge) == UINT64_MAX);
    assert_true(of(SWN_FLOPS_MATMUL, 2, huge, huge) == UINT64_MAX);
    assert_true(of(SWN_FLOPS_NORM, 1, huge) == UINT64_MAX);
    for (int kind = SWN_FLOPS_NONE; kind <= SWN_FLOPS_EMBEDDING; kind++) {
        of((enum swn_flops_kind)kind, 0);
        of((enum swn_flops_kind)kind, 1, none);
        of((enum swn_flops_kind)kind, 3, none, huge, none);
        of((enum swn_flops_kind)kind, 3, huge, none, huge);
        assert_int_equal(of((enum swn_flops_kind)kind, 3, negative, negative, negative) % 2, 0);
    }
    struct swn_flops_op op = conv(shape(4, 1, 3, 4, 4), shape(4, 64, 3, 7, 7), 2, 0, 1); /* larger than its input */
    assert_int_equal(swn_flops(&op), 0);
    op = conv(shape(4, 1, 3, 8, 8), shape(4, 64, 3, 7, 7), 0, 0, 1);
    assert_int_equal(swn_flops(&op), 0);
    op = conv(shape(4, 1, 3, 8, 8), shape(2, 64, 3), 1, 0, 1);
    assert_int_equal(swn_flops(&op), 0);
}

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(swn_flops_kind_find("aten::conv2d"), SWN_FLOPS_CONV);
    assert_int_equal(swn_flops_kind_find("aten::addmm"), SWN_FLOPS_MATMUL_ADD);
    assert_int_equal(swn_flops_kind_find("aten::scaled_dot_product_attention"), SWN_FLOPS_ATTENTION);
    assert_int_equal(swn_flops_kind_find("aten::relu"), SWN_FLOPS_NONE);
    assert_int_equal(swn_flops_kind_find(""), SWN_FLOPS_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolution), cmocka_unit_test(test_products),   cmocka_unit_test(test_attention),
        cmocka_unit_test(test_others),      cmocka_unit_test(test_odd_shapes), cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
