/* skeleton/engine/experts.h - mixtures: weights of which each operator reads some experts only.
 *
 * Which experts are read next no order tells. So a mixture is in no plan: its frames have the room that the plan
 * leaves (`plan.experts_room`), and the expert that operators use least often leaves first. Uses are counted by chunks
 * of addresses, which remember them when their frames are gone. Counts fade: at the end of an epoch all of them are
 * halved.
 *
 * Engine lock held.
 */
#ifndef SWN_SKELETON_ENGINE_EXPERTS_H
#define SWN_SKELETON_ENGINE_EXPERTS_H

#include "skeleton/engine/engine_internal.h"

/* Of longer lists only so many experts are read ahead. */
#define SWN_EXPERTS_MOST 512

/* The experts that a thread's operator reads; or, when it is over, those that the last one read. */
struct swn_expert_list {
    uint32_t range_id; /* of the weight that an operator reads now; 0: none does */
    int is_told;       /* 0: an operator has begun to read another mixture, and has not said which experts of it */
    size_t count, n, next;
    uint32_t numbers[SWN_EXPERTS_MOST];
};

static inline int swn_is_mixture(const struct swn_range *r)
{
    return swn_tensor_of(r)->mixture.count != 0;
}

/* Makes r a mixture, and the thread's list that of r. 0, or -ENOMEM. */
int swn_experts_note(struct swn_engine *e, struct swn_thread_state *t, struct swn_range *r,
                     const struct swn_experts *experts);
/* The bytes of expert `number` that r has: from *from to *upto. */
void swn_expert_bounds(const struct swn_range *r, uint32_t number, size_t *from, size_t *upto);

/* Whether the frame has bytes of a mixture, and stays by how often these are used. */
int swn_frame_has_experts(const struct swn_frame *f);
/* Of the frames f and `rarest`, or NULL, the one whose chunk is used less often. Of two equal ones f, as callers go
 * from the least recently used one on: where experts are used in turns, the one used last is needed last. */
struct swn_frame *swn_frame_rarer(struct swn_engine *e, struct swn_frame *f, struct swn_frame *rarest);
/* Whether two frames of neighbouring chunks have bytes of the same expert. */
int swn_frames_of_one_expert(const struct swn_frame *a, const struct swn_frame *b);
/* How often the chunk is used, and that of the frame. */
uint32_t swn_chunk_uses(const struct swn_engine *e, struct swn_chunk *c);
uint32_t swn_frame_uses(struct swn_engine *e, const struct swn_frame *f);

#endif
