#include "aten_rows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select_cpu_dispatch.h>

#include "aten_simple.h"
#include "aten_slices.h"

namespace
{

const swn_host *host;

constexpr uintptr_t page = 4096;

// The argument of the running operator that these rows are of; -1: none, or all of it is in memory. Of a tensor in a
// mapped file the engine knows the whole pages.
int rows_of(const swn_op *op, const at::Tensor &weight)
{
    auto word = weight.storage().data_ptr().get();
    auto data = reinterpret_cast<uintptr_t>(weight.data_ptr());
    for (unsigned i = 0; i < op->n; i++) {
        const swn_arg &arg = op->args[i];
        if (arg.use == SWN_USE_ROWS && arg.rows &&
            (arg.word ? *arg.word == word : arg.data == (data + page - 1) / page * page))
            return static_cast<int>(i);
    }
    return -1;
}

// An undefined tensor where PyTorch has to do it, or to say what is wrong.
at::Tensor look_up(const at::Tensor &weight, int64_t dim, const at::Tensor &index)
{
    swn_op *op = swn_current_op();
    if (!op || dim != 0 || weight.dim() < 2 || !weight.has_storage() || !weight.is_contiguous() || !weight.nbytes() ||
        !swn_simple(weight, weight.scalar_type()) || !swn_simple(index, index.scalar_type()) || index.dim() != 1 ||
        !index.numel() || (index.scalar_type() != at::kLong && index.scalar_type() != at::kInt))
        return {};
    int arg = rows_of(op, weight);
    if (arg < 0)
        return {};
    at::Tensor numbers = index.to(at::kLong).contiguous();
    const int64_t *at = numbers.data_ptr<int64_t>();
    int64_t n = numbers.numel(), rows = weight.size(0);
    for (int64_t i = 0; i < n; i++)
        if (at[i] < 0 || at[i] >= rows)
            return {};
    std::vector<int64_t> sizes = weight.sizes().vec();
    sizes[0] = n;
    at::Tensor out = at::empty(sizes, weight.options());
    if (!host->rows_copy(op, static_cast<unsigned>(arg), reinterpret_cast<uintptr_t>(weight.data_ptr()),
                         weight.nbytes() / static_cast<size_t>(rows), at, static_cast<size_t>(n), out.data_ptr()))
        return {};
    return out;
}

// Embeddings come to this, too.
at::Tensor index_select_kernel(const at::Tensor &self, int64_t dim, const at::Tensor &index)
{
    at::Tensor out = look_up(self, dim, index);
    return out.defined() ? out : at::cpu::index_select(self, dim, index);
}

} // namespace

void swn_rows_register(torch::Library &library, const swn_host *h)
{
    host = h;
    library.impl("index_select", index_select_kernel);
}
