// Whether PyTorch's kernels (or ours, which call those) compute an operator, on the CPU or on a device, or the
// program's own. Only PyTorch's kernels are known to keep no slice of a weight, and no address on a device, after they
// return.
//
// A program can register kernels at any time. The dispatcher counts, for each operator, what is registered for it; that
// count is looked at before each use, and the kernels where it has changed. One that another thread registers during an
// operator is seen at the next one.
#ifndef SWN_SHIM_TORCH_DISPATCH_CHECK_H
#define SWN_SHIM_TORCH_DISPATCH_CHECK_H

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <deque>
#include <optional>

// The source that our kernels name when they are registered.
constexpr const char *swn_kernels_source = "swapnet/shim";

// Thread-safe.
class swn_kernels
{
  public:
    swn_kernels() = default; // of no operator: they are not PyTorch's
    void look_at(const c10::OperatorHandle &handle);

    // Whether they are PyTorch's or ours.
    bool own_are_pytorchs()
    {
        look_again();
        return known.load(std::memory_order_relaxed);
    }

    // Likewise, for tensors of a device.
    bool own_are_pytorchs_there()
    {
        look_again();
        return known_there.load(std::memory_order_relaxed);
    }
    bool parts_are_pytorchs_there();
    // Whether those are of the operators that our kernels have compute with a part of a weight or of an input.
    static bool parts_are_pytorchs();

  private:
    void look();
    void look_again()
    {
        if (count && *count != was.load(std::memory_order_acquire))
            look();
    }
    static std::deque<swn_kernels> &made_of();

    std::optional<c10::OperatorHandle> operator_handle;
    const size_t *count = nullptr; // the dispatcher's
    std::atomic<size_t> was{0};
    std::atomic<bool> known{false}, known_there{false}, composite{false};
};

// A thread that a fork leaves behind must not be looking.
void swn_kernels_before_fork();
void swn_kernels_after_fork();

#endif
