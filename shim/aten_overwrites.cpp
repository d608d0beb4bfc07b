#include "aten_overwrites.h"

#include <ATen/core/grad_mode.h>
#include <torch/version.h>

#include <cmath>

namespace
{

// The types that every copy is written for. Others some operators refuse, once they look.
bool copies_know(at::ScalarType type)
{
    switch (type) {
    case at::kBool:
    case at::kByte:
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble:
    case at::kComplexFloat:
    case at::kComplexDouble:
        return true;
    default:
        return false;
    }
}

// Those for which a copy to the same type is written as well.
bool copies_know_alike(at::ScalarType type)
{
    switch (type) {
    case at::kComplexHalf:
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 206
    case at::kUInt16:
    case at::kUInt32:
    case at::kUInt64:
    case at::kFloat8_e5m2:
    case at::kFloat8_e4m3fn:
    case at::kFloat8_e5m2fnuz:
    case at::kFloat8_e4m3fnuz:
#endif
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 211
    case at::kFloat8_e8m0fnu:
#endif
        return true;
    default:
        return copies_know(type);
    }
}

bool copy_is_known(at::ScalarType to, at::ScalarType from)
{
    return to == from ? copies_know_alike(to) : copies_know(to) && copies_know(from);
}

bool fills_know(at::ScalarType type)
{
    return type == at::kHalf || type == at::kBFloat16 || type == at::kFloat || type == at::kDouble;
}

// Whether autograd may refuse that self is written in place, with numbers of source.
bool autograd_may_refuse(const at::Tensor &self, const at::Tensor &source)
{
    return at::GradMode::is_enabled() && (self.requires_grad() || source.requires_grad() || self.is_view());
}

// Whether writing all of the tensor writes every byte of its storage, and cannot be refused on the way: an operator
// that throws must find the tensor as it was.
bool whole_storage(const at::Tensor &tensor)
{
    return tensor.is_contiguous() && tensor.storage_offset() == 0 && tensor.nbytes() == tensor.storage().nbytes() &&
           !tensor.is_inference() && !tensor.is_quantized();
}

} // namespace

bool swn_overwrites(const at::Tensor &self, const at::Tensor &source)
{
    return whole_storage(self) && self.sizes() == source.sizes() && source.is_cpu() &&
           source.layout() == at::kStrided && !source.is_inference() && !source.is_quantized() &&
           copy_is_known(self.scalar_type(), source.scalar_type()) && !autograd_may_refuse(self, source) &&
           self.storage().data_ptr().get() != source.storage().data_ptr().get();
}

bool swn_refills(const at::Tensor &self, c10::ArrayRef<const c10::IValue> inputs)
{
    if (!whole_storage(self) || !fills_know(self.scalar_type()) || autograd_may_refuse(self, self))
        return false;
    double number[2] = {0, 0};
    size_t numbers = 0;
    for (size_t i = 1; i < inputs.size(); i++) {
        if (inputs[i].isNone())
            continue; // no generator of the caller's
        if (numbers == 2 || !(inputs[i].isDouble() || inputs[i].isInt()))
            return false;
        number[numbers] = inputs[i].isDouble() ? inputs[i].toDouble() : static_cast<double>(inputs[i].toInt());
        if (!(std::abs(number[numbers++]) < 1e4)) // in the range of every such type
            return false;
    }
    // normal_(mean, std) and uniform_(from, to)
    return numbers < 2 || (number[1] >= 0 && number[0] <= number[1]);
}
