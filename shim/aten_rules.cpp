#include "aten_rules.h"

#include <cstring>
#include <string>
#include <unordered_map>

static const swn_rule rules[] = {
    {"aten::conv1d", "iww-"}, {"aten::conv2d", "iww-"}, {"aten::conv3d", "iww-"},
    {"aten::conv_transpose1d", "iww-"}, {"aten::conv_transpose2d", "iww-"}, {"aten::conv_transpose3d", "iww-"},
    {"aten::convolution", "iww-"}, {"aten::_convolution", "iww-"}, {"aten::convolution_backward", "iiw-"},
    {"aten::mkldnn_convolution", "iww-"}, {"aten::thnn_conv2d", "iw-w-"}, {"aten::_conv_depthwise2d", "iw-w-"},
    {"aten::linear", "iww"}, {"aten::mkldnn_linear", "iww"}, {"aten::_mkldnn_linear_pointwise", "iww-"},
    {"aten::addmm", "www-"}, {"aten::mm", "ww"}, {"aten::bmm", "ww"}, {"aten::matmul", "ww"}, {"aten::baddbmm", "www-"},
    {"aten::addbmm", "www-"}, {"aten::mv", "ww"}, {"aten::addmv", "www-"}, {"aten::bilinear", "iiww"},
    {"aten::layer_norm", "i-ww-"}, {"aten::native_layer_norm", "i-ww-"}, {"aten::group_norm", "i-ww-"},
    {"aten::native_group_norm", "iww-"}, {"aten::rms_norm", "i-w-"}, {"aten::prelu", "iw"},
    {"aten::lstm", "iiw-"}, {"aten::gru", "iiw-"}, {"aten::rnn_tanh", "iiw-"}, {"aten::rnn_relu", "iiw-"},
    {"aten::lstm_cell", "iiw"}, {"aten::gru_cell", "iiw"}, {"aten::rnn_tanh_cell", "iiw"}, {"aten::rnn_relu_cell", "iiw"},
    {"aten::_native_multi_head_attention", "iii--wwww-"}, {"aten::_transformer_encoder_layer_fwd", "i--wwww---wwwwwwww-"},
    {"aten::add", "ww-"}, {"aten::sub", "ww-"}, {"aten::mul", "ww-"}, {"aten::div", "ww-"},
    {"aten::add_", "-w-"}, {"aten::sub_", "-w-"}, {"aten::mul_", "-w-"}, {"aten::div_", "-w-"},
    {"aten::cat", "w-"}, {"aten::stack", "w-"}, {"aten::copy_", "-i-"}, {"aten::clone", "i-"}, {"aten::_to_copy", "i-"},
    {"aten::to", "i-"}, {"aten::equal", "ii"}, {"aten::allclose", "ii-"}, {"aten::sum", "i-"}, {"aten::mean", "i-"},
    {"aten::norm", "i-"}, {"aten::abs", "i"}, {"aten::isnan", "i"},

    {"aten::t", "m"}, {"aten::transpose", "m"}, {"aten::permute", "m"}, {"aten::view", "m"}, {"aten::_unsafe_view", "m"},
    {"aten::_reshape_alias", "m"}, {"aten::view_as", "m"}, {"aten::as_strided", "m"}, {"aten::expand", "m"},
    {"aten::expand_as", "m"}, {"aten::detach", "m"}, {"aten::alias", "m"}, {"aten::select", "m"}, {"aten::slice", "m"},
    {"aten::narrow", "m"}, {"aten::squeeze", "m"}, {"aten::unsqueeze", "m"}, {"aten::split", "m"},
    {"aten::split_with_sizes", "m"}, {"aten::chunk", "m"}, {"aten::unbind", "m"}, {"aten::unflatten", "m"},
    {"aten::diagonal", "m"}, {"aten::movedim", "m"}, {"aten::swapaxes", "m"}, {"aten::numpy_T", "m"}, {"aten::mT", "m"},
    {"aten::view_as_real", "m"}, {"aten::view_as_complex", "m"}, {"aten::requires_grad_", "m"}, {"aten::retain_grad", "m"},
    {"aten::detach_", "m"}, {"aten::t_", "m"}, {"aten::transpose_", "m"}, {"aten::squeeze_", "m"}, {"aten::unsqueeze_", "m"},
    {"aten::as_strided_", "m"}, {"aten::empty_like", "m"}, {"aten::zeros_like", "m"}, {"aten::ones_like", "m"},
    {"aten::full_like", "m"}, {"aten::rand_like", "m"}, {"aten::randn_like", "m"}, {"aten::new_empty", "m"},
    {"aten::new_zeros", "m"}, {"aten::new_ones", "m"}, {"aten::new_full", "m"}, {"aten::set_", "m"}, {"aten::set_data", "m"},
    {"aten::data", "m"}, {"aten::result_type", "m"}, {"aten::is_floating_point", "m"}, {"aten::is_same_size", "m"},
    {"aten::empty", "m"}, {"aten::empty_strided", "m"}, {"aten::zeros", "m"}, {"aten::ones", "m"}, {"aten::full", "m"},
    {"aten::rand", "m"}, {"aten::randn", "m"}, {"aten::lift_fresh", "m"}, {"aten::dropout", "m"},
};

const swn_rule *swn_rule_find(const char *name)
{
    static const auto *table = [] {
        auto *all = new std::unordered_map<std::string, const swn_rule *>;
        for (const swn_rule &rule : rules)
            (*all)[rule.name] = &rule;
        return all;
    }();
    auto found = table->find(name);
    return found == table->end() ? nullptr : found->second;
}
