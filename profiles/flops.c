/* profiles/flops.c - see flops.h. */
#include "profiles/flops.h"

#include <string.h>

static const struct {
    const char *name;
    enum swn_flops_kind kind;
} kinds[] = {
    {"aten::conv1d", SWN_FLOPS_CONV},
    {"aten::conv2d", SWN_FLOPS_CONV},
    {"aten::conv3d", SWN_FLOPS_CONV},
    {"aten::convolution", SWN_FLOPS_CONV},
    {"aten::_convolution", SWN_FLOPS_CONV},
    {"aten::conv_transpose1d", SWN_FLOPS_CONV_TRANSPOSE},
    {"aten::conv_transpose2d", SWN_FLOPS_CONV_TRANSPOSE},
    {"aten::conv_transpose3d", SWN_FLOPS_CONV_TRANSPOSE},
    {"aten::linear", SWN_FLOPS_LINEAR},
    {"aten::mkldnn_linear", SWN_FLOPS_LINEAR},
    {"aten::_mkldnn_linear_pointwise", SWN_FLOPS_LINEAR},
    {"aten::mm", SWN_FLOPS_MATMUL},
    {"aten::bmm", SWN_FLOPS_MATMUL},
    {"aten::mv", SWN_FLOPS_MATMUL},
    {"aten::dot", SWN_FLOPS_MATMUL},
    {"aten::matmul", SWN_FLOPS_MATMUL},
    {"aten::addmm", SWN_FLOPS_MATMUL_ADD},
    {"aten::addmv", SWN_FLOPS_MATMUL_ADD},
    {"aten::addbmm", SWN_FLOPS_MATMUL_ADD},
    {"aten::baddbmm", SWN_FLOPS_MATMUL_ADD},
    {"aten::scaled_dot_product_attention", SWN_FLOPS_ATTENTION},
    {"aten::_scaled_dot_product_attention", SWN_FLOPS_ATTENTION},
    {"aten::_native_multi_head_attention", SWN_FLOPS_ENCODER},
    {"aten::_transformer_encoder_layer_fwd", SWN_FLOPS_ENCODER},
    {"aten::lstm", SWN_FLOPS_RNN},
    {"aten::gru", SWN_FLOPS_RNN},
    {"aten::rnn_tanh", SWN_FLOPS_RNN},
    {"aten::rnn_relu", SWN_FLOPS_RNN},
    {"aten::lstm_cell", SWN_FLOPS_RNN},
    {"aten::gru_cell", SWN_FLOPS_RNN},
    {"aten::rnn_tanh_cell", SWN_FLOPS_RNN},
    {"aten::rnn_relu_cell", SWN_FLOPS_RNN},
    {"aten::batch_norm", SWN_FLOPS_BATCH_NORM},
    {"aten::native_batch_norm", SWN_FLOPS_BATCH_NORM},
    {"aten::_native_batch_norm_legit_no_training", SWN_FLOPS_BATCH_NORM},
    {"aten::layer_norm", SWN_FLOPS_NORM},
    {"aten::native_layer_norm", SWN_FLOPS_NORM},
    {"aten::group_norm", SWN_FLOPS_NORM},
    {"aten::native_group_norm", SWN_FLOPS_NORM},
    {"aten::instance_norm", SWN_FLOPS_NORM},
    {"aten::rms_norm", SWN_FLOPS_NORM},
    {"aten::embedding", SWN_FLOPS_EMBEDDING},
    {"aten::embedding_bag", SWN_FLOPS_EMBEDDING},
};

enum swn_flops_kind swn_flops_kind_find(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (!strcmp(kinds[i].name, name))
            return kinds[i].kind;
    return SWN_FLOPS_NONE;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t c;
    return __builtin_mul_overflow(a, b, &c) ? UINT64_MAX : c;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t c;
    return __builtin_add_overflow(a, b, &c) ? UINT64_MAX : c;
}

static uint64_t extent(int64_t d)
{
    return d > 0 ? (uint64_t)d : 0;
}

static uint64_t elements(const struct swn_shape *s)
{
    uint64_t n = 1;
    for (unsigned i = 0; i < s->n; i++)
        n = times(n, extent(s->d[i]));
    return n;
}

/* The i-th size from the end; 1 where there is none. */
static uint64_t from_behind(const struct swn_shape *s, unsigned i)
{
    return i < s->n ? extent(s->d[s->n - 1 - i]) : 1;
}

static uint64_t output(const struct swn_flops_op *op, unsigned i, int64_t in, int64_t kernel)
{
    if (in <= 0 || kernel <= 0 || op->stride[i] <= 0 || op->dilation[i] <= 0 || op->padding[i] < 0)
        return 0;
    uint64_t padded = plus((uint64_t)in, times(2, (uint64_t)op->padding[i]));
    uint64_t reach = plus(times((uint64_t)op->dilation[i], (uint64_t)kernel - 1), 1);
    if (op->same)
        return (uint64_t)in;
    return padded < reach ? 0 : (padded - reach) / (uint64_t)op->stride[i] + 1;
}

/* Every weight is used once per position: of the output, or of the input where the kernel iterates over the input. */
static uint64_t conv(const struct swn_flops_op *op)
{
    const struct swn_shape *in = &op->tensor[0], *weight = &op->tensor[1];
    if (op->tensors < 2 || weight->n < 3 || weight->n > SWN_FLOPS_SPATIAL + 2 ||
        (in->n != weight->n && in->n != weight->n - 1))
        return 0;
    unsigned spatial = weight->n - 2;
    uint64_t positions = in->n == weight->n ? extent(in->d[0]) : 1;
    for (unsigned i = 0; i < spatial; i++) {
        int64_t size = in->d[in->n - spatial + i];
        positions = times(positions, op->kind == SWN_FLOPS_CONV ? output(op, i, size, weight->d[2 + i]) : extent(size));
    }
    return times(2, times(elements(weight), positions));
}

static uint64_t matmul(const struct swn_shape *a, const struct swn_shape *b)
{
    uint64_t rows = a->n > 1 ? from_behind(a, 1) : 1, columns = b->n > 1 ? from_behind(b, 0) : 1, batch = 1;
    if (!a->n || !b->n)
        return 0;
    for (unsigned i = 2; i < a->n || i < b->n; i++) {
        uint64_t x = from_behind(a, i), y = from_behind(b, i);
        batch = times(batch, x > y ? x : y);
    }
    return times(2, times(times(batch, rows), times(from_behind(a, 0), columns)));
}

static uint64_t linear(const struct swn_shape *in, const struct swn_shape *weight)
{
    return in->n && weight->n ? times(2, times(elements(in), weight->n > 1 ? extent(weight->d[0]) : 1)) : 0;
}

/* q k' and its product with v. */
static uint64_t attention(const struct swn_shape *q, const struct swn_shape *k, const struct swn_shape *v)
{
    if (q->n < 2 || k->n < 2 || v->n < 2)
        return 0;
    return times(2, times(times(elements(q) / (from_behind(q, 0) ? from_behind(q, 0) : 1), from_behind(k, 1)),
                          plus(from_behind(q, 0), from_behind(v, 0))));
}

/* Every element of a weight matrix counts once per row of the input; biases have one dimension. */
static uint64_t projections(const struct swn_flops_op *op)
{
    const struct swn_shape *in = &op->tensor[0];
    uint64_t width = from_behind(in, 0), rows = width ? elements(in) / width : 0, weights = 0;
    for (unsigned i = 1; i < op->tensors; i++)
        if (op->tensor[i].n == 2)
            weights = plus(weights, elements(&op->tensor[i]));
    return times(2, times(rows, weights));
}

uint64_t swn_flops(const struct swn_flops_op *op)
{
    const struct swn_shape *t = op->tensor;
    if (op->tensors < 1)
        return 0;
    switch (op->kind) {
    case SWN_FLOPS_CONV:
    case SWN_FLOPS_CONV_TRANSPOSE:
        return conv(op);
    case SWN_FLOPS_LINEAR:
        return op->tensors < 2 ? 0 : linear(&t[0], &t[1]);
    case SWN_FLOPS_MATMUL:
        return op->tensors < 2 ? 0 : matmul(&t[0], &t[1]);
    case SWN_FLOPS_MATMUL_ADD:
        return op->tensors < 3 ? 0 : matmul(&t[1], &t[2]);
    case SWN_FLOPS_ATTENTION:
        return op->tensors < 3 ? 0 : attention(&t[0], &t[1], &t[2]);
    case SWN_FLOPS_ENCODER:
        return plus(projections(op), attention(&t[0], &t[0], &t[0]));
    case SWN_FLOPS_RNN:
        return projections(op);
    case SWN_FLOPS_BATCH_NORM:
        return times(2, elements(&t[0]));
    case SWN_FLOPS_NORM:
        return times(5, elements(&t[0]));
    case SWN_FLOPS_EMBEDDING:
        return op->tensors < 2 ? 0 : times(elements(&t[1]), from_behind(&t[0], 0));
    case SWN_FLOPS_NONE:
        break;
    }
    return 0;
}
