// shim/torch/slices.cpp - see slices.h.
#include "shim/torch/slices.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <cstring>

#include "shim/torch/dispatch_check.h"
#include "shim/torch/tensor_checks.h"
#include "shim/torch/trials.h"
#include "shim/torch/services.h"

namespace
{

constexpr size_t least_slice = 1u << 20;  // of slices that this file cuts
constexpr size_t least_part = 256u << 10; // of one operator's share: smaller ones are read at the weight's own address

// The argument of the running operator that has the weight's storage; -1: none.
int weight_argument(const swn_op *op, const at::Tensor &weight)
{
    auto data = reinterpret_cast<uintptr_t>(weight.storage().data_ptr().get());
    for (unsigned i = 0; i < op->n; i++) {
        const swn_arg &arg = op->args[i];
        if (arg.use == SWN_USE_WEIGHT && !arg.mapped && arg.data == data && arg.bytes == weight.storage().nbytes())
            return static_cast<int>(i);
    }
    return -1;
}

} // namespace

bool swn_sliceable(const at::Tensor &weight)
{
    auto type = weight.scalar_type();
    return weight.has_storage() && weight.nbytes() >= least_part && swn_simple(weight, type) && swn_computed(type) &&
           weight.storage().nbytes() >= swn_services->tiling.slices_least();
}

bool swn_computed(at::ScalarType type)
{
    return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
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

// Pieces of equal length, except for the last one, as a plan would cut them.
swn_partition_points even_cuts(size_t storage_bytes, size_t bytes)
{
    swn_partition_points cuts;
    size_t n = storage_bytes / bytes;
    cuts.n = n > 1 ? 2 : 1;
    cuts.kinds[0] = {bytes, n - 1};
    cuts.kinds[cuts.n - 1] = {storage_bytes - (n - 1) * bytes, 1};
    return cuts;
}

// If the present slices keep failing for this shape, tries longer ones for later operators. true: the weight may
// already be cut into longer ones.
bool lengthened(swn_op *op, unsigned arg, const swn_sliced &what, uint64_t shape)
{
    size_t all = what.weight.storage().nbytes(), next = swn_services->tiling.slices_refused(op, arg, shape, 0, 0);
    bool right = false;
    while (next) {
        right = swn_same_in_slices(what, even_cuts(all, next));
        next = swn_services->tiling.slices_refused(op, arg, shape, next, right);
    }
    return right;
}

// How many rows the math library sums at once: OpenBLAS 320 floats or 256 doubles on processors with AVX2, MKL 384 of
// either; on processors with AVX-512 other numbers. The bits of the result show which. 0: none of these.
int64_t summed_block(const swn_sliced &what)
{
    for (int64_t rows : {384, 320, 256, 448, 512, 640})
        if (rows <= what.rows / 2 && what.weight.nbytes() == what.weight.storage().nbytes() &&
            swn_same_in_slices(what, even_cuts(what.weight.nbytes(), static_cast<size_t>(rows) * what.row_bytes)))
            return rows;
    return 0;
}

// Finds the slices in which the operator can take the weight. false: none, or the engine does not want to know. May
// throw PyTorch's errors.
bool rows_to_offer(swn_op *op, unsigned arg, const swn_sliced &what, uint64_t shape, swn_row_geometry &rows)
{
    int64_t block = !what.summed                                         ? what.block
                    : swn_services->tiling.slices_wanted(op, arg, shape) ? summed_block(what)
                                                                         : 0;
    size_t threads = block > 1 && !what.summed ? static_cast<size_t>(at::get_num_threads()) : 1;
    rows = {what.row_bytes, static_cast<size_t>(block), threads, shape, what.summed};
    return block > 0;
}

// The slices of the weight, if all of them are whole rows and give the right bits.
bool right_slices(swn_op *op, unsigned arg, const swn_sliced &what, const swn_row_geometry *offered,
                  swn_partition_points &cuts)
{
    cuts.n = swn_services->tiling.slices_list(op, arg, cuts.kinds.data(), cuts.kinds.size());
    if (swn_each_part(what, cuts, [](const swn_part &) { return true; }))
        return swn_same_in_slices(what, cuts);
    if (offered)
        swn_services->tiling.slices_offer(op, arg, offered);
    return false;
}

// `where` returns the address of a part's rows; nullptr: they are not available any more.
template <typename Where> at::Tensor part_by_part(const swn_sliced &what, const swn_partition_points &cuts, Where where)
{
    swn_computing_parts computing;
    what.observed = computing.observed;
    at::Tensor out = what.summed ? at::Tensor() : at::empty(what.sizes, what.input.options());
    bool done = swn_each_part(what, cuts, [&](const swn_part &part) {
        auto rows = static_cast<const char *>(where(part));
        if (rows)
            what.put_part(out, what.input, rows, part.row, part.count);
        return rows != nullptr;
    });
    what.observed = false;
    return done ? out : at::Tensor();
}

// All of the weight is in memory, or read through its mapping, but the copy that the kernel would make of it does not
// fit: so the kernel copies and computes one part after the other.
at::Tensor with_smaller_copies(const swn_sliced &what)
{
    size_t storage_bytes = what.weight.storage().nbytes(), rows = least_slice / what.row_bytes / 64 * 64 + 64;
    if (!what.copied || what.weight.nbytes() != storage_bytes || rows * what.row_bytes > storage_bytes / 2 ||
        swn_services->tiling.copy_room(storage_bytes))
        return {};
    swn_partition_points cuts = even_cuts(storage_bytes, rows * what.row_bytes);
    if (!swn_same_in_slices(what, cuts))
        return {};
    return part_by_part(
        what, cuts, [&](const swn_part &part) { return static_cast<const char *>(what.weight.data_ptr()) + part.off; });
}

at::Tensor lent_in_slices(swn_op *op, unsigned arg, const swn_sliced &what, const swn_row_geometry *offered,
                          uint64_t shape)
{
    swn_partition_points cuts;
    if (!right_slices(op, arg, what, offered, cuts) &&
        !(lengthened(op, arg, what, shape) && right_slices(op, arg, what, nullptr, cuts))) {
        swn_services->tiling.slice_lend(op, arg, what.weight.storage().nbytes(),
                                        1); // no such piece: by its own address
        return {};
    }
    at::Tensor out = part_by_part(what, cuts, [&](const swn_part &part) -> const char * {
        auto from = static_cast<const char *>(swn_services->tiling.slice_lend(op, arg, part.off, part.bytes));
        return from ? from + part.skip : nullptr; // cut in another way meanwhile
    });
    if (out.defined())
        swn_services->tiling.slice_lend(op, arg, 0, 0);
    return out;
}

} // namespace

at::Tensor swn_compute_in_slices(const swn_sliced &what)
{
    swn_op *op = swn_current_op();
    int index = op ? weight_argument(op, what.weight) : -1;
    if (index < 0 || !swn_kernels::parts_are_pytorchs())
        return {};
    auto arg = static_cast<unsigned>(index);
    if (what.doubtful && !op->args[arg].accessed && !op->args[arg].sliced)
        return {};
    // Cuts are at whole rows from the storage's beginning.
    size_t begin = static_cast<size_t>(what.weight.storage_offset()) * what.weight.itemsize();
    bool cuttable = begin % what.row_bytes == 0;
    if (!op->args[arg].sliced && !cuttable)
        return {};
    uint64_t shape = swn_shape_of(what);
    try {
        swn_row_geometry rows;
        bool offers = cuttable && (!what.summed || !op->args[arg].sliced) && rows_to_offer(op, arg, what, shape, rows);
        size_t supposed = offers && !op->args[arg].sliced ? swn_services->tiling.slices_offer(op, arg, &rows) : 0;
        if (supposed && !swn_same_in_slices(what, even_cuts(what.weight.storage().nbytes(), supposed)))
            lengthened(op, arg, what, shape);
        if (op->args[arg].sliced) {
            at::Tensor out = lent_in_slices(op, arg, what, offers ? &rows : nullptr, shape);
            if (out.defined())
                return out;
        }
        return with_smaller_copies(what);
    } catch (const c10::Error &) { // no memory within a strict budget: the whole may fit, or fails as it should
        if (op->args[arg].sliced)
            swn_services->tiling.slice_lend(op, arg, what.weight.storage().nbytes(),
                                            1); // no such piece: by its own address
        return {};
    }
}
