#include "aten_stripes.h"

#include <ATen/Parallel.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution_native.h>

#include <algorithm>
#include <exception>

#include "aten_kernels.h"
#include "aten_stripe_work.h"
#include "aten_trial_memory.h"

namespace
{

const swn_host *host;

// Pixels that math libraries' kernels compute with at once, in three registers of 4 to 16 numbers: MKL's for doubles 12
// or 24, and where a stripe ended within such a block its last pixels had other bits.
constexpr int64_t pixel_block = 48;

// false: it does not fit the type. PyTorch refuses such sizes, when it comes to allocate them.
bool multiply(int64_t &by, at::IntArrayRef numbers)
{
    return std::none_of(numbers.begin(), numbers.end(),
                        [&](int64_t number) { return __builtin_mul_overflow(by, number, &by); });
}

// Which of PyTorch's kernels would compute it.
at::native::ConvBackend backend_of(const swn_convolution &what)
{
#if TORCH_VERSION_MAJOR < 2
    return at::native::select_conv_backend(what.input, what.weight, what.bias, what.stride, what.padding, what.dilation,
                                           false, what.output_padding, what.groups);
#else
    return at::native::select_conv_backend(what.input, what.weight, what.bias, c10::fromIntArrayRefSlow(what.stride),
                                           c10::fromIntArrayRefSlow(what.padding),
                                           c10::fromIntArrayRefSlow(what.dilation), false,
                                           c10::fromIntArrayRefSlow(what.output_padding), what.groups, c10::nullopt);
#endif
}

// What it takes at most, whichever kernel computes it. false: more than there are numbers for, or nothing to cut.
bool measure(swn_stripe_work &work, size_t &most)
{
    const swn_convolution &what = work.what;
    work.sizes = what.result_sizes();
    work.dim = 2;
    while (work.dim + 1 < work.sizes.size() && work.sizes[work.dim] == 1)
        work.dim++;
    int64_t item = static_cast<int64_t>(what.input.itemsize()), out = item, all = item;
    if (!multiply(out, work.sizes) || !multiply(all, what.input.sizes().slice(0, 2)) ||
        !multiply(all, what.weight.sizes().slice(2)) || !multiply(all, at::IntArrayRef(work.sizes).slice(2)) ||
        all > INT64_MAX / 8 || out > INT64_MAX / 8)
        return false;
    work.out_bytes = static_cast<size_t>(out);
    most = static_cast<size_t>(all + 2 * out) + what.input.nbytes();
    return static_cast<size_t>(all) >= swn_least_matrix;
}

// What it takes beside its result, as PyTorch's sources have it. false: nothing that stripes would make smaller.
bool look_at(swn_stripe_work &work)
{
    const swn_convolution &what = work.what;
    bool together = true, all_groups = false;
    switch (backend_of(what)) {
    case at::native::ConvBackend::Slow2d:
        break;
    case at::native::ConvBackend::Slow3d:
        all_groups = true;
        break;
    case at::native::ConvBackend::SlowDilated2d:
    case at::native::ConvBackend::SlowDilated3d:
        together = false; // one matrix, for one sample after the other
        break;
    default:
        return false; // oneDNN's and others have no such matrix
    }
    work.channels = all_groups ? what.input.size(1) : what.weight.size(1);
    int64_t samples = what.input.size(0), row_pixels = 1,
            row_bytes = work.channels * static_cast<int64_t>(what.input.itemsize());
    multiply(row_bytes, what.weight.sizes().slice(2));
    for (size_t i = 2; i < work.sizes.size(); i++)
        row_pixels *= i == work.dim ? 1 : work.sizes[i];
    work.matrix = {
        samples, work.sizes[work.dim], row_bytes * row_pixels, row_pixels, pixel_block, at::get_num_threads(), together,
    };
    work.matrix_bytes = static_cast<size_t>((together ? samples : 1) * work.matrix.row_bytes * work.matrix.rows);
    bool parts = what.groups > 1 && !all_groups; // of the input and of the result, which are put together
    work.beside = parts ? work.out_bytes + what.input.nbytes() / static_cast<size_t>(what.groups) : 0;
    return work.matrix_bytes >= swn_least_matrix;
}

// Undefined: it is to be computed whole.
at::Tensor striped(const swn_convolution &what)
{
    swn_stripe_work work(what);
    size_t most = 0;
    if (swn_folding::active() || !swn_kernels::parts_are_pytorchs() || !measure(work, most) ||
        host->stripes_room(most) != UINT64_MAX || !look_at(work))
        return {};
    uint64_t cost = host->stripes_room(work.whole_bytes());
    return cost == UINT64_MAX ? swn_stripes_compute(work, cost) : at::Tensor();
}

} // namespace

size_t swn_stripe_work::bytes_of(const swn_stripe_cut &cut) const
{
    int64_t at_once = matrix.together ? cut.samples : 1, rows = cut.samples * cut.rows;
    double share = static_cast<double>(rows) / static_cast<double>(matrix.samples * matrix.rows);
    return static_cast<size_t>(at_once * cut.rows * matrix.row_bytes) + out_bytes +
           static_cast<size_t>(share * static_cast<double>(what.input.nbytes() + out_bytes + beside));
}

at::Tensor swn_stripe_work::part_of(const swn_stripe_cut &cut, const at::Tensor &input, const at::Tensor &weight,
                                    int64_t sample, int64_t samples, int64_t from, int64_t count) const
{
    auto along = static_cast<int64_t>(dim);
    swn_stripe_rows rows = {input.size(along),
                            sizes[dim],
                            weight.size(along),
                            what.stride[dim - 2],
                            what.padding[dim - 2],
                            what.dilation[dim - 2],
                            swn_stripe_align(cut.rows, matrix.row_pixels, matrix.block)};
    swn_stripe stripe = swn_stripe_at(&rows, from, count);
    at::DimVector padding(what.padding);
    padding[dim - 2] = stripe.padding;
    at::Tensor in = input.narrow(0, sample, samples).narrow(along, stripe.first, stripe.rows).contiguous();
    at::Tensor made =
        swn_convolution{in, weight, what.bias, what.stride, padding, what.dilation, what.output_padding, what.groups}
            .whole();
    return made.narrow(along, stripe.skip, count);
}

at::DimVector swn_convolution::result_sizes() const
{
    at::DimVector found = {input.size(0), weight.size(0)};
    for (int64_t i = 2; i < weight.dim(); i++) {
        auto at = static_cast<size_t>(i - 2);
        int64_t reach = dilation[at] * (weight.size(i) - 1) + 1;
        found.push_back((input.size(i) + 2 * padding[at] - reach) / stride[at] + 1);
    }
    return found;
}

at::Tensor swn_convolution::whole() const
{
    return at::native::convolution(input, weight, bias, stride, padding, dilation, false, output_padding, groups);
}

at::Tensor swn_convolve(const swn_convolution &what)
{
    at::Tensor out;
    try {
        out = striped(what);
    } catch (const std::exception &) { // no memory within a strict budget: whole it may fit, or fails as it should
    }
    return out.defined() ? out : what.whole();
}

void swn_stripes_begin(const swn_host *h)
{
    host = h;
    swn_stripe_choice_begin(h);
}

void swn_stripes_before_fork()
{
    swn_stripe_choice_before_fork();
}

void swn_stripes_after_fork()
{
    swn_stripe_choice_after_fork();
}
