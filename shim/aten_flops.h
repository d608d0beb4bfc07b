// An operator's arguments as sizes, for swn_flops.
#ifndef SWN_ATEN_FLOPS_H
#define SWN_ATEN_FLOPS_H

#include <ATen/core/ivalue.h>

#include "swn_flops.h"

// `use` is the operator's swn_use per argument. 0 where the arguments are not what the kind expects.
uint64_t swn_flops_of(swn_flops_kind kind, const signed char *use, size_t uses,
                      c10::ArrayRef<const c10::IValue> inputs);

#endif
