// An operator that computes with some experts of a mixture, each in an operator within it: aten::_grouped_mm. The
// weight is [experts, k, n]; expert i multiplies the rows from offsets[i - 1] to offsets[i], and is not read where
// there are none. PyTorch's own kernel computes, at the weight's own address: it is told before each product which
// bytes come next. So the bits do not depend on anything here.
#ifndef SWN_SHIM_TORCH_OP_EXPERTS_H
#define SWN_SHIM_TORCH_OP_EXPERTS_H

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <vector>

#include "skeleton/abi/abi.h"

// Of one thread's operator.
class swn_op_experts
{
  public:
    // Whether the i-th input is a mixture with offsets. It is going to be the argument number `arg`, if it is of
    // interest at all.
    bool find(c10::ArrayRef<const c10::IValue> inputs, size_t i, unsigned arg);
    bool are_there() const
    {
        return there_;
    }
    void forget()
    {
        there_ = false;
    }
    // The operator has been announced.
    void begin(swn_op &op);
    // An operator within it is about to read its inputs.
    void lend(swn_op &op, const at::RecordFunction &fn) const;

  private:
    bool there_ = false;
    unsigned arg_ = 0;
    swn_experts experts_{};
    std::vector<uint32_t> numbers_; // keeps its memory
};

#endif
