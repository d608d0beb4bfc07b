// shim/torch/dispatch_check.cpp - see dispatch_check.h.
#include "shim/torch/dispatch_check.h"

#include <mutex>
#include <string>

namespace
{

// The dispatcher's entry of an operator. OperatorHandle shows all of it but the count of registrations; an explicit
// instantiation may name private members.
template <auto Member> struct Entry {
    friend auto entry_of(const c10::OperatorHandle &handle)
    {
        return handle.*Member;
    }
};
auto entry_of(const c10::OperatorHandle &handle);
template struct Entry<&c10::OperatorHandle::operatorDef_>;

// Parts of the source paths that kernels' registrations name. Kernels that compute are in the first; autograd's are in
// the second; kernels in pytorch/csrc/ are not PyTorch's.
constexpr const char *computing = "aten/src/ATen/", *framing = "torch/csrc/";

// The dispatch keys by which a call reaches the processor, or a device whose tensors may share memory. The first key
// computes.
constexpr const char *processors[] = {"CPU", "AutogradCPU", "ADInplaceOrView", "AutocastCPU"};
constexpr const char *cudas[] = {"CUDA", "AutogradCUDA", "ADInplaceOrView", "AutocastCUDA"};
constexpr const char *other_keys[] = {"PrivateUse1", "AutogradPrivateUse1", "ADInplaceOrView", "AutocastPrivateUse1"};
// PyTorch's own kernels for devices that it registers from Python, and those of the tests' device, which has no others.
constexpr const char *native_kernels = "/torch/_native/", *standin = "/tests/fakes/cuda/";

// Operators that call other operators with the weights.
constexpr const char *parts[][2] = {
    {"aten::linear", ""},
    {"aten::addmm", ""},
    {"aten::mm", ""},
    {"aten::matmul", ""},
    {"aten::bmm", ""},
    {"aten::baddbmm", ""},
    {"aten::mv", ""},
    {"aten::addmv", ""},
    {"aten::addmv_", ""},
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

// The line of the dispatch table for a key.
std::string line_of(const std::string &table, const char *key)
{
    std::string start = std::string("\n") + key + ": ";
    size_t at = table.find(start);
    return at == std::string::npos ? "" : table.substr(at + 1, table.find('\n', at + 1) - at - 1);
}

// Generated files may be named relative to the build directory.
bool has_path(const std::string &line, const char *path)
{
    size_t at = line.find(path);
    return at != std::string::npos && at > 0 && (line[at - 1] == '/' || line[at - 1] == ' ');
}

bool is_pytorchs(const std::string &line, bool computes)
{
    return has_path(line, computing) || line.find(swn_kernels_source) != std::string::npos ||
           (!computes && has_path(line, framing));
}

template <size_t N> bool all_pytorchs(const std::string &table, const char *const (&keys)[N], bool processor)
{
    for (const char *key : keys) {
        std::string line = line_of(table, key);
        bool for_devices = line.find(native_kernels) != std::string::npos || line.find(standin) != std::string::npos;
        if (!line.empty() && !is_pytorchs(line, key == keys[0]) && (processor || !for_devices))
            return false;
    }
    return true;
}

// Has its own kernel for the processor, and calls other operators all the same.
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
    size_t now = *count; // read first: a kernel that is registered meanwhile is checked at the next call
    std::string table = "\n" + operator_handle->dumpComputedTable();
    std::string computes = line_of(table, processors[0]);
    // A kernel of ours hides what it replaces. For a device that may call others, but not where the result has a buffer
    // already.
    bool may_call = operator_handle->operator_name().overload_name != "out";
    composite = computes.find("RegisterComposite") != std::string::npos ||
                (may_call && computes.find(swn_kernels_source) != std::string::npos) ||
                calls_others(operator_handle->operator_name().name);
    known = all_pytorchs(table, processors, true);
    known_there = all_pytorchs(table, cudas, false) && all_pytorchs(table, other_keys, false);
    was.store(now, std::memory_order_release);
}

// Never destroyed: other threads may still compute when the process ends.
std::deque<swn_kernels> &swn_kernels::made_of()
{
    static auto *made_of = [] {
        auto *all = new std::deque<swn_kernels>;
        for (auto &name : parts) {
            auto handle = c10::Dispatcher::singleton().findSchema({name[0], name[1]});
            if (handle) // not every version has all of them
                all->emplace_back().look_at(*handle);
        }
        return all;
    }();
    return *made_of;
}

bool swn_kernels::parts_are_pytorchs()
{
    for (swn_kernels &part : made_of())
        if (!part.own_are_pytorchs())
            return false;
    return true;
}

bool swn_kernels::parts_are_pytorchs_there()
{
    if (composite)
        for (swn_kernels &part : made_of())
            if (!part.own_are_pytorchs_there())
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
