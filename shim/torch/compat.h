// An optional tensor, as this PyTorch version declares it.
#ifndef SWN_SHIM_TORCH_COMPAT_H
#define SWN_SHIM_TORCH_COMPAT_H

#include <ATen/core/Tensor.h>
#include <torch/version.h>

#if TORCH_VERSION_MAJOR < 2
using swn_maybe_tensor = c10::optional<at::Tensor>;
#else
using swn_maybe_tensor = std::optional<at::Tensor>;
#endif

#endif
