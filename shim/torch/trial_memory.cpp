// shim/torch/trial_memory.cpp - see trial_memory.h.
#include "shim/torch/trial_memory.h"
#include "shim/torch/services.h"

#include <algorithm>
#include <cstring>

namespace
{

// A large weight has a longer period, so that there are not too many mappings.
constexpr size_t least_period = 1u << 20, most_periods = 256;

// With all bits of the type: products of numbers with fewer bits are exact, and do not show how they are rounded.
template <typename T> T rounded(double number)
{
    return static_cast<T>(static_cast<float>(number));
}

template <> double rounded<double>(double number)
{
    return number;
}

template <typename T> void fill_numbers(char *at, size_t bytes)
{
    T *to = reinterpret_cast<T *>(at);
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < bytes / sizeof(T); i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        to[i] = rounded<T>(static_cast<double>(static_cast<int64_t>(state)) * 0x1p-63);
    }
}

void fill(char *at, size_t bytes, at::ScalarType type)
{
    if (type == at::kFloat)
        fill_numbers<float>(at, bytes);
    else if (type == at::kDouble)
        fill_numbers<double>(at, bytes);
    else if (type == at::kHalf)
        fill_numbers<at::Half>(at, bytes);
    else
        fill_numbers<at::BFloat16>(at, bytes);
}

// The number of bits of a type's exponent and fraction.
struct Bits {
    unsigned exponent, fraction;
};

template <typename U> void odd_row(U *row, size_t n, size_t number, Bits bits)
{
    const U sign = static_cast<U>(U{1} << (bits.exponent + bits.fraction)),
            infinite = static_cast<U>(((U{1} << bits.exponent) - 1) << bits.fraction),
            quiet = static_cast<U>(infinite | U{1} << (bits.fraction - 1));
    switch (number % 8) {
    case 1:
        row[n / 3] = static_cast<U>(infinite | (number % 16 == 1 ? sign : U{0}));
        break;
    case 3:
        row[n / 2] = static_cast<U>(quiet | 1);
        row[n - 1 - n / 5] = static_cast<U>(quiet | sign | 2);
        break;
    case 5:
        for (size_t i = 0; i < n; i++)
            row[i] = i % 2 ? sign : U{0};
        // Only a few, as processors are slow with denormal numbers, and with all sums that contain them.
        for (size_t i = n - std::min<size_t>(n, 4); i < n; i++)
            row[i] = static_cast<U>((U{1} << (bits.fraction - 1)) + i);
        break;
    }
}

template <typename U> void make_odd(char *at, size_t bytes, size_t row_bytes, Bits bits)
{
    size_t n = row_bytes / sizeof(U), all = bytes / sizeof(U);
    for (size_t number = 0, from = 0; n && from < all; from += n, number++)
        odd_row(reinterpret_cast<U *>(at) + from, std::min(n, all - from), number, bits);
}

void make_odd(char *at, size_t bytes, size_t row_bytes, at::ScalarType type)
{
    if (type == at::kFloat)
        make_odd<uint32_t>(at, bytes, row_bytes, {8, 23});
    else if (type == at::kDouble)
        make_odd<uint64_t>(at, bytes, row_bytes, {11, 52});
    else if (type == at::kHalf)
        make_odd<uint16_t>(at, bytes, row_bytes, {5, 10});
    else
        make_odd<uint16_t>(at, bytes, row_bytes, {8, 7});
}

size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

} // namespace

swn_random::swn_random(size_t bytes, size_t period, at::ScalarType type, swn_numbers_kind kind, size_t row_bytes)
    : bytes_(bytes), period_(period)
{
    base_ = static_cast<char *>(swn_services->tiling.trial_map(bytes_, period_));
    if (!base_)
        return;
    fill(base_, period_, type);
    if (kind == swn_numbers_kind::odd)
        make_odd(base_, period_, row_bytes, type);
}

swn_random::~swn_random()
{
    if (base_)
        swn_services->tiling.trial_unmap(base_, bytes_, period_);
}

swn_folding::swn_folding(size_t bytes, size_t period)
{
    swn_services->tiling.trial_alias_allocations(bytes, period);
}

swn_folding::~swn_folding()
{
    swn_services->tiling.trial_alias_allocations(0, 0);
}

bool swn_same_bits(const at::Tensor &a, const at::Tensor &b)
{
    at::Tensor x = a.contiguous(), y = b.contiguous();
    return x.nbytes() == y.nbytes() && std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

size_t swn_extent(const at::Tensor &tensor)
{
    int64_t last = 0;
    for (int64_t i = 0; i < tensor.dim(); i++)
        last += (tensor.size(i) - 1) * tensor.stride(i);
    return static_cast<size_t>(last + 1) * tensor.itemsize();
}

size_t swn_period_of(size_t bytes)
{
    size_t period = std::max(least_period, bytes / most_periods);
    return round_up(std::min({bytes, period, swn_most_period}), swn_page);
}
