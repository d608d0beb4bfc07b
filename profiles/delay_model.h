/* profiles/delay_model.h - SwapNet's delay model (section 6.1) and the model information table (table 2).
 *
 * A block of s bytes, d references (parameter depth) and f floating-point operations takes
 *     t_in  = alpha s + beta d     to read and to assemble by reference
 *     t_ex  = gamma f              to compute
 *     t_out = eta d                to drop
 * A product and the sum it goes into count as two operations, as in torch.utils.flop_counter. Where a layer's
 * computing was measured, that time takes the place of gamma f. Seconds throughout.
 */
#ifndef SWN_PROFILES_DELAY_MODEL_H
#define SWN_PROFILES_DELAY_MODEL_H

#include <stddef.h>
#include <stdint.h>

/* Device-dependent; each is at least 0. */
struct swn_coefficients {
    double alpha; /* s per byte */
    double beta;  /* s per reference */
    double gamma; /* s per floating-point operation */
    double eta;   /* s per reference */
};

/* One layer, or the sum of several. */
struct swn_layer {
    uint64_t bytes;
    uint64_t depth; /* references */
    uint64_t flops;
    double compute_s; /* measured; below 0: not known */
};

struct swn_delay {
    double in, ex, out;
};

struct swn_delay swn_delay_of(const struct swn_coefficients *c, const struct swn_layer *l);

#endif
