#include "aten_trial_memory.h"

#include <algorithm>
#include <cstring>

namespace
{

const swn_host *host;

// Of a large weight more, so that there are not too many mappings.
constexpr size_t least_period = 1u << 20, most_periods = 256;

thread_local bool folds = false;

// With all the bits that the type has: products of fewer are exact, and say nothing of how they are rounded.
template <typename T> T rounded(double number)
{
    return static_cast<T>(static_cast<float>(number));
}

template <> double rounded<double>(double number)
{
    return number;
}

template <typename T> void numbers(char *at, size_t bytes)
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
        numbers<float>(at, bytes);
    else if (type == at::kDouble)
        numbers<double>(at, bytes);
    else if (type == at::kHalf)
        numbers<at::Half>(at, bytes);
    else
        numbers<at::BFloat16>(at, bytes);
}

size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

} // namespace

swn_random::swn_random(size_t bytes, size_t period, at::ScalarType type) : bytes_(bytes), period_(period)
{
    base_ = static_cast<char *>(host->trial_map(bytes_, period_));
    if (base_)
        fill(base_, period_, type);
}

swn_random::~swn_random()
{
    if (base_)
        host->trial_unmap(base_, bytes_, period_);
}

swn_folding::swn_folding(size_t bytes, size_t period)
{
    folds = bytes != 0;
    host->trial_fold(bytes, period);
}

swn_folding::~swn_folding()
{
    folds = false;
    host->trial_fold(0, 0);
}

bool swn_folding::active()
{
    return folds;
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

void swn_trial_memory_begin(const swn_host *h)
{
    host = h;
}
