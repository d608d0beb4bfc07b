// shim/serve/served_operators.cpp - a model computes: its operators read and write no files and run no foreign code.
//
// tools/verify/reference.py has the same lists, for the same files in plain PyTorch.
#include "shim/serve/served_operators.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <vector>

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

namespace swn
{
namespace
{

const char *const kNamespaces[] = {"aten",         "prim",   "prims",    "quantized",   "_quantized",
                                   "quantization", "sparse", "profiler", "torchvision", "mkldnn_prepacked",
                                   "prepacked"};
const char *const kTouchFiles[] = {"aten::from_file", "aten::save"};
const char *const kRunOthers[] = {"prim::PythonOp", "prim::IgnoredPythonOp", "prim::rpc_async", "prim::rpc_sync",
                                  "prim::rpc_remote"};
/* Classes in C++ that a model may have objects of. */
const char *const kClasses[] = {"quantized", "sparse", "rnn", "xnnpack", "mkldnn", "profiler"};

template <size_t n> bool is_in(const char *const (&list)[n], const std::string &name)
{
    return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

void check_type(const c10::TypePtr &type)
{
    static const std::string before = "__torch__.torch.classes.";
    if (type->kind() != c10::TypeKind::ClassType)
        return;
    const std::string name = type->expectRef<c10::ClassType>().name()->qualifiedName();
    if (name.compare(0, before.size(), before) == 0 &&
        !is_in(kClasses, name.substr(before.size(), name.find('.', before.size()) - before.size())))
        throw std::runtime_error("the model has an object of the class " + name.substr(0, 200) +
                                 ", which is not served");
}

void check_block(const torch::jit::Block *block)
{
    for (const torch::jit::Node *n : block->nodes()) {
        require_served(std::string(n->kind().toQualString()));
        for (const torch::jit::Value *v : n->outputs())
            check_type(v->type());
        for (const torch::jit::Block *inner : n->blocks())
            check_block(inner);
        if (n->hasAttribute(c10::attr::Subgraph)) // of a fork
            check_block(n->g(c10::attr::Subgraph)->block());
    }
}

} // namespace

void require_served(const std::string &name)
{
    if (is_in(kTouchFiles, name))
        throw std::runtime_error("the model calls the operator " + name +
                                 ", which touches files: such models are not served");
    if (is_in(kRunOthers, name) || !is_in(kNamespaces, name.substr(0, name.find("::"))))
        throw std::runtime_error("the model calls the operator " + name.substr(0, 200) + ", which is not served");
}

void require_served(const torch::jit::CompilationUnit &code)
{
    for (torch::jit::Function *f : code.get_functions())
        if (torch::jit::GraphFunction *function = torch::jit::tryToGraphFunction(*f))
            check_block(function->graph()->block());
}

void take_files_from_torchscript()
{
    for (const char *name : kTouchFiles) {
        const auto known = torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(name)); // a copy
        for (const auto &op : known)
            torch::jit::deregisterOperator(op->schema());
    }
}

void require_known(const std::string &load_error)
{
    for (const char *name : kTouchFiles)
        if (load_error.find("Unknown builtin op: " + std::string(name)) != std::string::npos)
            require_served(std::string(name));
}

} // namespace swn
