/* swn_stripe_choice.h - in which way a convolution is computed: whole, or in stripes of which length. Pure functions of
 * their arguments; in both halves.
 *
 * The rule: the whole where it has room. Else each length costs the time that it took at its best, and what has to
 * leave for its memory and come back; the cheapest is taken. What the operators in use leave no room for is not taken
 * as long as there is something else.
 */
#ifndef SWN_STRIPE_CHOICE_H
#define SWN_STRIPE_CHOICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SWN_STRIPE_WAYS 24
#define SWN_STRIPE_NO_ROOM UINT64_MAX

enum swn_stripe_bits { SWN_STRIPE_UNTRIED, SWN_STRIPE_SAME, SWN_STRIPE_DIFFERS };

struct swn_stripe_way {
    int64_t pixels;            /* that one product has at once; positive */
    enum swn_stripe_bits bits; /* compared with the whole's */
    uint64_t ns;               /* the least that it took; 0: not known */
    uint64_t cost_ns;          /* at this moment, for the room that it takes; or SWN_STRIPE_NO_ROOM */
};

/* What is known of a convolution. */
struct swn_stripe_known {
    struct swn_stripe_way ways[SWN_STRIPE_WAYS]; /* the whole, and then stripes, each shorter than those before */
    unsigned n;
    unsigned last;    /* the way that was taken last; 0 at first */
    uint64_t used_ns; /* what the program's own computing took, and what trials did */
    uint64_t tried_ns;
};

struct swn_stripe_step {
    unsigned way;
    int try_out; /* first: whether it has the bits of the whole is not known */
};

/* What to do next. The first trial is asked for at once; further ones wait until the program's own computing has taken
 * as long as they will. */
struct swn_stripe_step swn_stripe_next(const struct swn_stripe_known *known);

/* Whether it comes whole since stripes have other bits: all that were tried, and no others are left that would be.
 * Those for which there is no room never are. */
int swn_stripe_refused(const struct swn_stripe_known *known);

#ifdef __cplusplus
}
#endif
#endif
