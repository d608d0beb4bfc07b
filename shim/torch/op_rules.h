// What the learned order of weights and the row gather have to know of an operator: which of its arguments are no
// weights, in which it looks up rows, and which operators touch no byte or are a frame around others. The bits do not
// depend on it: an operator that is not listed reads its tensors as if they were weights. One letter per argument, the
// last one holds for all that follow: w a weight, or what may be one; i an input, which is none; r one of which single
// rows are looked up (by asking for them, see shim/torch/kernel_index.h, or at its own address). "m": metadata only, or
// a frame. Those whose results are views by their schema need not be listed for that.
#ifndef SWN_SHIM_TORCH_OP_RULES_H
#define SWN_SHIM_TORCH_OP_RULES_H

struct swn_rule {
    const char *name, *uses;
};

// nullptr when the operator is not listed.
const swn_rule *swn_rule_find(const char *name);

// Whether the operator's kernels for devices are known to let go of what they read: there a weight that comes and goes
// is lent by address (shim/torch/device_swap.h).
bool swn_lets_go(const char *name);

#endif
