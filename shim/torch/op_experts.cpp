// shim/torch/op_experts.cpp - see op_experts.h.
#include "shim/torch/op_experts.h"

#include <ATen/core/Tensor.h>

#include "shim/torch/services.h"
#include "shim/torch/tensor_checks.h"

namespace
{

// Bytes from the first element to the end of the last, of one matrix of a batch.
size_t matrix_bytes(const at::Tensor &tensor)
{
    size_t last = 0;
    for (int64_t i = tensor.dim() - 2; i < tensor.dim(); i++)
        last += static_cast<size_t>((tensor.size(i) - 1) * tensor.stride(i));
    return (last + 1) * tensor.itemsize();
}

// Without making a copy of a tensor that is copied when it is written.
uintptr_t address_of_numbers(const at::Tensor &tensor)
{
    const c10::StorageImpl &storage = *tensor.storage().unsafeGetStorageImpl();
    return reinterpret_cast<uintptr_t>(storage.data_ptr().get()) +
           static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize();
}

// Whether a tensor's bytes are those at its address, and there are some.
bool is_readable(const at::Tensor &tensor)
{
    return swn_has_own_storage(tensor) && tensor.numel() && !tensor._is_zerotensor() &&
           swn_simple(tensor, tensor.scalar_type()) && tensor.storage().unsafeGetStorageImpl()->data_ptr().get();
}

} // namespace

bool swn_op_experts::find(c10::ArrayRef<const c10::IValue> inputs, size_t i, unsigned arg)
{
    if (inputs.size() <= i + 1 || !inputs[i].isTensor() || !inputs[i + 1].isTensor())
        return false;
    const at::Tensor &weight = inputs[i].toTensor(), &offsets = inputs[i + 1].toTensor();
    if (!is_readable(weight) || !is_readable(offsets) || weight.dim() != 3 || offsets.dim() != 1 ||
        offsets.scalar_type() != at::kInt || offsets.size(0) != weight.size(0))
        return false;
    size_t each = static_cast<size_t>(weight.stride(0)) * weight.itemsize();
    if (matrix_bytes(weight) > each) // they overlap, or lie in another order
        return false;
    numbers_.clear();
    auto *end = reinterpret_cast<const int32_t *>(address_of_numbers(offsets));
    int32_t before = 0;
    for (int64_t k = 0; k < offsets.size(0); k++) {
        int32_t upto = end[k * offsets.stride(0)];
        if (upto != before)
            numbers_.push_back(static_cast<uint32_t>(k));
        before = upto;
    }
    arg_ = arg;
    experts_ = {address_of_numbers(weight), each, static_cast<size_t>(weight.size(0)), numbers_.size(),
                numbers_.data()};
    there_ = true;
    return true;
}

void swn_op_experts::begin(swn_op &op)
{
    there_ = there_ && arg_ < op.n && op.args[arg_].use == SWN_USE_EXPERTS;
    if (there_)
        swn_services->tiling.experts_begin(&op, arg_, &experts_);
}

void swn_op_experts::lend(swn_op &op, const at::RecordFunction &fn) const
{
    uintptr_t end = experts_.first + experts_.each * experts_.count, at = 0;
    size_t bytes = 0;
    for (const c10::IValue &value : fn.inputs()) {
        if (!value.isTensor() || !value.toTensor().defined())
            continue;
        const at::Tensor &tensor = value.toTensor();
        if (!tensor.numel())
            return; // a product of no rows reads nothing
        uintptr_t data = tensor.dim() == 2 && is_readable(tensor) ? address_of_numbers(tensor) : 0;
        if (data >= experts_.first && data < end) {
            at = data;
            bytes = matrix_bytes(tensor);
        }
    }
    if (bytes && bytes <= experts_.each)
        swn_services->tiling.expert_lend(&op, arg_, at, bytes);
}
