// Reports the results of operators to a callback. This file is independent of the engine, so that the same code watches
// runs without it.
#include "shim/torch/result_watch.h"
#include "shim/torch/compat.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "shim/torch/op_rules.h"
#include "shim/torch/catch_all.h"

namespace
{

void (*tell)(const char *op, const swn_result *result);

// How many operators deep the thread is in its outermost operator, that one included; 0: none runs.
unsigned &depth()
{
    static thread_local unsigned records = 0;
    return records;
}

// What result_end needs of an operator whose results count.
struct Watched : at::ObserverContext {
    std::string name;
    bool counted = false;            // in `depth`; the program's own are not, so that their calls are seen
    size_t most = SIZE_MAX;          // later results are not reported
    std::vector<at::Tensor> written; // for an operator that returns nothing
};

// Whether the operator returns uninitialised memory, which differs from run to run.
bool leaves_unset(const std::string &name)
{
    for (const char *start : {"aten::empty", "aten::new_empty", "aten::_empty", "aten::resize"})
        if (name.compare(0, std::strlen(start), start) == 0)
            return true;
    return false;
}

void tell_number(const std::string &op, const void *bytes)
{
    swn_result r = {"scalar", bytes, 8, 0, nullptr, nullptr};
    tell(op.c_str(), &r);
}

void tell_tensor(const std::string &op, const at::Tensor &tensor)
{
    if (!tensor.defined())
        return;
    // A tensor that stands for others has no sizes.
    auto keys = tensor.key_set();
    bool wrapper = keys.has(c10::DispatchKey::Python) || keys.has(c10::DispatchKey::Functionalize) ||
                   keys.has(c10::DispatchKey::FuncTorchBatched) || tensor.is_nested() || tensor.is_sparse() ||
                   !tensor.unsafeGetTensorImpl()->has_storage();
    swn_result r = {"elsewhere", nullptr, 0, 0, nullptr, nullptr};
    if (!wrapper) {
        r = {c10::toString(tensor.scalar_type()),
             nullptr,
             tensor.itemsize(),
             static_cast<size_t>(tensor.dim()),
             tensor.sizes().data(),
             tensor.strides().data()};
        if (tensor.is_meta() || tensor.numel() == 0)
            r.data = "", r.item_bytes = 0; // it has no readable bytes
        else if (tensor.is_cpu())
            r.data = static_cast<const char *>(tensor.storage().data_ptr().get()) +
                     static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize();
    }
    tell(op.c_str(), &r);
}

void tell_value(const std::string &op, const c10::IValue &value)
{
    if (value.isTensor()) {
        tell_tensor(op, value.toTensor());
    } else if (value.isTensorList()) {
        for (const at::Tensor &tensor : value.toTensorVector())
            tell_tensor(op, tensor);
    } else if (value.isDouble()) {
        double number = value.toDouble();
        tell_number(op, &number);
    } else if (value.isInt()) {
        int64_t number = value.toInt();
        tell_number(op, &number);
    } else if (value.isBool()) {
        int64_t number = value.toBool();
        tell_number(op, &number);
    }
}

void keep_written(Watched &w, const c10::FunctionSchema &schema, c10::ArrayRef<const c10::IValue> inputs)
{
    for (size_t i = 0; i < inputs.size() && i < schema.arguments().size(); i++) {
        const auto *alias = schema.arguments()[i].alias_info();
        if (!alias || !alias->isWrite())
            continue;
        if (inputs[i].isTensor())
            w.written.push_back(inputs[i].toTensor());
        else if (inputs[i].isTensorList())
            for (const at::Tensor &tensor : inputs[i].toTensorVector())
                w.written.push_back(tensor);
    }
}

std::unique_ptr<Watched> watched(const at::RecordFunction &fn)
{
    auto name = fn.operator_name();
    auto handle = name ? c10::Dispatcher::singleton().findSchema(*name) : swn_optional<c10::OperatorHandle>();
    if (!handle)
        return nullptr;
    const swn_rule *rule = swn_rule_find(name->name.c_str());
    if ((rule && rule->uses[0] == 'm') || leaves_unset(name->name))
        return nullptr; // a view, uninitialised memory, or a frame around operators that are seen themselves
    auto w = std::make_unique<Watched>();
    w->name = name->name;
    w->counted = name->name.compare(0, 6, "aten::") == 0;
    // Besides the bags it returns tables for the gradient, which stay uninitialised without a gradient.
    if (w->name.find("embedding_bag") != std::string::npos)
        w->most = 1;
    const auto &schema = handle->schema();
    auto inputs = fn.inputs();
    if (schema.returns().empty()) // a boxed call may have values of others below the arguments
        keep_written(*w, schema, inputs.slice(inputs.size() - std::min(inputs.size(), schema.arguments().size())));
    for (const auto &returned : schema.returns())
        if (returned.alias_info() && !returned.alias_info()->isWrite())
            w->most = 0; // a view
    return w;
}

std::unique_ptr<at::ObserverContext> result_start(const at::RecordFunction &fn)
{
    if (depth()) {
        depth()++;
        return nullptr;
    }
    std::unique_ptr<Watched> w;
    try {
        w = watched(fn);
    }
    SWN_CATCH_ALL
    {
        // The tensor refuses inspection, in both runs.
    }
    depth() = w && w->counted;
    return w;
}

void result_end(const at::RecordFunction &fn, at::ObserverContext *context)
{
    auto *w = static_cast<Watched *>(context);
    if (depth() > (w && w->counted)) {
        depth()--;
        return;
    }
    depth() = 0;
    if (!w)
        return;
    try {
        const auto &outputs = fn.outputs();
        for (size_t i = 0; i < outputs.size() && i < w->most; i++)
            tell_value(w->name, outputs[i]);
        for (const at::Tensor &tensor : w->written)
            tell_tensor(w->name, tensor);
    }
    SWN_CATCH_ALL
    {
    }
}

} // namespace

const char *swn_watch_begin(void (*result)(const char *op, const swn_result *result))
{
    tell = result;
    try {
        at::addGlobalCallback(at::RecordFunctionCallback(&result_start, &result_end)
                                  .needsInputs(true)
                                  .needsOutputs(true)
                                  .scopes({at::RecordScope::FUNCTION}));
    }
    SWN_CATCH_ALL
    {
        return "its operator hook was refused";
    }
    return nullptr;
}
