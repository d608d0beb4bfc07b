#include "aten_slices.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <cstring>

#include "aten_simple.h"
#include "aten_trials.h"

namespace
{

const swn_host *host;

constexpr size_t least_bytes = 4u << 20;  // smaller weights come whole
constexpr size_t least_part = 256u << 10; // of what an operator uses: less is read by its own address

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

void swn_add_bias(swn_key &key, const at::Tensor *bias, const at::Scalar &beta, const at::Scalar &alpha)
{
    if (!bias)
        return;
    key.add(bias->sizes());
    key.add(bias->strides());
    for (double factor : {beta.toDouble(), alpha.toDouble()}) {
        int64_t bits = 0;
        std::memcpy(&bits, &factor, sizeof bits);
        key.add(bits);
    }
}

namespace
{

// Pieces as a plan would cut them: of equal length, but for the last one.
swn_cuts even_cuts(size_t storage_bytes, size_t bytes)
{
    swn_cuts cuts;
    size_t n = storage_bytes / bytes;
    cuts.n = n > 1 ? 2 : 1;
    cuts.kinds[0] = {bytes, n - 1};
    cuts.kinds[cuts.n - 1] = {storage_bytes - (n - 1) * bytes, 1};
    return cuts;
}

// From here on the operator takes the weight at its own address. If that keeps happening to this shape, longer slices
// are tried for the times to come.
at::Tensor whole_this_time(swn_op *op, unsigned arg, const swn_sliced &what, uint64_t shape)
{
    size_t all = what.weight.storage().nbytes(), next = host->slices_refused(op, arg, shape, 0, 0);
    while (next)
        next = host->slices_refused(op, arg, shape, next, swn_same_in_slices(what, even_cuts(all, next)));
    host->slice_lend(op, arg, all, 1); // no such piece
    return {};
}

} // namespace

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
    bool cuttable = begin % what.row_bytes == 0;
    if (!op->args[arg].sliced && !cuttable)
        return {};
    uint64_t shape = swn_shape_of(what);
    const swn_rows rows = {what.row_bytes, static_cast<size_t>(what.block),
                           what.block > 1 ? static_cast<size_t>(at::get_num_threads()) : 1, shape};
    if (!op->args[arg].sliced)
        host->slices_offer(op, arg, &rows);
    if (!op->args[arg].sliced)
        return {};
    swn_cuts cuts;
    cuts.n = host->slices_list(op, arg, cuts.kinds.data(), cuts.kinds.size());
    try {
        if (!swn_each_part(what, cuts, [](const swn_part &) { return true; })) {
            if (cuttable)
                host->slices_offer(op, arg, &rows);
            return whole_this_time(op, arg, what, shape);
        }
        if (!swn_same_in_slices(what, cuts))
            return whole_this_time(op, arg, what, shape);
        at::Tensor out = at::empty(what.sizes, what.input.options());
        if (!swn_each_part(what, cuts, [&](const swn_part &part) {
                auto from = static_cast<const char *>(host->slice_lend(op, arg, part.off, part.bytes));
                if (!from)
                    return false; // cut differently meanwhile
                out.narrow(what.dim, part.row * what.width, part.count * what.width)
                    .copy_(what.part_of(what.input, from + part.skip, part.row, part.count));
                return true;
            }))
            return {};
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
    swn_trials_begin(h);
}
