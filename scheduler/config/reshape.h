/* scheduler/config/reshape.h - reshape of config.pbtxt: a model has a tensor in another shape than clients do.
 *
 * Dimensions are those behind the batch; -1 is any. The n-th dimension of any size of one shape is the n-th of the
 * other.
 */
#ifndef SWN_SCHEDULER_CONFIG_RESHAPE_H
#define SWN_SCHEDULER_CONFIG_RESHAPE_H

#include <stdint.h>

#include "scheduler/protocol/engine_wire.h"

struct swn_shape {
    uint32_t rank;
    int64_t sizes[SWN_WIRE_RANK];
};

/* 1: each tensor of the one shape has a place in the other: as many elements before, between and behind dimensions of
 * any size. */
int swn_reshape_is_sound(const struct swn_shape *a, const struct swn_shape *b);

/* The tensor, which has the shape `from` behind its first `batch` dimensions, gets the shape `to` there. 0; -EINVAL: it
 * has not, or would have more than SWN_WIRE_RANK dimensions; it stays as it is then. */
int swn_reshape(struct swn_wire_tensor *tensor, unsigned batch, const struct swn_shape *from,
                const struct swn_shape *to);

#endif
