// Bags of rows: PyTorch's kernel gets a small weight that has only the looked-up rows, each once.
#include <ATen/ops/_embedding_bag_forward_only_native.h>
#include <ATen/ops/_embedding_bag_native.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "shim/torch/kernel_index.h"
#include "shim/torch/tensor_checks.h"
#include "shim/torch/slices.h"

namespace
{

constexpr size_t most_bytes = 8u << 20; // for more rows PyTorch itself needs much memory for the bags
constexpr int64_t mode_max = 2;         // its result has the numbers of the largest rows

struct Small {
    at::Tensor weight, indices; // weight undefined: the operator has to be done whole
    int64_t padding;
};

Small small_weight(const at::Tensor &weight, const at::Tensor &indices, int64_t mode, int64_t padding)
{
    Small small;
    if (mode == mode_max || !swn_rows_away(weight) || !swn_plainly_laid_out(weight) || weight.dim() != 2 ||
        indices.dim() != 1)
        return small;
    swn_numbers wanted(indices);
    std::vector<int64_t> rows(wanted.begin(), wanted.end());
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    auto count = static_cast<int64_t>(rows.size());
    if (!count || rows.size() * static_cast<size_t>(weight.size(1)) * weight.itemsize() > most_bytes)
        return small;
    small.weight = swn_look_up(weight, rows, {count, weight.size(1)});
    if (!small.weight.defined())
        return small;
    auto place = [&rows](int64_t row) { return std::lower_bound(rows.begin(), rows.end(), row) - rows.begin(); };
    at::Tensor places = at::empty(indices.sizes(), indices.options().dtype(at::kLong));
    std::transform(wanted.begin(), wanted.end(), places.data_ptr<int64_t>(), place);
    small.indices = places.to(indices.scalar_type());
    // Without a padding index the kernel takes another path, so an index that does not occur becomes a number that does
    // not occur.
    bool occurs = padding >= 0 && std::binary_search(rows.begin(), rows.end(), padding);
    small.padding = padding < 0 ? padding : occurs ? place(padding) : count;
    return small;
}

using Bags = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

template <typename Native>
Bags bags(Native native, const at::Tensor &weight, const at::Tensor &indices, const at::Tensor &offsets, bool scale,
          int64_t mode, bool sparse, const swn_optional<at::Tensor> &per_sample, bool last_offset, int64_t padding)
{
    Small small = small_weight(weight, indices, mode, padding);
    if (!small.weight.defined())
        return native(weight, indices, offsets, scale, mode, sparse, per_sample, last_offset, padding);
    return native(small.weight, small.indices, offsets, scale, mode, sparse, per_sample, last_offset, small.padding);
}

Bags forward_only_kernel(const at::Tensor &weight, const at::Tensor &indices, const at::Tensor &offsets, bool scale,
                         int64_t mode, bool sparse, const swn_optional<at::Tensor> &per_sample, bool last_offset,
                         int64_t padding)
{
    return bags(at::native::_embedding_bag_forward_only_cpu, weight, indices, offsets, scale, mode, sparse, per_sample,
                last_offset, padding);
}

Bags forward_kernel(const at::Tensor &weight, const at::Tensor &indices, const at::Tensor &offsets, bool scale,
                    int64_t mode, bool sparse, const swn_optional<at::Tensor> &per_sample, bool last_offset,
                    int64_t padding)
{
    return bags(at::native::_embedding_bag_cpu, weight, indices, offsets, scale, mode, sparse, per_sample, last_offset,
                padding);
}

} // namespace

void swn_bags_register(torch::Library &library)
{
    library.impl("_embedding_bag_forward_only", forward_only_kernel);
    library.impl("_embedding_bag", forward_kernel);
}
