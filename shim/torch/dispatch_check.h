// Whether an operator is computed, on the CPU or on a device, by PyTorch's kernels (or swapnet's, which call those) or
// by the program's own. Only PyTorch's kernels are known to keep no slice of a weight, and no address on a device,
// after they return.
//
// A program can register kernels at any time. The dispatcher counts the registrations of each operator. This class
// compares the count before each use, and checks the kernels again when it has changed. A kernel that another thread
// registers during an operator is seen at the next operator.
#ifndef SWN_SHIM_TORCH_DISPATCH_CHECK_H
#define SWN_SHIM_TORCH_DISPATCH_CHECK_H

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <deque>
#include <optional>

// The source file that swapnet's kernels name in their registration.
constexpr const char *swn_kernels_source = "swapnet/shim";

// Thread-safe.
class swn_kernels
{
  public:
    swn_kernels() = default; // of no operator: not PyTorch's
    void look_at(const c10::OperatorHandle &handle);

    // Whether the operator's kernels are PyTorch's or swapnet's.
    bool own_are_pytorchs()
    {
        look_again();
        return known.load(std::memory_order_relaxed);
    }

    // The same, for tensors of a device.
    bool own_are_pytorchs_there()
    {
        look_again();
        return known_there.load(std::memory_order_relaxed);
    }
    bool parts_are_pytorchs_there();
    // Whether the same holds for the operators that swapnet's kernels call with a part of a weight or of an input.
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

// No thread may hold the lock of the check when the process forks.
void swn_kernels_before_fork();
void swn_kernels_after_fork();

#endif
