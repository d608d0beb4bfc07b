/* profiles/delay_model.c - see delay_model.h. */
#include "profiles/delay_model.h"

struct swn_delay swn_delay_of(const struct swn_coefficients *c, const struct swn_layer *l)
{
    return (struct swn_delay){
        .in = c->alpha * (double)l->bytes + c->beta * (double)l->depth,
        .ex = l->compute_s >= 0 ? l->compute_s : c->gamma * (double)l->flops,
        .out = c->eta * (double)l->depth,
    };
}
