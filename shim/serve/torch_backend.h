/* shim/serve/torch_backend.h - finds a PyTorch and the serve backend that was built for it. */
#ifndef SWN_SHIM_SERVE_TORCH_BACKEND_H
#define SWN_SHIM_SERVE_TORCH_BACKEND_H

#include <stddef.h>

#include "shim/serve/backend.h"

/* Loads the PyTorch in `directory`, where libtorch_cpu.so or lib/libtorch_cpu.so lies; NULL: SWAPNET_TORCH, or else the
 * one of the interpreter SWAPNET_PYTHON (python3), which is asked without importing it. Then loads serve-X.Y.so, in
 * swapnet/ of the libraries installed with this program. NULL with a text of what is missing, and what to do. */
const struct swn_serve_backend *swn_torch_backend_open(const char *directory, char *why, size_t size);

#endif
