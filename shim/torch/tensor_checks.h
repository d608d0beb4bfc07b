// Checks that swapnet's kernels make before they read a tensor's bytes themselves.
#ifndef SWN_SHIM_TORCH_TENSOR_CHECKS_H
#define SWN_SHIM_TORCH_TENSOR_CHECKS_H

#include <ATen/core/Tensor.h>

// Later versions have no named tensors.
template <typename T> auto swn_named(const T &tensor, int) -> decltype(tensor.has_names())
{
    return tensor.has_names();
}
template <typename T> bool swn_named(const T &, long)
{
    return false;
}

// Whether the tensor has a storage of its own: what stands for another tensor, as while a program is traced, does not
// count.
inline bool swn_has_own_storage(const at::Tensor &tensor)
{
    return tensor.defined() && tensor.unsafeGetTensorImpl()->has_storage() &&
           !tensor.key_set().has(c10::DispatchKey::Python) && !tensor.key_set().has(c10::DispatchKey::Functionalize);
}

// Whether the tensor's numbers are those in its memory, of this type.
inline bool swn_simple(const at::Tensor &tensor, at::ScalarType type)
{
    return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.scalar_type() == type &&
           !swn_named(tensor, 0) && !tensor.is_conj() && !tensor.is_neg() && !tensor.is_quantized();
}

#endif
