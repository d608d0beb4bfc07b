// Matrix products that take their weight slice by slice along the output dimension (FlexNN 3.2), so that a layer need
// not be in memory as a whole.
//
// A slice of rows of the weight gives a slice of columns of the result. Whether that has the same bits as the whole
// product is a property of the math library, so it is tried before it is relied on: with the same shapes, the same cuts
// and as many threads, on random numbers, in memory that is a few MiB mapped over and over. A product that fails is
// computed whole, through the mapping.
#ifndef SWN_ATEN_SLICES_H
#define SWN_ATEN_SLICES_H

#include <torch/library.h>

#include "swn_aten.h"

// The operator this thread is in, or nullptr where none was announced. In aten.cpp.
swn_op *swn_current_op();

// Puts the kernels in front of PyTorch's own at the CPU key. `host` is borrowed for ever.
void swn_slices_register(torch::Library &library, const swn_host *host);

#endif
