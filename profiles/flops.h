/* profiles/flops.h - floating-point operations of an operator, from the shapes of its tensors.
 *
 * A product and the sum it goes into are two operations and a bias costs nothing, as in torch.utils.flop_counter, which
 * knows convolutions, products of matrices and attention. Small terms beyond it: a batch norm with known statistics
 * takes 2 per element (a product, a sum), a norm that makes its own 5 (mean and variance as well), and an embedding 1
 * per element it copies, since it computes nothing.
 *
 * Pure arithmetic over sizes; C, so that it can be tested without PyTorch. Thread-safe. Results saturate.
 */
#ifndef SWN_PROFILES_FLOPS_H
#define SWN_PROFILES_FLOPS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SWN_SHAPE_DIMS 8
#define SWN_FLOPS_TENSORS 64
#define SWN_FLOPS_SPATIAL 3

enum swn_flops_kind {
    SWN_FLOPS_NONE,
    SWN_FLOPS_CONV,           /* input, weight */
    SWN_FLOPS_CONV_TRANSPOSE, /* input, weight */
    SWN_FLOPS_LINEAR,         /* input, weight (out x in) */
    SWN_FLOPS_MATMUL,         /* a, b as torch.matmul takes them */
    SWN_FLOPS_MATMUL_ADD,     /* sum, a, b */
    SWN_FLOPS_ATTENTION,      /* q, k, v */
    SWN_FLOPS_ENCODER,        /* input (batch x length x width), then the layer's weights */
    SWN_FLOPS_RNN,            /* input, then its weights */
    SWN_FLOPS_BATCH_NORM,     /* input */
    SWN_FLOPS_NORM,           /* input */
    SWN_FLOPS_EMBEDDING,      /* table, indices */
};

struct swn_shape {
    unsigned n;
    int64_t d[SWN_SHAPE_DIMS];
};

struct swn_flops_op {
    enum swn_flops_kind kind;
    unsigned tensors;
    struct swn_shape tensor[SWN_FLOPS_TENSORS];
    /* Convolutions; one value holds for all dimensions that follow. */
    int64_t stride[SWN_FLOPS_SPATIAL], padding[SWN_FLOPS_SPATIAL], dilation[SWN_FLOPS_SPATIAL];
    int same; /* padding such that the output is as large as the input */
};

/* What an operator ("aten::conv2d") computes. */
enum swn_flops_kind swn_flops_kind_find(const char *name);
/* 0 when the shapes do not fit the kind. */
uint64_t swn_flops(const struct swn_flops_op *op);

#ifdef __cplusplus
}
#endif
#endif
