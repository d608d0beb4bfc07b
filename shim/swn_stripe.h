/* swn_stripe.h - the geometry of a convolution that computes its result in stripes: parts of it along one dimension,
 * its rows. Pure functions of their arguments; in both halves.
 */
#ifndef SWN_STRIPE_H
#define SWN_STRIPE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A convolution along the dimension in which it is cut. All positive, but padding, which may be 0; `out` as they make
 * it: (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1. */
struct swn_stripe_rows {
    int64_t in, out, kernel, stride, padding, dilation;
    int64_t
        align; /* rows of the result that are whole blocks of pixels: what is not used is so many, if it comes first */
};

/* The convolution of rows [first, first + rows) of the input, padded by `padding` on both sides as the whole is or by
 * 0, has the wanted rows of the result from its row `skip` on. */
struct swn_stripe {
    int64_t first, rows, padding, skip;
};

/* For `count` rows of the result from `from` on. No row of zeros is made up: where the padding falls into a stripe its
 * other side is padded as well, and what comes of that is not used. So a kernel that passes by the padding (and does
 * not multiply an infinite weight by 0) does so as in the whole. */
struct swn_stripe swn_stripe_at(const struct swn_stripe_rows *whole, int64_t from, int64_t count);

/* Rows that are whole blocks of pixels, of which they have so many: the `align` of stripes of `rows` rows each. 1:
 * these are not. */
int64_t swn_stripe_align(int64_t rows, int64_t row_pixels, int64_t block);

/* How many rows of the result that convolution has. */
int64_t swn_stripe_made(const struct swn_stripe_rows *whole, const struct swn_stripe *stripe);

/* What a convolution takes beside its input and its result, and how that can be cut. */
struct swn_stripe_scratch {
    int64_t samples, rows;  /* of the result */
    int64_t row_bytes;      /* for one row of one sample */
    int64_t row_pixels;     /* elements of such a row in one channel: neighbours in the matrix that is multiplied */
    int64_t block, threads; /* pixels that kernels compute with at once, and how many threads do */
    int together;           /* for all samples at once, else for one after the other */
};

/* So many samples at once, and of them so many rows. */
struct swn_stripe_cut {
    int64_t samples, rows;
};

/* Cuts to be tried, from the most promising on, so that about `bytes` are taken. At most two; returns how many: 0 if
 * that would be no cut. */
unsigned swn_stripe_cuts(const struct swn_stripe_scratch *scratch, int64_t bytes, struct swn_stripe_cut cuts[2]);

#ifdef __cplusplus
}
#endif
#endif
