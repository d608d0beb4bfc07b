/* tests/unit/support/sliced_op.h - operators that can take their weight slice by slice, as shim/torch/slices.cpp has
 * them. */
#ifndef SWN_TESTS_UNIT_SUPPORT_SLICED_OP_H
#define SWN_TESTS_UNIT_SUPPORT_SLICED_OP_H

#include "tests/unit/support/engine_fixture.h"

/* What the bits depend on of the operators to come, and from how many bytes on slices have the right ones; SIZE_MAX:
 * none has. */
extern uint64_t op_shape;
extern size_t op_right_from;

/* Slices of t, no more than `most`, as a kernel takes them. Returns how many there were. */
size_t op_take_slices(struct swn_op *op, const struct tensor *t, size_t row_bytes, size_t most);

/* An operator on t that can take it in slices. Returns how many it took; 0: it used the weight whole. */
size_t op_sliced_by(struct tensor *t, const struct swn_row_geometry *rows, size_t most);
/* The same, of op_shape, with one row at a time. */
size_t op_sliced(struct tensor *t, size_t row_bytes, size_t most);

/* So many operators that weights are told from activations from the first pass on. */
void op_age(void);

#endif
