#include "aten_kernels.h"

#include <deque>
#include <mutex>
#include <string>

namespace
{

// The dispatcher's entry of an operator, of which OperatorHandle shows all but the count of registrations. An explicit
// instantiation may name what is private.
template <auto Member> struct Entry {
    friend auto entry_of(const c10::OperatorHandle &handle)
    {
        return handle.*Member;
    }
};
auto entry_of(const c10::OperatorHandle &handle);
template struct Entry<&c10::OperatorHandle::operatorDef_>;

// What a kernel's registration says of where it was, as parts of a path. What computes is in the first; the second has
// autograd's, and pytorch/csrc/ is somebody else's.
constexpr const char *computing = "/aten/src/ATen/", *framing = "/torch/csrc/";

// The keys through which a call gets to the processor, or to a device whose tensors can be ours. The first of each
// three computes.
constexpr const char *keys[][3] = {{"CPU", "AutogradCPU", "AutocastCPU"},
                                   {"CUDA", "AutogradCUDA", "AutocastCUDA"},
                                   {"PrivateUse1", "AutogradPrivateUse1", "AutocastPrivateUse1"}};
constexpr const char *views = "ADInplaceOrView";
// The tests' device, which has no kernels but its own.
constexpr const char *standin = "/tests/standin/";

// Operators that get weights from operators that are made of others.
constexpr const char *parts[][2] = {
    {"aten::linear", ""},
    {"aten::addmm", ""},
    {"aten::mm", ""},
    {"aten::matmul", ""},
    {"aten::bmm", ""},
    {"aten::baddbmm", ""},
    {"aten::mv", ""},
    {"aten::addmv", ""},
    {"aten::_addmm_activation", ""},
    {"aten::mkldnn_linear", ""},
    {"aten::_mkldnn_linear_pointwise", ""},
    {"aten::convolution", ""},
    {"aten::_convolution", ""},
    {"aten::mkldnn_convolution", ""},
    {"aten::_slow_conv2d_forward", ""},
    {"aten::thnn_conv2d", ""},
    {"aten::_conv_depthwise2d", ""},
    {"aten::slow_conv3d_forward", ""},
    {"aten::slow_conv_transpose2d", ""},
    {"aten::_nnpack_spatial_convolution", ""},
    {"aten::native_layer_norm", ""},
    {"aten::native_group_norm", ""},
    {"aten::index_select", ""},
    {"aten::embedding", ""},
    {"aten::_embedding_bag", ""},
    {"aten::_embedding_bag_forward_only", ""},
    {"aten::mkldnn_rnn_layer", ""},
    {"aten::_prelu_kernel", ""},
    {"aten::_trilinear", ""},
    {"aten::_fused_rms_norm", ""},
    {"aten::add", "Tensor"},
    {"aten::mul", "Tensor"},
    {"aten::cat", ""},
    {"aten::clone", ""},
    {"aten::_to_copy", ""},
    {"aten::copy_", ""},
};

// The line of the table that says what is computed with at a key.
std::string line_of(const std::string &table, const char *key)
{
    std::string start = std::string("\n") + key + ": ";
    size_t at = table.find(start);
    return at == std::string::npos ? "" : table.substr(at + 1, table.find('\n', at + 1) - at - 1);
}

bool is_pytorchs(const std::string &line, bool computes)
{
    return line.find(computing) != std::string::npos || line.find(swn_kernels_source) != std::string::npos ||
           line.find(standin) != std::string::npos || (!computes && line.find(framing) != std::string::npos);
}

bool all_pytorchs(const std::string &table)
{
    auto is_at = [&table](const char *key, bool computes) {
        std::string line = line_of(table, key);
        return line.empty() || is_pytorchs(line, computes);
    };
    for (auto &those : keys)
        for (size_t i = 0; i < 3; i++)
            if (!is_at(those[i], i == 0))
                return false;
    return is_at(views, false);
}

// Has a kernel of its own on the processor, and calls others all the same.
bool calls_others(const std::string &name)
{
    return name == "aten::_native_multi_head_attention" || name == "aten::_transformer_encoder_layer_fwd";
}

std::mutex looking; // the count and the kernels belong together

} // namespace

void swn_kernels::look_at(const c10::OperatorHandle &handle)
{
    operator_handle.emplace(handle);
    count = &entry_of(handle)->def_and_impl_count;
    look();
}

void swn_kernels::look()
{
    std::lock_guard<std::mutex> guard(looking);
    size_t now = *count; // before the look: what is registered meanwhile is looked at again
    std::string table = "\n" + operator_handle->dumpComputedTable();
    bool all = all_pytorchs(table);
    std::string computes = line_of(table, keys[0][0]);
    composite = computes.find("RegisterComposite") != std::string::npos ||
                computes.find(swn_kernels_source) != std::string::npos ||
                calls_others(operator_handle->operator_name().name);
    known = all;
    was.store(now, std::memory_order_release);
}

bool swn_kernels::are_pytorchs()
{
    // Never destroyed: other threads may still compute when the process ends.
    static auto *made_of = [] {
        auto *all = new std::deque<swn_kernels>;
        for (auto &name : parts) {
            auto handle = c10::Dispatcher::singleton().findSchema({name[0], name[1]});
            if (handle) // not every version has all of them
                all->emplace_back().look_at(*handle);
        }
        return all;
    }();
    if (!own_are_pytorchs())
        return false;
    if (composite)
        for (swn_kernels &part : *made_of)
            if (!part.own_are_pytorchs())
                return false;
    return true;
}

void swn_kernels_before_fork()
{
    looking.lock();
}

void swn_kernels_after_fork()
{
    looking.unlock();
}
