// shim/serve/kept_values.cpp - see kept_values.h.
#include "shim/serve/kept_values.h"

#include <algorithm>
#include <iterator>
#include <string>

#include <torch/csrc/jit/ir/constants.h>

#include "shim/serve/silent_operators.h"

namespace swn
{

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

bool is_fixed(const c10::IValue &v)
{
    return v.isNone() || v.isBool() || v.isInt() || v.isDouble() || v.isString() || v.isDevice();
}

bool is_scalar_type(const c10::TypePtr &type)
{
    switch (type->kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::NoneType:
    case c10::TypeKind::DeviceObjType:
        return true;
    case c10::TypeKind::ListType:
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::TupleType:
        for (const auto &inner : type->containedTypes())
            if (!is_scalar_type(inner))
                return false;
        return true;
    default:
        return false;
    }
}

bool tells_aliases(const torch::jit::Operator &op)
{
    return op.aliasAnalysisKind() == c10::AliasAnalysisKind::FROM_SCHEMA ||
           op.aliasAnalysisKind() == c10::AliasAnalysisKind::PURE_FUNCTION;
}

namespace
{

/* Whether the node, or one in its blocks at any depth, is of this kind. */
template <class Function> bool any_node(const Node *n, Function &&is_it)
{
    if (is_it(n))
        return true;
    for (const Block *block : n->blocks())
        for (const Node *inner : block->nodes())
            if (any_node(inner, is_it))
                return true;
    return false;
}

/* Calls that cannot be inlined: the graph does not show what they write to. */
bool is_call(const Node *n)
{
    return n->kind() == prim::CallMethod || n->kind() == prim::CallFunction || n->kind() == prim::PythonOp;
}

/* Changes that no argument shows: of the thread's settings, of the random numbers that follow. prim::Exit undoes what
 * prim::Enter of the same run has done; what a fork does another thread does at any time. */
bool changes_settings(const Node *n)
{
    static const c10::Symbol kinds[] = {
        prim::Enter,
        prim::Exit,
        prim::fork,
        c10::Symbol::fromQualString("prim::awaitable"),
        c10::Symbol::fromQualString("aten::manual_seed"),
        c10::Symbol::fromQualString("aten::seed"),
        c10::Symbol::fromQualString("aten::set_grad_enabled"),
    };
    return std::find(std::begin(kinds), std::end(kinds), n->kind()) != std::end(kinds);
}

/* The first argument becomes another name of the second one's memory. */
bool rebinds(const Node *n)
{
    static const auto set = c10::Symbol::fromQualString("aten::set_"),
                      set_data = c10::Symbol::fromQualString("aten::set_data");
    return n->kind() == set || n->kind() == set_data;
}

/* Whether values of the type are what they are, for good. A list of numbers is no such value. */
bool is_immutable_type(const c10::TypePtr &type)
{
    if (type->kind() == c10::TypeKind::ListType)
        return false;
    if (type->kind() != c10::TypeKind::OptionalType && type->kind() != c10::TypeKind::TupleType)
        return is_scalar_type(type);
    return std::all_of(type->containedTypes().begin(), type->containedTypes().end(), is_immutable_type);
}

/* Whether the node is a constant that is or may have in it a tensor. */
bool is_kept_constant(const Node *n)
{
    if (n->kind() != prim::Constant)
        return false;
    auto v = torch::jit::toIValue(n->output());
    return v && !is_fixed(*v) && !v->isIntList() && !v->isDoubleList() && !v->isBoolList();
}

} // namespace

bool may_write(const Node *n)
{
    return any_node(n, [](const Node *one) {
        const torch::jit::Operator *op = one->maybeOperator();
        return one->kind() == prim::SetAttr || is_call(one) || (op && op->schema().is_mutable());
    });
}

bool calls_out(const Node *n)
{
    return any_node(n, is_call);
}

void read_from_outside(const Node *n, std::unordered_set<const Value *> &inside, std::vector<Value *> &outside)
{
    auto add = [&](Value *v) {
        if (inside.insert(v).second)
            outside.push_back(v);
    };
    for (Value *v : const_cast<Node *>(n)->inputs())
        add(v);
    for (const Block *block : n->blocks()) {
        for (const Value *v : block->inputs())
            inside.insert(v);
        for (const Node *inner : block->nodes()) {
            read_from_outside(inner, inside, outside);
            for (const Value *v : inner->outputs())
                inside.insert(v);
        }
        for (Value *v : const_cast<Block *>(block)->outputs())
            add(v);
    }
}

KeptValues::KeptValues(Known known) : known_(std::move(known))
{
}

void KeptValues::note(Node *n)
{
    if (n->kind() == prim::If) // what its blocks make may be its result
        for (Block *block : n->blocks())
            for (Node *inner : block->nodes())
                note(inner);
    for (const Value *v : n->outputs())
        is_kept(v);
}

void KeptValues::is_like(const Value *v, const Value *other)
{
    kept_[v] = is_kept(other);
}

/* Whether v is, looks into, or has in it what belongs to the model and not to the request. */
bool KeptValues::is_kept(const Value *v)
{
    auto found = kept_.find(v);
    if (found == kept_.end())
        found = kept_.emplace(v, look(v)).first;
    return found->second;
}

template <class Function> bool KeptValues::any_input(const Node *n, Function &&counts)
{
    for (size_t i = 0; i < n->inputs().size(); i++)
        if (counts(i) && is_kept(n->inputs()[i]))
            return true;
    return false;
}

bool KeptValues::any_outside(const Node *n)
{
    std::unordered_set<const Value *> inside;
    std::vector<Value *> outside;
    read_from_outside(n, inside, outside);
    return std::any_of(outside.begin(), outside.end(), [&](const Value *o) { return is_kept(o); });
}

bool KeptValues::look(const Value *v)
{
    if (const c10::IValue *what = known_(v))
        return !is_fixed(*what);
    const Node *n = v->node();
    if (n->kind() == prim::Param || is_immutable_type(v->type()))
        return false; // inputs are copies of the request's own
    if (is_kept_constant(n))
        return true;
    if (n->kind() == prim::If)
        return is_kept(n->blocks()[0]->outputs()[v->offset()]) || is_kept(n->blocks()[1]->outputs()[v->offset()]);
    if (!n->blocks().empty()) // what its blocks read is none of its inputs
        return any_outside(n) || any_node(n, is_kept_constant);
    return look_at_result(v);
}

/* Of an operator. */
bool KeptValues::look_at_result(const Value *v)
{
    const Node *n = v->node();
    const torch::jit::Operator *op = n->maybeOperator();
    auto all = [](size_t) { return true; };
    if (!op || op->schema().is_vararg() || !tells_aliases(*op) || v->offset() >= op->schema().returns().size())
        return any_input(n, all);
    const auto *alias = op->schema().returns()[v->offset()].alias_info();
    if (!alias && v->type()->kind() == c10::TypeKind::TensorType)
        return returns_silently(n->kind().toQualString()) && any_input(n, all);
    if (!alias) // a copy of a list has the list's own tensors
        return !is_scalar_type(v->type()) && any_input(n, all);
    if (alias->isWildcardBefore() || alias->isWildcardAfter() || !alias->containedTypes().empty())
        return any_input(n, all); // what is taken from a list or dictionary
    const auto &arguments = op->schema().arguments();
    return any_input(n, [&](size_t i) { return i < arguments.size() && arguments[i].alias_info(); });
}

/* Whether an operator writes to what is kept and its schema does not say so. Inside a block it is not known what is. */
bool KeptValues::writes_silently(const Node *n, bool is_inside)
{
    const SilentWrites *w = silent_writes(n->kind().toQualString());
    if (w && w->trains != SilentWrites::kNone && w->trains < n->inputs().size()) {
        const c10::IValue *first = known_(n->inputs()[w->first]), *trains = known_(n->inputs()[w->trains]);
        return !(first && first->isNone()) && !(trains && trains->isBool() && !trains->toBool());
    }
    if (w && (is_inside || any_input(n, [&](size_t i) { return i >= w->first && i <= w->last; })))
        return true;
    for (const Block *block : n->blocks())
        for (const Node *inner : block->nodes())
            if (writes_silently(inner, true))
                return true;
    return false;
}

void KeptValues::refuse_changes(Node *n)
{
    const torch::jit::Operator *op = n->maybeOperator();
    if (any_node(n, changes_settings) || writes_silently(n, false))
        throw HasState();
    if (!may_write(n))
        return;
    if (!op || !n->blocks().empty() || !tells_aliases(*op) || op->schema().is_vararg()) {
        if (any_outside(n))
            throw HasState();
        return;
    }
    const auto &arguments = op->schema().arguments();
    bool keeps = rebinds(n); // what it is given, by another name or in a list of the request's
    for (size_t i = 0; i < n->inputs().size() && i < arguments.size(); i++) {
        const auto *alias = arguments[i].alias_info();
        if (!alias || !alias->isWrite())
            continue;
        if (is_kept(n->inputs()[i]))
            throw HasState();
        keeps = keeps || arguments[i].type()->kind() != c10::TypeKind::TensorType;
    }
    if (keeps && any_input(n, [](size_t) { return true; }))
        throw HasState();
}

} // namespace swn
