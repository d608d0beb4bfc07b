// shim/torch/kernel_random.cpp - see kernel_random.h.
#include "shim/torch/kernel_random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/normal_native.h>
#include <ATen/ops/uniform_native.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "shim/torch/compat.h"
#include "shim/torch/tensor_checks.h"
#include "shim/torch/slices.h"
#include "shim/torch/services.h"

namespace
{

using Generator = swn_optional<at::Generator>;
using Fill = at::Tensor &(*)(at::Tensor &, double, double, Generator);

// normal_ makes its numbers in groups of this size, and makes the last group of an uneven tensor again.
constexpr int64_t together = 16;
constexpr int64_t trial_piece = 1024;

// The size of the next piece of `left` numbers, at most `most`: all pieces but the last are whole groups, and the last
// has at least one group.
int64_t next_piece(int64_t left, int64_t most)
{
    most -= most % together;
    if (left <= most)
        return left;
    return left - most < together ? most - together : most;
}

bool same_in_pieces(Fill fill, at::ScalarType type)
{
    at::Generator one = at::detail::createCPUGenerator(1), other = at::detail::createCPUGenerator(1);
    for (int64_t over : {int64_t{0}, int64_t{5}, together + 3}) {
        int64_t n = 4 * trial_piece + over;
        at::Tensor whole = at::empty({n}, type), pieces = at::empty({n}, type);
        fill(whole, 0, 1, one);
        for (int64_t at = 0, count; at < n; at += count) {
            count = next_piece(n - at, trial_piece);
            at::Tensor piece = pieces.narrow(0, at, count);
            fill(piece, 0, 1, other);
        }
        if (std::memcmp(whole.data_ptr(), pieces.data_ptr(), whole.nbytes()) != 0)
            return false;
    }
    return one.get_state().equal(other.get_state());
}

// Results of trials, by function and type: 1 yes, -1 no, 0 not tried. Without a lock, which a fork could leave locked
// in the child; two threads may try at once, and find the same.
std::atomic<signed char> shown[2][static_cast<size_t>(at::ScalarType::NumOptions)];

bool proven(Fill fill, at::ScalarType type)
{
    auto &known = shown[fill == at::native::normal_][static_cast<size_t>(type)];
    if (!known)
        known = same_in_pieces(fill, type) ? 1 : -1;
    return known > 0;
}

// The argument of the running operator whose whole storage is this tensor; -1: none.
int argument_of(const swn_op *op, const at::Tensor &self)
{
    for (unsigned i = 0; op && i < op->n; i++) {
        const swn_arg &arg = op->args[i];
        if (arg.use == SWN_USE_OVERWRITE && arg.data == reinterpret_cast<uintptr_t>(self.data_ptr()) &&
            arg.bytes == self.nbytes())
            return static_cast<int>(i);
    }
    return -1;
}

struct Filling {
    swn_fill *fill;
    bool made = false;
    ~Filling()
    {
        if (fill)
            swn_services->tiling.fill_end(fill, made);
    }
};

at::Tensor &fill_in_pieces(Fill fill, at::Tensor &self, double a, double b, const Generator &generator)
{
    auto type = self.scalar_type();
    swn_announce(self);
    int arg = self.has_storage() && self.numel() >= together && swn_simple(self, type) && self.is_contiguous()
                  ? argument_of(swn_current_op(), self)
                  : -1;
    if (arg < 0)
        return fill(self, a, b, generator);
    size_t most = 0;
    Filling filling{proven(fill, type)
                        ? swn_services->tiling.fill_begin(swn_current_op(), static_cast<unsigned>(arg), &most)
                        : nullptr};
    if (!filling.fill) {
        swn_make_afresh(self, [&](at::Tensor &to) { fill(to, a, b, generator); });
        return self;
    }
    int64_t size = static_cast<int64_t>(self.itemsize());
    for (int64_t at = 0, count; at < self.numel(); at += count) {
        count = next_piece(self.numel() - at, static_cast<int64_t>(most) / size);
        void *bytes = swn_services->tiling.fill_next(filling.fill, static_cast<size_t>(count * size));
        at::Tensor piece = at::from_blob(bytes, {count}, at::dtype(type));
        fill(piece, a, b, generator);
    }
    filling.made = true;
    return self;
}

at::Tensor &normal_kernel(at::Tensor &self, double mean, double std, Generator generator)
{
    return fill_in_pieces(at::native::normal_, self, mean, std, generator);
}

at::Tensor &uniform_kernel(at::Tensor &self, double from, double to, Generator generator)
{
    return fill_in_pieces(at::native::uniform_, self, from, to, generator);
}

} // namespace

void swn_fills_register(torch::Library &library)
{
    library.impl("normal_", normal_kernel);
    library.impl("uniform_", uniform_kernel);
}
