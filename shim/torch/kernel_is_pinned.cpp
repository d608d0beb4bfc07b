// shim/torch/kernel_is_pinned.cpp - answers whether memory is pinned: memory that swapnet lends to a device is not.
#include "shim/torch/unified.h"

#include <ATen/ops/is_pinned_native.h>
#include <ATen/ops/is_pinned_ops.h>
#include <c10/core/TensorOptions.h>
#include <torch/library.h>

#include "shim/torch/compat.h"
#include "shim/torch/dispatch_check.h"

// PyTorch asks the driver, which knows all memory that is registered with it, swapnet's as well; and pin_memory()
// returns a tensor itself if it is pinned already, although the program expects a copy.

namespace
{

#if !SWN_PINNED_BY_DEVICE
constexpr auto key = c10::DispatchKey::CPU;

bool pytorchs(const at::Tensor &self, swn_optional<at::Device> device)
{
    return at::native::is_pinned(self, device);
}
#else
// At this key PyTorch chooses the device's kernel, so a kernel here comes before all of them.
constexpr auto key = c10::DispatchKey::BackendSelect;

bool pytorchs(const at::Tensor &self, swn_optional<at::Device> device)
{
    // As in PyTorch's own kernel, which is not called any more. A device's tensor may lie in swapnet's memory that is
    // pinned.
    if (!self.is_cpu())
        return false;
    auto asked = c10::computeDispatchKey(c10::nullopt, self.layout(), device.value_or(at::kCUDA));
    return at::_ops::is_pinned::redispatch(c10::DispatchKeySet(asked), self, device);
}
#endif

bool is_pinned(const at::Tensor &self, swn_optional<at::Device> device)
{
    return !(swn_unified_active() && swn_unified_registered(self)) && pytorchs(self, device);
}

} // namespace

void swn_pinned_register()
{
    // Never destroyed: other threads may still compute when the process ends.
    auto *library = new torch::Library(torch::Library::IMPL, "aten", key, swn_kernels_source, __LINE__);
    library->impl("is_pinned", is_pinned);
}
