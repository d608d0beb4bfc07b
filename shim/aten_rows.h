// Embeddings that look up rows of a weight which is not in memory: only those rows are read, not the weight.
//
// An embedding copies rows as they are, so the bits are the same for every type.
#ifndef SWN_ATEN_ROWS_H
#define SWN_ATEN_ROWS_H

#include <torch/library.h>

#include "swn_aten.h"

// Puts the kernel in front of PyTorch's own at the CPU key. `host` is borrowed for ever.
void swn_rows_register(torch::Library &library, const swn_host *host);

#endif
