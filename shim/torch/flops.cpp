// shim/torch/flops.cpp - see flops.h.
#include "shim/torch/flops.h"

#include <ATen/core/Tensor.h>

namespace
{

// Larger tensors lie in the arena, or are no parameters of the program.
constexpr size_t small_bytes = 65536;

void add_tensor(swn_flops_op &op, const at::Tensor &tensor)
{
    if (!tensor.defined() || op.tensors == SWN_FLOPS_TENSORS || tensor.dim() > SWN_SHAPE_DIMS)
        return;
    swn_shape &shape = op.tensor[op.tensors++];
    shape.n = static_cast<unsigned>(tensor.dim());
    for (unsigned i = 0; i < shape.n; i++)
        shape.d[i] = tensor.sizes()[i];
}

// A list with one element holds for every dimension.
void numbers(int64_t (&out)[SWN_FLOPS_SPATIAL], const c10::IValue &value)
{
    if (!value.isIntList())
        return;
    auto list = value.toIntVector();
    for (size_t i = 0; i < SWN_FLOPS_SPATIAL && !list.empty(); i++)
        out[i] = list[i < list.size() ? i : list.size() - 1];
}

// conv1d to conv3d and (_)convolution: input, weight, bias, stride, padding, dilation, then groups or transposed.
void convolution(swn_flops_op &op, c10::ArrayRef<const c10::IValue> inputs)
{
    for (size_t i = 0; i < SWN_FLOPS_SPATIAL; i++) {
        op.stride[i] = op.dilation[i] = 1;
        op.padding[i] = 0;
    }
    if (inputs.size() < 6)
        return;
    numbers(op.stride, inputs[3]);
    numbers(op.padding, inputs[4]);
    numbers(op.dilation, inputs[5]);
    op.same = inputs[4].isString() && inputs[4].toStringRef() == "same";
    if (inputs.size() > 6 && inputs[6].isBool() && inputs[6].toBool())
        op.kind = SWN_FLOPS_CONV_TRANSPOSE;
}

enum class Place { never, always, if_trained };

Place place_of(swn_flops_kind kind, swn_use use, size_t i)
{
    switch (kind) {
    case SWN_FLOPS_CONV:
    case SWN_FLOPS_CONV_TRANSPOSE:
    case SWN_FLOPS_LINEAR:
    case SWN_FLOPS_BATCH_NORM:
    case SWN_FLOPS_NORM:
        return i ? Place::always : Place::never;
    case SWN_FLOPS_EMBEDDING:
        return i ? Place::never : Place::always;
    case SWN_FLOPS_ENCODER:
    case SWN_FLOPS_RNN:
        return use == SWN_USE_WEIGHT ? Place::always : Place::never;
    case SWN_FLOPS_ATTENTION:
        return Place::never;
    default:
        return use == SWN_USE_WEIGHT ? Place::if_trained : Place::never;
    }
}

void add_small(swn_small &small, const at::Tensor &tensor, Place place, uintptr_t lo, uintptr_t hi)
{
    if (!tensor.defined() || !tensor.is_cpu() || !tensor.unsafeGetTensorImpl()->has_storage() ||
        tensor.nbytes() >= small_bytes || (place == Place::if_trained && !(tensor.requires_grad() && tensor.is_leaf())))
        return;
    const c10::StorageImpl *storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    auto data = storage ? reinterpret_cast<uintptr_t>(storage->data_ptr().get()) : 0;
    if (!data || (data >= lo && data < hi))
        return;
    small.count++;
    small.bytes += tensor.nbytes();
}

} // namespace

void swn_small_add(swn_small &small, swn_flops_kind kind, const signed char *use, size_t uses,
                   c10::ArrayRef<const c10::IValue> inputs, uintptr_t lo, uintptr_t hi)
{
    for (size_t i = 0; i < inputs.size(); i++) {
        Place place = place_of(kind, i < uses ? static_cast<swn_use>(use[i]) : SWN_USE_INPUT, i);
        if (place == Place::never)
            continue;
        if (inputs[i].isTensor())
            add_small(small, inputs[i].toTensor(), place, lo, hi);
        else if (inputs[i].isTensorList())
            for (const at::Tensor &tensor : inputs[i].toTensorVector())
                add_small(small, tensor, place, lo, hi);
    }
}

uint64_t swn_flops_of(swn_flops_kind kind, const signed char *use, size_t uses, c10::ArrayRef<const c10::IValue> inputs)
{
    swn_flops_op op;
    op.kind = kind;
    op.tensors = 0;
    op.same = 0;
    // For operators that are a whole layer: the input and the weights.
    bool weights_only = kind == SWN_FLOPS_ENCODER || kind == SWN_FLOPS_RNN;
    for (size_t i = 0; i < inputs.size(); i++) {
        if (weights_only && i && (i >= uses || use[i] != SWN_USE_WEIGHT))
            continue;
        if (inputs[i].isTensor())
            add_tensor(op, inputs[i].toTensor());
        else if (inputs[i].isTensorList())
            for (const at::Tensor &tensor : inputs[i].toTensorVector())
                add_tensor(op, tensor);
    }
    if (kind == SWN_FLOPS_CONV)
        convolution(op, inputs);
    return swn_flops(&op);
}
