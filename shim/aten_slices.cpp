#include "aten_slices.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>

#include "aten_simple.h"

namespace
{

const swn_host *host;

constexpr size_t least_bytes = 4u << 20;  // smaller weights come whole
constexpr size_t random_bytes = 4u << 20; // mapped over and over
constexpr size_t most_slices = 4096;
constexpr size_t most_trials = 512; // shapes that are remembered

std::mutex trials_lock;
std::map<std::vector<int64_t>, bool> trials;

template <typename T> void numbers(char *at)
{
    T *to = reinterpret_cast<T *>(at);
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < random_bytes / sizeof(T); i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        to[i] = static_cast<T>(static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f);
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

// The trial; `slices` are bytes of the weight.
bool same_in_slices(const swn_sliced &what, const std::vector<size_t> &slices)
{
    Random weights(static_cast<size_t>(what.rows) * what.row_bytes, what.type);
    Random inputs(what.input.nbytes(), what.type);
    if (!weights.base() || !inputs.base())
        return false;
    at::Tensor from = at::from_blob(inputs.base(), what.input.sizes(), at::dtype(what.type));
    at::Tensor expect = what.part_of(from, weights.base(), 0, what.rows);
    if (!expect.sizes().equals(what.sizes) || !expect.is_contiguous())
        return false;
    int64_t row = 0;
    for (size_t bytes : slices) {
        auto count = static_cast<int64_t>(bytes / what.row_bytes);
        at::Tensor got = what.part_of(from, weights.base() + static_cast<size_t>(row) * what.row_bytes, row, count);
        if (!same_bits(got, expect.narrow(1, row, count)))
            return false;
        row += count;
    }
    return true;
}

bool proven(const swn_sliced &what, const std::vector<size_t> &slices)
{
    std::vector<int64_t> key = what.key();
    key.push_back(at::get_num_threads());
    for (size_t i = 0; i < slices.size(); i++)
        if (!i || slices[i] != slices[i - 1]) { // where the cuts are is all that counts
            key.push_back(static_cast<int64_t>(i));
            key.push_back(static_cast<int64_t>(slices[i]));
        }
    {
        std::lock_guard<std::mutex> guard(trials_lock);
        auto found = trials.find(key);
        if (found != trials.end())
            return found->second;
        if (trials.size() >= most_trials)
            trials.clear();
    }
    bool same = same_in_slices(what, slices);
    std::lock_guard<std::mutex> guard(trials_lock);
    trials[key] = same;
    return same;
}

// The argument of the running operator whose whole storage is the weight; -1: none.
int argument_of(const swn_op *op, const at::Tensor &weight)
{
    auto word = weight.storage().data_ptr().get();
    for (unsigned i = 0; i < op->n; i++) {
        const swn_arg &arg = op->args[i];
        if (arg.use == SWN_USE_WEIGHT && arg.word && *arg.word == word && arg.bytes == weight.nbytes())
            return static_cast<int>(i);
    }
    return -1;
}

} // namespace

bool swn_sliceable(const at::Tensor &weight)
{
    auto type = weight.scalar_type();
    return weight.has_storage() && weight.nbytes() >= least_bytes && weight.storage_offset() == 0 &&
           weight.nbytes() == weight.storage().nbytes() && swn_simple(weight, type) &&
           (type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16);
}

at::Tensor swn_compute_in_slices(const at::Tensor &weight, const swn_sliced &what)
{
    swn_op *op = swn_current_op();
    int index = op ? argument_of(op, weight) : -1;
    if (index < 0)
        return {};
    auto arg = static_cast<unsigned>(index);
    if (!op->args[arg].sliced)
        host->slices_offer(op, arg, what.row_bytes);
    if (!op->args[arg].sliced)
        return {};
    std::vector<size_t> slices(most_slices);
    slices.resize(host->slices_list(op, arg, slices.data(), slices.size()));
    size_t sum = 0;
    bool whole_rows = !slices.empty();
    for (size_t bytes : slices) {
        whole_rows = whole_rows && bytes && bytes % what.row_bytes == 0;
        sum += bytes;
    }
    if (!whole_rows || sum != weight.nbytes())
        return {};
    try {
        if (slices.size() > 1 && !proven(what, slices)) {
            host->slices_offer(op, arg, 0);
            return {};
        }
        at::Tensor out = at::empty(what.sizes, what.input.options());
        size_t at = 0;
        for (size_t bytes : slices) {
            const void *from = host->slice_lend(op, arg, at, bytes);
            if (!from)
                return {}; // cut differently meanwhile
            auto row = static_cast<int64_t>(at / what.row_bytes), count = static_cast<int64_t>(bytes / what.row_bytes);
            out.narrow(1, row, count).copy_(what.part_of(what.input, from, row, count));
            at += bytes;
        }
        host->slice_lend(op, arg, at, 0);
        return out;
    } catch (const c10::Error &) { // no memory within a strict budget: whole it may fit, or fails as it should
        host->slice_lend(op, arg, weight.nbytes(), 1); // no such piece: its own address serves from here on
        return {};
    }
}

void swn_slices_begin(const swn_host *h)
{
    host = h;
}
