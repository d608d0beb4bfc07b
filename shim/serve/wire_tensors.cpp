// shim/serve/wire_tensors.cpp - see wire_tensors.h.
#include "shim/serve/wire_tensors.h"

#include <cstring>
#include <string>

#include <ATen/ATen.h>

#include "shim/torch/compat.h"

namespace swn
{
namespace
{

struct Pair {
    swn_element element;
    at::ScalarType type;
};

const Pair pairs[] = {
    {SWN_ELEMENT_BOOL, at::kBool},     {SWN_ELEMENT_UINT8, at::kByte},    {SWN_ELEMENT_INT8, at::kChar},
    {SWN_ELEMENT_INT16, at::kShort},   {SWN_ELEMENT_INT32, at::kInt},     {SWN_ELEMENT_INT64, at::kLong},
    {SWN_ELEMENT_FP16, at::kHalf},     {SWN_ELEMENT_FP32, at::kFloat},    {SWN_ELEMENT_FP64, at::kDouble},
    {SWN_ELEMENT_BF16, at::kBFloat16},
#if SWN_HAS_UNSIGNED
    {SWN_ELEMENT_UINT16, at::kUInt16}, {SWN_ELEMENT_UINT32, at::kUInt32}, {SWN_ELEMENT_UINT64, at::kUInt64},
#endif
};

} // namespace

swn_element element_of(at::ScalarType type)
{
    for (const Pair &p : pairs)
        if (p.type == type)
            return p.element;
    return SWN_ELEMENT_NONE;
}

at::Tensor tensor_from_wire(const swn_wire_tensor &t, const char *buffer)
{
    const char *word = swn_element_name(static_cast<swn_element>(t.element));
    for (const Pair &p : pairs) {
        if (p.element != t.element)
            continue;
        at::Tensor tensor = at::empty(at::IntArrayRef(t.shape, t.rank), at::TensorOptions().dtype(p.type));
        if (static_cast<uint64_t>(tensor.nbytes()) != t.bytes)
            throw BadInput("input \"" + std::string(t.name) + "\" has " + std::to_string(t.bytes) +
                           " bytes, its shape " + std::to_string(tensor.nbytes()));
        // A model that works in place on its input must not change the request, which may have to run again.
        const char *from = buffer + t.offset;
        char *to = static_cast<char *>(tensor.data_ptr());
        if (p.type == at::kBool) // any other byte than 0 and 1 is undefined to PyTorch
            for (uint64_t i = 0; i < t.bytes; i++)
                to[i] = from[i] != 0;
        else if (t.bytes > 0)
            memcpy(to, from, t.bytes);
        return tensor;
    }
    throw BadInput("input \"" + std::string(t.name) + "\": this PyTorch takes no tensors of type " +
                   (word ? word : "unknown"));
}

void describe_tensor(const at::Tensor &t, swn_wire_tensor &out)
{
    if (!t.defined() || t.layout() != at::kStrided || !t.device().is_cpu() || t.is_quantized())
        throw std::runtime_error("the model's output is no dense tensor in memory");
    if (t.dim() > SWN_WIRE_RANK)
        throw std::runtime_error("the model's output has " + std::to_string(t.dim()) + " dimensions");
    out.element = element_of(t.scalar_type());
    if (out.element == SWN_ELEMENT_NONE)
        throw std::runtime_error(std::string("the protocol has no element type for an output of ") +
                                 at::toString(t.scalar_type()));
    out.rank = static_cast<uint32_t>(t.dim());
    for (int64_t d = 0; d < t.dim(); d++)
        out.shape[d] = t.size(d);
    out.bytes = static_cast<uint64_t>(t.numel()) * t.element_size();
    out.offset = 0;
}

} // namespace swn
