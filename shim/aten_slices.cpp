#include "aten_slices.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "aten_simple.h"

namespace
{

const swn_host *host;

constexpr size_t least_bytes = 16u << 20; // smaller weights come whole
constexpr size_t random_bytes = 4u << 20; // mapped over and over
constexpr size_t most_slices = 4096;
constexpr size_t most_trials = 512; // shapes that are remembered

struct Product {
    const at::Tensor *bias; // nullptr: none
    const at::Tensor &mat1;
    const at::Scalar beta, alpha;
    int64_t m, k, n;
    at::ScalarType type;
    size_t row_bytes;
};

// Memory that reads as random numbers of one type, as much as is asked for, out of a few MiB.
class Random
{
  public:
    Random(size_t bytes, at::ScalarType type) : size_((bytes + random_bytes - 1) / random_bytes * random_bytes)
    {
        int fd = memfd_create("swapnet-trial", MFD_CLOEXEC);
        if (fd < 0)
            return;
        void *all = MAP_FAILED;
        if (ftruncate(fd, random_bytes) == 0)
            all = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all != MAP_FAILED)
            base_ = static_cast<char *>(all);
        for (size_t at = 0; base_ && at < size_; at += random_bytes)
            if (mmap(base_ + at, random_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
                munmap(base_, size_);
                base_ = nullptr;
            }
        close(fd);
        if (base_)
            fill(type);
    }
    Random(const Random &) = delete;
    ~Random()
    {
        if (base_)
            munmap(base_, size_);
    }
    char *base() const
    {
        return base_;
    }

  private:
    template <typename T> void numbers()
    {
        T *to = reinterpret_cast<T *>(base_);
        uint64_t state = 0x9e3779b97f4a7c15u;
        for (size_t i = 0; i < random_bytes / sizeof(T); i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            to[i] = static_cast<T>(static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f);
        }
    }
    void fill(at::ScalarType type)
    {
        if (type == at::kFloat)
            numbers<float>();
        else if (type == at::kDouble)
            numbers<double>();
        else if (type == at::kHalf)
            numbers<at::Half>();
        else
            numbers<at::BFloat16>();
    }

    size_t size_;
    char *base_ = nullptr;
};

at::Tensor whole(const Product &p, const at::Tensor &mat1, const at::Tensor &weight)
{
    return p.bias ? at::cpu::addmm(*p.bias, mat1, weight.t(), p.beta, p.alpha) : at::cpu::mm(mat1, weight.t());
}

// The columns of the result that rows [row, row + rows) of the weight give; `from` is where these lie.
at::Tensor part(const Product &p, const at::Tensor &mat1, const void *from, int64_t row, int64_t rows)
{
    at::Tensor weight = at::from_blob(const_cast<void *>(from), {rows, p.k}, at::dtype(p.type));
    if (!p.bias)
        return at::cpu::mm(mat1, weight.t());
    int64_t last = p.bias->dim() - 1;
    at::Tensor bias = last >= 0 && p.bias->size(last) == p.n ? p.bias->narrow(last, row, rows) : *p.bias;
    return at::cpu::addmm(bias, mat1, weight.t(), p.beta, p.alpha);
}

using Trial = std::vector<int64_t>;
std::mutex trials_lock;
std::map<Trial, bool> trials;

Trial key_of(const Product &p, const std::vector<size_t> &slices)
{
    Trial key = {p.m, p.k, p.n, static_cast<int64_t>(p.type), at::get_num_threads(), p.bias ? p.bias->dim() : -1};
    if (p.bias) {
        key.push_back(p.bias->dim() && p.bias->size(-1) == p.n);
        key.push_back(p.beta.toDouble() == 1 && p.alpha.toDouble() == 1);
    }
    for (size_t i = 0; i < slices.size(); i++)
        if (!i || slices[i] != slices[i - 1]) { // where the cuts are is all that counts
            key.push_back(static_cast<int64_t>(i));
            key.push_back(static_cast<int64_t>(slices[i]));
        }
    return key;
}

bool same_in_slices(const Product &p, const std::vector<size_t> &slices)
{
    Random weights(static_cast<size_t>(p.n) * p.row_bytes, p.type);
    Random inputs(static_cast<size_t>(p.m) * p.row_bytes, p.type);
    if (!weights.base() || !inputs.base())
        return false;
    at::Tensor mat1 = at::from_blob(inputs.base(), {p.m, p.k}, at::dtype(p.type));
    at::Tensor expect = whole(p, mat1, at::from_blob(weights.base(), {p.n, p.k}, at::dtype(p.type)));
    int64_t row = 0;
    for (size_t bytes : slices) {
        auto rows = static_cast<int64_t>(bytes / p.row_bytes);
        at::Tensor got = part(p, mat1, weights.base() + static_cast<size_t>(row) * p.row_bytes, row, rows);
        at::Tensor want = expect.narrow(1, row, rows).contiguous();
        got = got.contiguous();
        if (got.nbytes() != want.nbytes() || std::memcmp(got.data_ptr(), want.data_ptr(), want.nbytes()) != 0)
            return false;
        row += rows;
    }
    return true;
}

bool proven(const Product &p, const std::vector<size_t> &slices)
{
    Trial key = key_of(p, slices);
    {
        std::lock_guard<std::mutex> guard(trials_lock);
        auto found = trials.find(key);
        if (found != trials.end())
            return found->second;
        if (trials.size() >= most_trials)
            trials.clear();
    }
    bool same = same_in_slices(p, slices);
    std::lock_guard<std::mutex> guard(trials_lock);
    trials[key] = same;
    return same;
}

// The argument of the running operator whose whole storage is mat2, transposed; -1: none, or nothing to slice.
int weight_of(const swn_op *op, const at::Tensor &mat2)
{
    if (mat2.dim() != 2 || !mat2.has_storage() || mat2.nbytes() < least_bytes || mat2.stride(0) != 1 ||
        mat2.stride(1) != mat2.size(0) || mat2.storage_offset() != 0 || mat2.nbytes() != mat2.storage().nbytes())
        return -1;
    auto type = mat2.scalar_type();
    if (!swn_simple(mat2, type) ||
        (type != at::kFloat && type != at::kDouble && type != at::kHalf && type != at::kBFloat16))
        return -1;
    auto word = mat2.storage().data_ptr().get();
    for (unsigned i = 0; i < op->n; i++) {
        const swn_arg &arg = op->args[i];
        if (arg.use == SWN_USE_WEIGHT && arg.word && *arg.word == word && arg.bytes == mat2.nbytes())
            return static_cast<int>(i);
    }
    return -1;
}

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
    swn_op *op = swn_current_op();
    int index = op ? weight_of(op, mat2) : -1;
    if (index < 0 || !fits(bias, mat1, mat2))
        return {};
    auto arg = static_cast<unsigned>(index);
    Product p = {bias,
                 mat1,
                 beta,
                 alpha,
                 mat1.size(0),
                 mat1.size(1),
                 mat2.size(1),
                 mat2.scalar_type(),
                 static_cast<size_t>(mat2.size(0)) * mat2.itemsize()};
    if (!op->args[arg].sliced)
        host->slices_offer(op, arg, p.row_bytes);
    if (!op->args[arg].sliced)
        return {};
    std::vector<size_t> slices(most_slices);
    slices.resize(host->slices_list(op, arg, slices.data(), slices.size()));
    size_t sum = 0;
    bool whole_rows = !slices.empty();
    for (size_t bytes : slices) {
        whole_rows = whole_rows && bytes && bytes % p.row_bytes == 0;
        sum += bytes;
    }
    if (!whole_rows || sum != mat2.nbytes())
        return {};
    if (slices.size() > 1 && !proven(p, slices)) {
        host->slices_offer(op, arg, 0);
        return {};
    }
    at::Tensor out = at::empty({p.m, p.n}, mat1.options());
    size_t at = 0;
    for (size_t bytes : slices) {
        const void *from = host->slice_lend(op, arg, at, bytes);
        if (!from)
            return {}; // cut differently meanwhile
        auto row = static_cast<int64_t>(at / p.row_bytes), rows = static_cast<int64_t>(bytes / p.row_bytes);
        out.narrow(1, row, rows).copy_(part(p, mat1, from, row, rows));
        at += bytes;
    }
    host->slice_lend(op, arg, at, 0);
    return out;
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

void swn_slices_register(torch::Library &library, const swn_host *h)
{
    host = h;
    library.impl("addmm", addmm_kernel);
    library.impl("mm", mm_kernel);
}
