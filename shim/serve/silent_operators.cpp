// shim/serve/silent_operators.cpp - see silent_operators.h. Found by calling the operators of 1.13 and 2.13 on small
// tensors, and by reading those that decide by their arguments.
#include "shim/serve/silent_operators.h"

#include <algorithm>
#include <iterator>

namespace swn
{
namespace
{

const char *const kReturn[] = {
    "aten::_autocast_to_full_precision",
    "aten::_autocast_to_reduced_precision",
    "aten::_cast_Byte",
    "aten::_cast_Char",
    "aten::_cast_Double",
    "aten::_cast_Float",
    "aten::_cast_Half",
    "aten::_cast_Int",
    "aten::_cast_Long",
    "aten::_cast_Short",
    "aten::_no_grad_embedding_renorm_",
    "aten::_pack_padded_sequence",
    "aten::_pack_sequence",
    "aten::_pad_packed_sequence",
    "aten::_remove_batch_dim",
    "aten::_saturate_weight_to_fp16",
    "aten::_to_cpu",
    "aten::_unsafe_view",
    "aten::align_as",
    "aten::alpha_dropout",
    "aten::atleast_1d",
    "aten::atleast_2d",
    "aten::atleast_3d",
    "aten::cartesian_prod",
    "aten::chain_matmul",
    "aten::conj_physical",
    "aten::copy",
    "aten::cumprod_backward",
    "aten::data",
    "aten::dequantize",
    "aten::dropout",
    "aten::einsum",
    "aten::feature_alpha_dropout",
    "aten::feature_dropout",
    "aten::flatten_dense_tensors",
    "aten::lift",
    "aten::native_dropout",
    "aten::set",
    "aten::sum_to_size",
    "aten::to_dense",
    "aten::to_mkldnn_backward",
    "aten::type_as",
    "prims::view_of",
};

constexpr size_t kAlways = SilentWrites::kNone;
const SilentWrites kWrite[] = {
    {"aten::_batch_norm_impl_index", 3, 4, 5},
    {"aten::_no_grad_embedding_renorm_", 0, 0, kAlways},
    {"aten::_saturate_weight_to_fp16", 0, 0, kAlways},
    {"aten::batch_norm", 3, 4, 5},
    {"aten::batch_norm_gather_stats", 3, 4, kAlways},
    {"aten::batch_norm_gather_stats_with_counts", 3, 4, kAlways},
    {"aten::batch_norm_update_stats", 1, 2, kAlways},
    {"aten::instance_norm", 3, 4, 5},
    {"aten::native_batch_norm", 3, 4, 5},
    {"aten::rrelu_with_noise", 1, 1, kAlways},
    {"aten::rrelu_with_noise_", 1, 1, kAlways},
};

} // namespace

bool returns_silently(const std::string &name)
{
    return std::find(std::begin(kReturn), std::end(kReturn), name) != std::end(kReturn);
}

const SilentWrites *silent_writes(const std::string &name)
{
    auto found =
        std::find_if(std::begin(kWrite), std::end(kWrite), [&](const SilentWrites &w) { return w.name == name; });
    return found == std::end(kWrite) ? nullptr : found;
}

} // namespace swn
