// Memory for trials: numbers and allocations that map a few MiB over and over.
#ifndef SWN_SHIM_TORCH_TRIAL_MEMORY_H
#define SWN_SHIM_TORCH_TRIAL_MEMORY_H

#include <ATen/core/Tensor.h>

#include "skeleton/abi/abi.h"

// The most bytes that are mapped over and over.
constexpr size_t swn_most_period = 4u << 20;
// The bits may depend on the offset of numbers in a page, or in a cache line.
constexpr size_t swn_page = 4096, swn_line = 64;

// Ordinary numbers show in what order they are added up, and how the sum is rounded. Odd numbers are the same, except
// that some rows have an infinity, or two NaNs, of which the result keeps one, or are all zeros of both signs with
// denormal numbers at their ends.
enum class swn_numbers_kind { ordinary, odd };

// Memory that reads as random numbers of one type, of any size, out of `period` bytes.
class swn_random
{
  public:
    swn_random(size_t bytes, size_t period, at::ScalarType type, swn_numbers_kind kind = swn_numbers_kind::ordinary,
               size_t row_bytes = 0);
    swn_random(const swn_random &) = delete;
    ~swn_random();
    // nullptr: no memory.
    char *base() const
    {
        return base_;
    }

  private:
    size_t bytes_, period_;
    char *base_ = nullptr;
};

// During its life, this thread's tensors of `bytes`, or a little more, repeat themselves after `period`.
class swn_folding
{
  public:
    swn_folding(size_t bytes, size_t period);
    swn_folding(const swn_folding &) = delete;
    ~swn_folding();
};

bool swn_same_bits(const at::Tensor &a, const at::Tensor &b);

// From the tensor's first element to the end of its last.
size_t swn_extent(const at::Tensor &tensor);

// The period for numbers that no kernel copies: `bytes`, up to a few MiB.
size_t swn_period_of(size_t bytes);

#endif
