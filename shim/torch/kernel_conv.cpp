// shim/torch/kernel_conv.cpp - convolutions, computed in slices of their weight.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/convolution_native.h>
#include <ATen/ops/from_blob.h>

#include "shim/torch/compat.h"
#include "shim/torch/tensor_checks.h"
#include "shim/torch/slices.h"

namespace
{

// Rows of the weight are output channels, so a slice of them gives a slice of the channels of the result. In groups, a
// row is a whole group, which takes its own channels of the input.
struct Convolution : swn_sliced {
    const swn_optional<at::Tensor> &bias;
    const at::IntArrayRef stride, padding, dilation, output_padding;
    const int64_t groups;

    Convolution(const at::Tensor &input_, const at::Tensor &weight_, const swn_optional<at::Tensor> &bias_,
                at::IntArrayRef stride_, at::IntArrayRef padding_, at::IntArrayRef dilation_,
                at::IntArrayRef output_padding_, int64_t groups_)
        : swn_sliced(input_, weight_, groups_ == 1 ? weight_.size(0) : groups_,
                     sizes(input_, weight_, stride_, padding_, dilation_), 1, false, groups_ == 1 ? swn_block : 1,
                     copies(weight_.scalar_type())),
          bias(bias_), stride(stride_), padding(padding_), dilation(dilation_), output_padding(output_padding_),
          groups(groups_)
    {
    }

    // The sizes of the result.
    static at::DimVector sizes(const at::Tensor &input, const at::Tensor &weight, at::IntArrayRef stride,
                               at::IntArrayRef padding, at::IntArrayRef dilation)
    {
        at::DimVector found = {input.size(0), weight.size(0)};
        for (int64_t i = 2; i < weight.dim(); i++) {
            auto at = static_cast<size_t>(i - 2);
            int64_t reach = dilation[at] * (weight.size(i) - 1) + 1;
            found.push_back((input.size(i) + 2 * padding[at] - reach) / stride[at] + 1);
        }
        return found;
    }

    // Whether kernels copy the weight into an order of their own: oneDNN does, which has no convolution of doubles, and
    // NNPACK, which has only floats; both can be switched off. PyTorch's own kernels read the weight in place.
    static bool copies(at::ScalarType type)
    {
        bool nnpack = type == at::kFloat && swn_allows_nnpack(at::globalContext());
        return nnpack || (type != at::kDouble && at::globalContext().userEnabledMkldnn());
    }

    at::Tensor part_of(const at::Tensor &from, const void *rows_at, int64_t row, int64_t count) const override
    {
        at::DimVector shape(weight.sizes());
        shape[0] = count * width;
        at::Tensor slice = at::from_blob(const_cast<void *>(rows_at), shape, at::dtype(type));
        at::Tensor channels = groups == 1 ? from : from.narrow(1, row * shape[1], count * shape[1]);
        swn_optional<at::Tensor> add =
            bias && bias->defined() ? swn_optional<at::Tensor>(bias->narrow(0, row * width, shape[0])) : bias;
        swn_part_kernel kernel(*this);
        return at::native::convolution(channels, slice, add, stride, padding, dilation, false, output_padding,
                                       groups == 1 ? 1 : count);
    }

    void add_to(swn_key &key) const override
    {
        key.add({1, groups, bias && bias->defined()});
        for (at::IntArrayRef part : {stride, padding, dilation})
            key.add(part);
    }
};

bool positive(at::IntArrayRef numbers)
{
    for (int64_t number : numbers)
        if (number <= 0)
            return false;
    return true;
}

constexpr int64_t most_reach = 1 << 30; // so that sizes can be computed without an overflow check in each sum

bool wants_gradient(const at::Tensor &input, const at::Tensor &weight, const swn_optional<at::Tensor> &bias)
{
    return at::GradMode::is_enabled() &&
           (input.requires_grad() || weight.requires_grad() || (bias && bias->defined() && bias->requires_grad()));
}

// Whether both tensors lie in memory as the kernels read them, with equal numbers of dimensions, none of them empty.
bool tensors_fit(const at::Tensor &input, const at::Tensor &weight)
{
    auto type = weight.scalar_type();
    return swn_simple(weight, type) && swn_computed(type) && swn_plainly_laid_out(weight) && positive(weight.sizes()) &&
           swn_simple(input, type) && swn_plainly_laid_out(input) && input.dim() == weight.dim() &&
           positive(input.sizes());
}

bool channels_fit(const at::Tensor &input, const at::Tensor &weight, int64_t groups)
{
    return groups >= 1 && weight.size(0) % groups == 0 && input.size(1) == weight.size(1) * groups;
}

// Whether the weight, spread by the dilation, lies at least once within the padded input, in each dimension.
bool windows_fit(const at::Tensor &input, const at::Tensor &weight, at::IntArrayRef stride, at::IntArrayRef padding,
                 at::IntArrayRef dilation)
{
    auto dims = static_cast<size_t>(weight.dim() - 2);
    if (stride.size() != dims || padding.size() != dims || dilation.size() != dims || !positive(stride) ||
        !positive(dilation))
        return false;
    for (size_t i = 0; i < dims; i++) {
        auto at = static_cast<int64_t>(i) + 2;
        if (padding[i] < 0 || padding[i] > most_reach || dilation[i] > most_reach || weight.size(at) > most_reach ||
            input.size(at) > INT64_MAX / 2 || input.size(at) + 2 * padding[i] <= dilation[i] * (weight.size(at) - 1))
            return false;
    }
    return true;
}

bool bias_fits(const at::Tensor &weight, const swn_optional<at::Tensor> &bias)
{
    return !bias || !bias->defined() ||
           (swn_simple(*bias, weight.scalar_type()) && bias->dim() == 1 && bias->size(0) == weight.size(0));
}

// Whether PyTorch would take these tensors without adapting or refusing anything. With gradients PyTorch may use
// another kernel than the trial does.
bool convolution_fits(const at::Tensor &input, const at::Tensor &weight, const swn_optional<at::Tensor> &bias,
                      at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, int64_t groups)
{
    return !wants_gradient(input, weight, bias) && tensors_fit(input, weight) && channels_fit(input, weight, groups) &&
           windows_fit(input, weight, stride, padding, dilation) && bias_fits(weight, bias);
}

at::Tensor convolution_kernel(const at::Tensor &input, const at::Tensor &weight, const swn_optional<at::Tensor> &bias,
                              at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                              bool transposed, at::IntArrayRef output_padding, int64_t groups)
{
    auto whole = [&] {
        return at::native::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding,
                                       groups);
    };
    bool cuttable = !transposed && weight.dim() > 2 && weight.dim() < 6 && weight.has_storage() && input.has_storage();
    if (!cuttable || !swn_sliceable(weight) ||
        !convolution_fits(input, weight, bias, stride, padding, dilation, groups))
        return whole();
    at::Tensor out =
        swn_compute_in_slices(Convolution(input, weight, bias, stride, padding, dilation, output_padding, groups));
    return out.defined() ? out : whole();
}

} // namespace

void swn_convs_register(torch::Library &library)
{
    library.impl("convolution", convolution_kernel);
}
