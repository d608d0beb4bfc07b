#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include "aten_simple.h"
#include "aten_slices.h"

namespace
{

// mat1 times the transpose of a contiguous [n, k] weight, which is what `linear` comes to: a slice of rows of the
// weight gives a slice of columns of the result.
struct Product : swn_sliced {
    const at::Tensor *bias; // nullptr: none
    const at::Tensor &mat1;
    const at::Scalar beta, alpha;
    int64_t m, k, n;
    at::ScalarType type;
    size_t row_bytes;

    Product(const at::Tensor *bias_, const at::Tensor &mat1_, const at::Tensor &mat2, const at::Scalar &beta_,
            const at::Scalar &alpha_)
        : bias(bias_), mat1(mat1_), beta(beta_), alpha(alpha_), m(mat1_.size(0)), k(mat1_.size(1)), n(mat2.size(1)),
          type(mat2.scalar_type()), row_bytes(static_cast<size_t>(mat2.size(0)) * mat2.itemsize())
    {
    }

    at::Tensor times(const at::Tensor &left, const at::Tensor &weight, const at::Tensor *add) const
    {
        return add ? at::cpu::addmm(*add, left, weight.t(), beta, alpha) : at::cpu::mm(left, weight.t());
    }

    at::Tensor part_of(const at::Tensor &left, const void *from, int64_t row, int64_t rows) const
    {
        at::Tensor weight = at::from_blob(const_cast<void *>(from), {rows, k}, at::dtype(type));
        if (!bias)
            return times(left, weight, nullptr);
        int64_t last = bias->dim() - 1;
        at::Tensor add = last >= 0 && bias->size(last) == n ? bias->narrow(last, row, rows) : *bias;
        return times(left, weight, &add);
    }

    std::vector<int64_t> key() const override
    {
        std::vector<int64_t> found = {0,
                                      m,
                                      k,
                                      n,
                                      static_cast<int64_t>(type),
                                      bias ? bias->dim() : -1,
                                      at::globalContext().userEnabledMkldnn(),
                                      at::globalContext().deterministicAlgorithms()};
        if (bias) {
            found.push_back(bias->dim() && bias->size(-1) == n);
            found.push_back(beta.toDouble() == 1 && alpha.toDouble() == 1);
        }
        return found;
    }

    bool same_in_slices(const std::vector<size_t> &slices) const override
    {
        swn_random weights(static_cast<size_t>(n) * row_bytes, type), inputs(static_cast<size_t>(m) * row_bytes, type);
        if (!weights.base() || !inputs.base())
            return false;
        at::Tensor left = at::from_blob(inputs.base(), {m, k}, at::dtype(type));
        at::Tensor expect = times(left, at::from_blob(weights.base(), {n, k}, at::dtype(type)), bias);
        int64_t row = 0;
        for (size_t bytes : slices) {
            auto rows = static_cast<int64_t>(bytes / row_bytes);
            at::Tensor got = part_of(left, weights.base() + static_cast<size_t>(row) * row_bytes, row, rows);
            if (!swn_same_bits(got, expect.narrow(1, row, rows)))
                return false;
            row += rows;
        }
        return true;
    }

    at::Tensor result() const override
    {
        return at::empty({m, n}, mat1.options());
    }

    at::Tensor part(const void *from, int64_t row, int64_t rows) const override
    {
        return part_of(mat1, from, row, rows);
    }
};

bool fits(const at::Tensor *bias, const at::Tensor &mat1, const at::Tensor &mat2)
{
    auto type = mat2.scalar_type();
    if (!swn_simple(mat1, type) || mat1.dim() != 2 || mat1.size(1) != mat2.size(0) || mat1.size(0) == 0)
        return false;
    if (!bias)
        return true;
    if (!swn_simple(*bias, type) || bias->dim() > 2)
        return false;
    int64_t m = mat1.size(0), n = mat2.size(1), d = bias->dim();
    return (d < 1 || bias->size(d - 1) == n || bias->size(d - 1) == 1) &&
           (d < 2 || bias->size(0) == m || bias->size(0) == 1);
}

// An undefined tensor where it has to be computed whole.
at::Tensor in_slices(const at::Tensor *bias, const at::Tensor &mat1, const at::Tensor &mat2, const at::Scalar &beta,
                     const at::Scalar &alpha)
{
    if (mat2.dim() != 2 || !swn_sliceable(mat2) || mat2.stride(0) != 1 || mat2.stride(1) != mat2.size(0) ||
        !fits(bias, mat1, mat2))
        return {};
    Product product(bias, mat1, mat2, beta, alpha);
    return swn_compute_in_slices(mat2, product.row_bytes, product);
}

at::Tensor addmm_kernel(const at::Tensor &self, const at::Tensor &mat1, const at::Tensor &mat2, const at::Scalar &beta,
                        const at::Scalar &alpha)
{
    at::Tensor out = in_slices(&self, mat1, mat2, beta, alpha);
    return out.defined() ? out : at::cpu::addmm(self, mat1, mat2, beta, alpha);
}

at::Tensor mm_kernel(const at::Tensor &self, const at::Tensor &mat2)
{
    at::Tensor out = in_slices(nullptr, self, mat2, 1, 1);
    return out.defined() ? out : at::cpu::mm(self, mat2);
}

} // namespace

void swn_products_register(torch::Library &library)
{
    library.impl("addmm", addmm_kernel);
    library.impl("mm", mm_kernel);
}
