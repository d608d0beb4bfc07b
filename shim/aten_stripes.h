// Convolutions that compute their result in stripes of its rows (FlexNN 3.2, input slicing), so that what PyTorch's own
// kernels make of the input, a matrix with kernel height times kernel width copies of it, need not be in memory as a
// whole.
//
// A stripe is the convolution of the rows that it needs (swn_stripe.h), by PyTorch's kernels again. Whether it has the
// same bits as those rows of the whole is a property of the math library, so it is tried before it is relied on, as for
// slices of weights (aten_trials.h). How long whole and stripes take, and how much, is measured on the same occasion.
#ifndef SWN_ATEN_STRIPES_H
#define SWN_ATEN_STRIPES_H

#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>

#include "aten_maybe.h"
#include "swn_aten.h"

// The arguments of a convolution, borrowed. Not transposed.
struct swn_convolution {
    const at::Tensor &input, &weight;
    const swn_maybe_tensor &bias;
    at::IntArrayRef stride, padding, dilation, output_padding;
    int64_t groups;

    at::DimVector result_sizes() const;
    // By PyTorch.
    at::Tensor whole() const;
};

// What a matrix of less than this takes is not worth a look.
constexpr size_t swn_least_matrix = 2u << 20;

// Whether its input could make such a matrix; cheap, for the many that do not. Padding is not looked at.
inline bool swn_may_be_striped(const at::Tensor &input, const at::Tensor &weight)
{
    auto all = static_cast<double>(weight.numel()),
         channels = static_cast<double>(weight.size(0)) * static_cast<double>(weight.size(1));
    return all > channels &&
           static_cast<double>(input.nbytes()) * all >= static_cast<double>(swn_least_matrix) * channels;
}

// In stripes or as a whole. Input and weight are batched and plainly laid out, the result has elements, and no gradient
// is wanted.
at::Tensor swn_convolve(const swn_convolution &what);

// Around a fork, in the thread that forks.
void swn_stripes_before_fork();
void swn_stripes_after_fork(); // in both processes

void swn_stripes_begin(const swn_host *host); // borrowed for ever

#endif
