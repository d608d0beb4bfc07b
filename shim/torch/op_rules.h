// Rules for the learned order of weights and the row gather: which arguments of an operator are no weights, in which
// the operator looks up rows, and which operators touch no byte or are a frame around others. The bits do not depend on
// the rules: an operator that is not listed reads its tensors as if they were weights. One letter per argument, and the
// last one holds for all that follow: w: may be a weight; i: an input, which is none; r: single rows are looked up (see
// shim/torch/kernel_index.h, or at its own address); p: some experts are read (shim/torch/op_experts.h). "m": metadata
// only, or a frame. Operators whose results are views by their schema need no rule for that.
#ifndef SWN_SHIM_TORCH_OP_RULES_H
#define SWN_SHIM_TORCH_OP_RULES_H

struct swn_rule {
    const char *name, *uses;
};

// nullptr when the operator is not listed.
const swn_rule *swn_rule_find(const char *name);

// Whether the operator's kernels for devices are known not to keep what they read: there memory that comes and goes is
// lent by address (shim/torch/device_swap.h).
bool swn_lets_go(const char *name);

#endif
