#include "aten_slices.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "aten_simple.h"

namespace
{

const swn_host *host;

constexpr size_t least_bytes = 4u << 20;  // smaller weights come whole
constexpr size_t least_part = 256u << 10; // of what an operator uses: less is read by its own address
constexpr size_t random_bytes = 4u << 20; // mapped over and over
constexpr size_t most_slices = 4096;
constexpr size_t most_trials = 512; // shapes that are remembered

std::mutex trials_lock; // a fork waits for it
std::map<std::vector<int64_t>, bool> trials;

// With all the bits that the type has: products of fewer are exact, and say nothing of how they are rounded.
template <typename T> T rounded(double number)
{
    return static_cast<T>(static_cast<float>(number));
}

template <> double rounded<double>(double number)
{
    return number;
}

template <typename T> void numbers(char *at)
{
    T *to = reinterpret_cast<T *>(at);
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < random_bytes / sizeof(T); i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        to[i] = rounded<T>(static_cast<double>(static_cast<int64_t>(state)) * 0x1p-63);
    }
}

void fill(char *at, at::ScalarType type)
{
    if (type == at::kFloat)
        numbers<float>(at);
    else if (type == at::kDouble)
        numbers<double>(at);
    else if (type == at::kHalf)
        numbers<at::Half>(at);
    else
        numbers<at::BFloat16>(at);
}

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
            fill(base_, type);
    }
    Random(const Random &) = delete;
    ~Random()
    {
        if (base_)
            munmap(base_, size_);
    }
    // nullptr: there is no memory.
    char *base() const
    {
        return base_;
    }

  private:
    size_t size_;
    char *base_ = nullptr;
};

bool same_bits(const at::Tensor &a, const at::Tensor &b)
{
    at::Tensor x = a.contiguous(), y = b.contiguous();
    return x.nbytes() == y.nbytes() && std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

// So many rows from `row` on lie in the slice of `bytes` at `off` of the weight's storage, from its byte `skip` on.
struct Part {
    size_t off, bytes, skip;
    int64_t row, count;
};

// What there is of the weight in each slice of its storage; nothing: they cut through rows.
std::vector<Part> parts_of(const swn_sliced &what, const std::vector<size_t> &slices)
{
    std::vector<Part> parts;
    size_t begin = static_cast<size_t>(what.weight.storage_offset()) * what.weight.itemsize();
    size_t end = begin + what.weight.nbytes(), at = 0;
    for (size_t bytes : slices) {
        size_t lo = std::max(at, begin), hi = std::min(at + bytes, end);
        if (lo < hi) {
            if ((lo - begin) % what.row_bytes || (hi - begin) % what.row_bytes)
                return {};
            parts.push_back({at, bytes, lo - at, static_cast<int64_t>((lo - begin) / what.row_bytes),
                             static_cast<int64_t>((hi - lo) / what.row_bytes)});
        }
        at += bytes;
    }
    if (at != what.weight.storage().nbytes())
        return {};
    return parts;
}

// Where in a page, or in a line of the cache, such numbers begin.
constexpr size_t page = 4096, line = 64;

size_t weight_in_page(const swn_sliced &what)
{
    return static_cast<size_t>(what.weight.storage_offset()) * what.weight.itemsize() % page;
}

size_t input_in_line(const swn_sliced &what)
{
    return reinterpret_cast<uintptr_t>(what.input.data_ptr()) % line;
}

size_t extent(const at::Tensor &tensor)
{
    int64_t last = 0;
    for (int64_t i = 0; i < tensor.dim(); i++)
        last += (tensor.size(i) - 1) * tensor.stride(i);
    return static_cast<size_t>(last + 1) * tensor.itemsize();
}

// The trial.
bool same_in_parts(const swn_sliced &what, const std::vector<Part> &parts)
{
    size_t off = weight_in_page(what), to = input_in_line(what);
    Random weights(off + what.weight.nbytes(), what.type), inputs(to + extent(what.input), what.type);
    if (!weights.base() || !inputs.base())
        return false;
    const char *first = weights.base() + off;
    at::Tensor from = at::from_blob(inputs.base() + to, what.input.sizes(), what.input.strides(), at::dtype(what.type));
    at::Tensor expect = what.part_of(from, first, 0, what.rows);
    if (!expect.sizes().equals(what.sizes) || !expect.is_contiguous())
        return false;
    for (const Part &part : parts) {
        at::Tensor got =
            what.part_of(from, first + static_cast<size_t>(part.row) * what.row_bytes, part.row, part.count);
        if (!same_bits(got, expect.narrow(what.dim, part.row * what.width, part.count * what.width)))
            return false;
    }
    return true;
}

void add_all(std::vector<int64_t> &key, at::IntArrayRef numbers)
{
    key.insert(key.end(), numbers.begin(), numbers.end());
    key.push_back(-1);
}

// How many threads the math libraries say that they use. Not all of them go by PyTorch's number, and a program can tell
// them another one.
void add_library_threads(std::vector<int64_t> &key)
{
    using count_fn = int (*)();
    static const std::vector<count_fn> counts = [] {
        std::vector<count_fn> found;
        for (const char *name :
             {"openblas_get_num_threads", "mkl_get_max_threads", "MKL_Get_Max_Threads", "bli_thread_get_num_threads"})
            if (void *function = dlsym(RTLD_DEFAULT, name))
                found.push_back(reinterpret_cast<count_fn>(function));
        return found;
    }();
    for (count_fn count : counts)
        key.push_back(count());
}

// What the user told PyTorch and its libraries about how to compute.
void add_settings(std::vector<int64_t> &key)
{
    const at::Context &context = at::globalContext();
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 10)
    for (at::Float32Op op : {at::Float32Op::MATMUL, at::Float32Op::CONV})
        key.push_back(static_cast<int64_t>(context.float32Precision(at::Float32Backend::MKLDNN, op)));
#else
    key.push_back(static_cast<int64_t>(context.float32MatmulPrecision()));
#endif
    key.push_back(context.userEnabledMkldnn());
    key.push_back(context.deterministicAlgorithms());
#if TORCH_VERSION_MAJOR >= 2
    key.push_back(context.userEnabledNNPACK());
#endif
    key.push_back(at::get_num_threads());
    add_library_threads(key);
}

bool proven(const swn_sliced &what, const std::vector<Part> &parts)
{
    std::vector<int64_t> key = what.key();
    add_settings(key);
    for (at::IntArrayRef numbers : {what.input.sizes(), what.input.strides(), what.weight.sizes()})
        add_all(key, numbers);
    add_all(key, {static_cast<int64_t>(what.type), static_cast<int64_t>(weight_in_page(what)),
                  static_cast<int64_t>(input_in_line(what))});
    for (size_t i = 0; i < parts.size(); i++)
        if (!i || parts[i].count != parts[i - 1].count) { // where the cuts are is all that counts
            key.push_back(static_cast<int64_t>(i));
            key.push_back(parts[i].count);
        }
    {
        std::lock_guard<std::mutex> guard(trials_lock);
        auto found = trials.find(key);
        if (found != trials.end())
            return found->second;
        if (trials.size() >= most_trials)
            trials.clear();
    }
    bool same = same_in_parts(what, parts);
    std::lock_guard<std::mutex> guard(trials_lock);
    trials[key] = same;
    return same;
}

// The argument of the running operator that has the weight's storage; -1: none.
int argument_of(const swn_op *op, const at::Tensor &weight)
{
    auto word = weight.storage().data_ptr().get();
    for (unsigned i = 0; i < op->n; i++) {
        const swn_arg &arg = op->args[i];
        if (arg.use == SWN_USE_WEIGHT && arg.word && *arg.word == word && arg.bytes == weight.storage().nbytes())
            return static_cast<int>(i);
    }
    return -1;
}

} // namespace

bool swn_sliceable(const at::Tensor &weight)
{
    auto type = weight.scalar_type();
    return weight.has_storage() && weight.storage().nbytes() >= least_bytes && weight.nbytes() >= least_part &&
           swn_simple(weight, type) &&
           (type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16);
}

bool swn_plainly_laid_out(const at::Tensor &tensor)
{
    int64_t stride = 1;
    for (int64_t i = tensor.dim(); i-- > 0; stride *= tensor.size(i))
        if (tensor.stride(i) != stride)
            return false;
    return true;
}

void swn_add_bias(std::vector<int64_t> &key, const at::Tensor *bias, const at::Scalar &beta, const at::Scalar &alpha)
{
    if (!bias)
        return;
    add_all(key, bias->sizes());
    add_all(key, bias->strides());
    for (double factor : {beta.toDouble(), alpha.toDouble()}) {
        int64_t bits = 0;
        std::memcpy(&bits, &factor, sizeof bits);
        key.push_back(bits);
    }
}

// From here on the operator takes the weight at its own address, and the next plan does not cut it.
static at::Tensor whole_after_all(swn_op *op, unsigned arg, const at::Tensor &weight)
{
    host->slices_offer(op, arg, 0);
    host->slice_lend(op, arg, weight.storage().nbytes(), 1); // no such piece
    return {};
}

at::Tensor swn_compute_in_slices(const swn_sliced &what)
{
    swn_op *op = swn_current_op();
    int index = op ? argument_of(op, what.weight) : -1;
    if (index < 0)
        return {};
    auto arg = static_cast<unsigned>(index);
    if (what.doubtful && !op->args[arg].visited && !op->args[arg].sliced)
        return {};
    // Cuts fall on whole rows from the storage's beginning.
    size_t begin = static_cast<size_t>(what.weight.storage_offset()) * what.weight.itemsize();
    if (!op->args[arg].sliced && begin % what.row_bytes)
        return {};
    if (!op->args[arg].sliced)
        host->slices_offer(op, arg, what.row_bytes);
    if (!op->args[arg].sliced)
        return {};
    std::vector<size_t> slices(most_slices);
    slices.resize(host->slices_list(op, arg, slices.data(), slices.size()));
    std::vector<Part> parts = parts_of(what, slices);
    if (parts.empty())
        return whole_after_all(op, arg, what.weight);
    try {
        if (parts.size() > 1 && !proven(what, parts))
            return whole_after_all(op, arg, what.weight);
        at::Tensor out = at::empty(what.sizes, what.input.options());
        for (const Part &part : parts) {
            auto from = static_cast<const char *>(host->slice_lend(op, arg, part.off, part.bytes));
            if (!from)
                return {}; // cut differently meanwhile
            out.narrow(what.dim, part.row * what.width, part.count * what.width)
                .copy_(what.part_of(what.input, from + part.skip, part.row, part.count));
        }
        host->slice_lend(op, arg, 0, 0);
        return out;
    } catch (const c10::Error &) { // no memory within a strict budget: whole it may fit, or fails as it should
        host->slice_lend(op, arg, what.weight.storage().nbytes(), 1); // no such piece: by its own address from here on
        return {};
    }
}

void swn_slices_begin(const swn_host *h)
{
    host = h;
}

void swn_slices_before_fork()
{
    trials_lock.lock();
}

void swn_slices_after_fork()
{
    trials_lock.unlock();
}
