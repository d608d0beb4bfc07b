/* skeleton/tape/tape.h - the form of a model that is served: a flat list of steps over numbered values, with liveness,
 * cuts and layer groups.
 *
 * A step stands for one operator, or for a part of the model that runs as a whole. It reads values and makes values;
 * what a step computes, its executor knows. Weights and constants belong to the model and are no values here: a step
 * only says how many bytes of weights it reads. Values belong to one request.
 *
 * A cut is a place between two steps at which one tensor is alive, and beside it at most scalars: there a request can
 * be set aside for another one with no more than that. A layer group is what runs between two chosen cuts without a
 * look at other requests.
 *
 * A tape is built by one thread, and constant after swn_tape_finish: then any thread may read it.
 */
#ifndef SWN_SKELETON_TAPE_TAPE_H
#define SWN_SKELETON_TAPE_TAPE_H

#include <stddef.h>
#include <stdint.h>

enum swn_tape_kind {
    SWN_TAPE_TENSOR,
    SWN_TAPE_SCALAR, /* numbers, strings, nothing at all, and lists or tuples of them */
    SWN_TAPE_OTHER,  /* lists of tensors, objects: no cut while one is alive */
};

struct swn_tape;

/* NULL: no memory. */
struct swn_tape *swn_tape_new(void);
void swn_tape_free(struct swn_tape *t);

/* A value's number, from 0 on in the order of these calls, or -ENOMEM. It is an input of the model until a step makes
 * it. */
int64_t swn_tape_value(struct swn_tape *t, enum swn_tape_kind kind);

/* Appends a step that reads `in` and makes `out`, each of which no step has made before and no earlier step has read.
 * Its number, -EINVAL, or -ENOMEM. */
int64_t swn_tape_step(struct swn_tape *t, const uint32_t *in, size_t ins, const uint32_t *out, size_t outs,
                      uint64_t weight_bytes);

/* The value is a result of the model: alive to the end. 0, -EINVAL, -ENOMEM. */
int swn_tape_result(struct swn_tape *t, uint32_t value);

/* Computes liveness and cuts; nothing may be appended afterwards. 0 or -ENOMEM. */
int swn_tape_finish(struct swn_tape *t);

size_t swn_tape_steps(const struct swn_tape *t);
size_t swn_tape_values(const struct swn_tape *t);

/* The values that nothing reads after step `step`: read by it for the last time, or made by it in vain. Results are
 * never among them. Lives as long as the tape. */
const uint32_t *swn_tape_dead_after(const struct swn_tape *t, size_t step, size_t *count);
/* Inputs of the model that no step reads, and which are no results. */
const uint32_t *swn_tape_unread(const struct swn_tape *t, size_t *count);

/* Bytes of weights of the steps from `begin` up to `end`. */
uint64_t swn_tape_weight_bytes(const struct swn_tape *t, size_t begin, size_t end);

/* Whether a request can be set aside between step - 1 and `step`. Never at 0 and at the end. */
int swn_tape_is_cut(const struct swn_tape *t, size_t step);
size_t swn_tape_cuts(const struct swn_tape *t);

/* Divides the tape into at most `most` layer groups along cuts, so that the most expensive group costs as little as
 * possible. `cost[i]` is what step i costs, in any unit; NULL: the weight bytes of each step, and 1. Fills first[],
 * room for `most`, with the first step of each group. The number of groups, 0 for a tape without steps. With `most`
 * above the number of cuts, each cut is used. */
size_t swn_tape_groups(const struct swn_tape *t, const uint64_t *cost, size_t most, size_t *first);
/* The same of the steps from `begin` up to `end`, both of which are ends of the tape or cuts. */
size_t swn_tape_groups_between(const struct swn_tape *t, const uint64_t *cost, size_t begin, size_t end, size_t most,
                               size_t *first);

#endif
