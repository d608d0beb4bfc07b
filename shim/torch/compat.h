// What differs between the PyTorchs that torch backends and serve backends are built for: all conditions on versions
// are here.
#ifndef SWN_SHIM_TORCH_COMPAT_H
#define SWN_SHIM_TORCH_COMPAT_H

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <torch/version.h>

#include <optional>

#define SWN_TORCH_AT_LEAST(major, minor)                                                                               \
    (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if SWN_TORCH_AT_LEAST(2, 3)
#include <c10/core/impl/COW.h>
#elif SWN_TORCH_AT_LEAST(2, 2)
#include <c10/core/impl/cow/COW.h>
#endif

// What is optional in the declarations of operators.
#if SWN_TORCH_AT_LEAST(2, 2)
template <typename T> using swn_optional = std::optional<T>;
#else
template <typename T> using swn_optional = c10::optional<T>;
#endif

// Drops warnings while it lives.
#if SWN_TORCH_AT_LEAST(2, 0)
struct swn_silent : c10::WarningHandler {
    void process(const c10::Warning &) override
    {
    }
};
using swn_warning_guard = c10::WarningUtils::WarningHandlerGuard;
#else
struct swn_silent : c10::WarningHandler {
    void process(const c10::SourceLocation &, const std::string &, bool) override
    {
    }
};
using swn_warning_guard = c10::Warning::WarningHandlerGuard;
#endif

// Whether the program lets PyTorch use NNPACK; yes, where it has no say in that.
inline bool swn_allows_nnpack(const at::Context &context)
{
#if SWN_TORCH_AT_LEAST(2, 3)
    return context.userEnabledNNPACK();
#else
    (void)context;
    return true;
#endif
}

// Tensor::is_pinned() has a kernel for each device, behind one at this key which chooses it; without, it asks all
// devices.
#define SWN_PINNED_BY_DEVICE (!SWN_TORCH_AT_LEAST(2, 5))

// Whether other storages may lie at the storage's address (Tensor._lazy_clone): a kernel that writes to it gives it
// memory of its own first.
inline bool swn_copied_on_write(const c10::Storage &storage)
{
#if SWN_TORCH_AT_LEAST(2, 2)
    return c10::impl::cow::is_cow_data_ptr(storage.data_ptr());
#else
    (void)storage;
    return false;
#endif
}

// A device's allocator has an interface that does not depend on the device, with its counters.
#define SWN_HAS_DEVICE_ALLOCATOR SWN_TORCH_AT_LEAST(2, 9)
// at::kUInt16, at::kUInt32 and at::kUInt64.
#define SWN_HAS_UNSIGNED SWN_TORCH_AT_LEAST(2, 3)
// The precision of float32 is set for each backend and kind of operator.
#define SWN_HAS_FLOAT32_PRECISIONS SWN_TORCH_AT_LEAST(2, 10)
// torch.export writes files of the form that is read here.
#define SWN_HAS_EXPORT SWN_TORCH_AT_LEAST(2, 9)

#endif
