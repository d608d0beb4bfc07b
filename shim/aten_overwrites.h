// Operators that write all of a tensor and read nothing of it: what it holds need not be read back for them.
#ifndef SWN_ATEN_OVERWRITES_H
#define SWN_ATEN_OVERWRITES_H

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

// Whether self.copy_(source) writes every byte of self's storage and cannot be refused on the way.
bool swn_overwrites(const at::Tensor &self, const at::Tensor &source);

// Whether a fill of self with these inputs does (zero_, fill_, normal_, uniform_). Models are initialised twice, by
// their layers and then by themselves: what the first left behind need not be read back.
bool swn_refills(const at::Tensor &self, c10::ArrayRef<const c10::IValue> inputs);

#endif
