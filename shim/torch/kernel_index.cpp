// shim/torch/kernel_index.cpp - see kernel_index.h.
#include "shim/torch/kernel_index.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/gather_cpu_dispatch.h>
#include <ATen/ops/index_cpu_dispatch.h>
#include <ATen/ops/index_select_cpu_dispatch.h>

#include "shim/torch/tensor_checks.h"
#include "shim/torch/slices.h"
#include "shim/torch/services.h"

namespace
{

constexpr uintptr_t page = 4096;
constexpr size_t most_rows = 1u << 16; // rows that the engine looks up at once
constexpr int64_t most_numbers = 1 << 20;

// The argument of the running operator that has these rows; -1: none, or all of it is in memory. Of a tensor in a
// mapped file the engine knows the whole pages.
int rows_of(const swn_op *op, const at::Tensor &weight)
{
    if (!op || weight.dim() < 2 || !weight.has_storage() || !weight.is_contiguous() || !weight.nbytes() ||
        !swn_simple(weight, weight.scalar_type()))
        return -1;
    auto storage = reinterpret_cast<uintptr_t>(weight.storage().data_ptr().get());
    auto data = reinterpret_cast<uintptr_t>(weight.data_ptr());
    for (unsigned i = 0; i < op->n; i++) {
        const swn_arg &arg = op->args[i];
        if (arg.use == SWN_USE_ROWS && arg.rows && arg.data == (arg.mapped ? (data + page - 1) / page * page : storage))
            return static_cast<int>(i);
    }
    return -1;
}

at::DimVector sizes_of(at::IntArrayRef index, const at::Tensor &weight)
{
    at::DimVector sizes(index.begin(), index.end());
    sizes.append(weight.sizes().begin() + 1, weight.sizes().end());
    return sizes;
}

// Embeddings call this, too.
at::Tensor index_select_kernel(const at::Tensor &self, int64_t dim, const at::Tensor &index)
{
    at::Tensor out;
    if (dim == 0 && index.dim() == 1 && swn_rows_away(self))
        out = swn_look_up(self, swn_numbers(index), sizes_of(index.sizes(), self));
    return out.defined() ? out : at::cpu::index_select(self, dim, index);
}

// weight[numbers]: negative numbers count from the end.
at::Tensor index_kernel(const at::Tensor &self, const c10::List<swn_optional<at::Tensor>> &indices)
{
    at::Tensor out;
    swn_optional<at::Tensor> first = indices.size() == 1 ? indices.get(0) : swn_optional<at::Tensor>();
    if (first && first->defined() && first->dim() && swn_rows_away(self) && first->scalar_type() == at::kLong &&
        swn_plainly_laid_out(*first)) {
        swn_numbers numbers(*first);
        c10::SmallVector<int64_t, 64> rows(numbers.begin(), numbers.end());
        for (int64_t &row : rows)
            row += row < 0 ? self.size(0) : 0;
        out = swn_look_up(self, rows, sizes_of(first->sizes(), self));
    }
    return out.defined() ? out : at::cpu::index(self, indices);
}

// One row number per row of the result, expanded to all columns.
at::Tensor gather_kernel(const at::Tensor &self, int64_t dim, const at::Tensor &index, bool sparse_grad)
{
    at::Tensor out;
    if (dim == 0 && swn_rows_away(self) && index.scalar_type() == at::kLong && self.dim() == 2 && index.dim() == 2 &&
        index.size(1) == self.size(1) && index.stride(1) == 0)
        out = swn_look_up(self, swn_numbers(index.select(1, 0)), index.sizes());
    return out.defined() ? out : at::cpu::gather(self, dim, index, sparse_grad);
}

} // namespace

bool swn_rows_away(const at::Tensor &weight)
{
    return rows_of(swn_current_op(), weight) >= 0;
}

swn_numbers::swn_numbers(const at::Tensor &index)
{
    if (!swn_simple(index, index.scalar_type()) ||
        (index.scalar_type() != at::kLong && index.scalar_type() != at::kInt) || index.numel() > most_numbers)
        return;
    held_ = index.to(at::kLong).contiguous();
    numbers_ = {held_.data_ptr<int64_t>(), static_cast<size_t>(held_.numel())};
}

at::Tensor swn_look_up(const at::Tensor &weight, at::IntArrayRef rows, at::IntArrayRef sizes)
{
    swn_op *op = swn_current_op();
    int arg = rows_of(op, weight);
    if (arg < 0 || rows.empty() || rows.size() > most_rows)
        return {};
    at::Tensor out = at::empty(sizes, weight.options());
    auto count = static_cast<size_t>(weight.size(0));
    // PyTorch also handles row numbers out of range: the numbers may be the program's own tensor, which may change, so
    // a check here would prove nothing.
    if (!swn_services->tiling.rows_copy(op, static_cast<unsigned>(arg), reinterpret_cast<uintptr_t>(weight.data_ptr()),
                                        weight.nbytes() / count, count, rows.data(), rows.size(), out.data_ptr()))
        return {};
    return out;
}

void swn_rows_register(torch::Library &library)
{
    library.impl("index_select", index_select_kernel);
    library.impl("index.Tensor", index_kernel);
    library.impl("gather", gather_kernel);
}
