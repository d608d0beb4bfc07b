// Random numbers for a tensor that is larger than the budget, made piece by piece: see swn_fill.h. Whether pieces get
// the numbers that the whole gets, in the same bits, and leave the generator in the same state, is tried before it is
// relied on.
#ifndef SWN_ATEN_FILLS_H
#define SWN_ATEN_FILLS_H

#include <torch/library.h>

#include "swn_aten.h"

// Puts normal_ and uniform_ in front of PyTorch's own at the CPU key. `host` is borrowed for ever.
void swn_fills_register(torch::Library &library, const swn_host *host);

#endif
