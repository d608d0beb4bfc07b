// shim/serve/torchscript.cpp - a TorchScript file becomes a tape.
//
// The graph of forward() is inlined and walked once. What depends on attributes and constants alone is computed on the
// way, so that branches such as a batch norm's `if self.training` are decided here, and only the branch taken is
// walked. No tensor's data is looked at: that would read weights. What a flat list cannot say (loops, branches that
// depend on the request, calls that cannot be inlined) becomes one opaque step, which PyTorch's interpreter runs as a
// whole.
#include "shim/serve/kept_values.h"
#include "shim/serve/program_builder.h"
#include "shim/serve/served_operators.h"
#include "shim/serve/silent_operators.h"
#include "shim/serve/wire_tensors.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/autocast.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/lower_tuples.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/csrc/jit/serialization/import.h>

namespace swn
{
namespace
{

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

swn_tape_kind kind_of(const c10::TypePtr &type)
{
    if (type->kind() == c10::TypeKind::TensorType)
        return SWN_TAPE_TENSOR;
    return is_scalar_type(type) ? SWN_TAPE_SCALAR : SWN_TAPE_OTHER;
}

/* Whether a node and the blocks in it do nothing but compute or fail. */
bool only_computes(const Node *n)
{
    if (n->hasSideEffects() && n->kind() != prim::RaiseException)
        return false;
    for (const Block *block : n->blocks())
        for (const Node *inner : block->nodes())
            if (!only_computes(inner))
                return false;
    return true;
}

/* Whether no reader can change the list that the node makes, so that all requests may share one. */
bool list_is_only_read(const Node *n)
{
    for (const auto &use : n->output()->uses()) {
        if (use.user->kind() == prim::ListUnpack)
            continue;
        if (use.user->kind() == prim::unchecked_cast) { // the same list, by another name
            if (!list_is_only_read(use.user))
                return false;
            continue;
        }
        const torch::jit::Operator *op = use.user->maybeOperator();
        if (!op || !tells_aliases(*op) || op->schema().is_vararg() || use.offset >= op->schema().arguments().size() ||
            op->schema().arguments()[use.offset].alias_info())
            return false;
    }
    return true;
}

/* Whether calling the node's operator on a stack is all there is to it. The interpreter itself waits for futures, and
 * tells operators with any number of arguments how many there are. */
bool is_plain_operator(const Node *n)
{
    const torch::jit::Operator *op = n->maybeOperator();
    return op && n->kind() != c10::aten::wait && !op->schema().is_vararg();
}

/* The arguments that the schema says are written to. */
std::vector<size_t> written_by(const c10::FunctionSchema &schema)
{
    std::vector<size_t> written;
    for (size_t i = 0; i < schema.arguments().size(); i++) {
        const auto *alias = schema.arguments()[i].alias_info();
        if (alias && alias->isWrite())
            written.push_back(i);
    }
    return written;
}

/* An error names the functions that nodes were inlined from, which are the compilation unit's: it must live as long. */
struct OwnedCode {
    std::shared_ptr<torch::jit::CompilationUnit> unit;
    torch::jit::Code code;
};

class Builder : ProgramBuilder
{
  public:
    explicit Builder(const torch::jit::Module &module);
    std::unique_ptr<Program> build(bool as_a_whole);

  private:
    Ref ref(const Value *v);
    const c10::IValue *known(const Value *v);
    void know(const Value *v, c10::IValue what);
    void walk(Block *block);
    void walk_node(Node *n);
    bool decide(Node *n);
    bool fold(Node *n);
    void emit(Node *n);
    void emit_opaque(Node *n);
    std::shared_ptr<torch::jit::Code> code_of(const std::shared_ptr<Graph> &graph, const std::string &name) const;
    void inline_calls();
    bool inline_forks();
    void append_node(Step step, const std::vector<Ref> &in, const Node *n);
    void emit_whole();
    void add_inputs();
    void describe_inputs();
    bool describe_by(Input &input, const Node *user);
    const at::Tensor *known_tensor(const Node *n, size_t argument);

    torch::jit::Module module_;
    torch::jit::Method forward_;
    std::shared_ptr<Graph> graph_;
    std::unordered_map<const Value *, Ref> refs_;
    KeptValues kept_;
};

/* Appends the forks of a block at any depth. */
void find_forks(Block *block, std::vector<Node *> &forks)
{
    for (Node *n : block->nodes()) {
        if (n->kind() == prim::fork)
            forks.push_back(n);
        for (Block *inner : n->blocks())
            find_forks(inner, forks);
    }
}

Builder::Builder(const torch::jit::Module &module)
    : module_(module), forward_(module_.get_method("forward")), kept_([this](const Value *v) { return known(v); })
{
    graph_ = forward_.graph()->copy();
    inline_calls();
    torch::jit::Autocast(graph_); // as PyTorch does before it runs a graph
    torch::jit::LowerSimpleTuples(graph_);
    torch::jit::EliminateDeadCode(graph_);
}

/* Each fork's graph takes its place, and its result that of waiting for it. False: there is none, or there is one whose
 * future is used for something else. Such a model runs as a whole, with its forks. */
bool Builder::inline_forks()
{
    std::vector<Node *> forks;
    find_forks(graph_->block(), forks);
    for (const Node *fork : forks)
        for (const auto &use : fork->output()->uses())
            if (use.user->kind() != c10::aten::wait)
                return false;
    for (Node *fork : forks) {
        torch::jit::WithInsertPoint at(fork);
        Value *result = torch::jit::insertGraph(*graph_, *fork->g(c10::attr::Subgraph), fork->inputs()).at(0);
        const auto uses = fork->output()->uses(); // a copy
        for (const auto &use : uses) {
            use.user->output()->replaceAllUsesWith(result);
            use.user->destroy();
        }
        fork->destroy();
    }
    return !forks.empty();
}

/* The graph of a fork has calls and forks of its own. */
void Builder::inline_calls()
{
    do
        torch::jit::Inline(*graph_);
    while (inline_forks());
}

Ref Builder::ref(const Value *v)
{
    auto found = refs_.find(v);
    if (found == refs_.end())
        throw std::runtime_error("a value of the graph is used before it is made: %" + v->debugName());
    return found->second;
}

const c10::IValue *Builder::known(const Value *v)
{
    auto found = refs_.find(v);
    return found != refs_.end() && found->second < 0 ? &program_->constants[static_cast<size_t>(~found->second)]
                                                     : nullptr;
}

void Builder::know(const Value *v, c10::IValue what)
{
    refs_[v] = constant(std::move(what));
}

void Builder::append_node(Step step, const std::vector<Ref> &in, const Node *n)
{
    for (const Value *o : n->outputs()) {
        step.out.push_back(value(kind_of(o->type())));
        refs_[o] = static_cast<Ref>(step.out.back());
    }
    append(std::move(step), in);
}

/* The branch of an `if` whose condition is known takes its place. */
bool Builder::decide(Node *n)
{
    const c10::IValue *condition = known(n->input(0));
    if (!condition || !condition->isBool())
        return false;
    Block *taken = n->blocks()[condition->toBool() ? 0 : 1];
    walk(taken);
    for (size_t i = 0; i < n->outputs().size(); i++) {
        refs_[n->outputs()[i]] = ref(taken->outputs()[i]);
        kept_.is_like(n->outputs()[i], taken->outputs()[i]);
    }
    return true;
}

/* Computes what depends on constants alone, if its result cannot change and no tensor is looked into. A string could be
 * of any length. */
bool Builder::fold(Node *n)
{
    if (!n->blocks().empty() || n->outputs().size() != 1 || n->hasSideEffects() || n->isNondeterministic() ||
        n->output()->type()->kind() == c10::TypeKind::StringType)
        return false;
    const torch::jit::Operator *op = n->maybeOperator();
    if (!op || op->schema().is_mutable() || op->schema().is_vararg())
        return false;
    bool compares = n->kind() == c10::aten::__is__ || n->kind() == c10::aten::__isnot__ || n->kind() == c10::aten::dim;
    torch::jit::Stack stack;
    for (const Value *v : n->inputs()) {
        const c10::IValue *what = known(v);
        if (!what || (!is_fixed(*what) && !(compares && what->isTensor())))
            return false;
        stack.push_back(*what);
    }
    try {
        n->getOperation()(stack);
    } catch (const std::exception &) {
        return false; // the step fails when it runs, as it does in the program
    }
    if (stack.size() != 1 || !is_fixed(stack[0]))
        return false;
    know(n->output(), stack[0]);
    return true;
}

void Builder::walk(Block *block)
{
    for (Node *n : block->nodes()) {
        walk_node(n);
        kept_.note(n);
    }
}

void Builder::walk_node(Node *n)
{
    if (n->kind() == prim::Constant) {
        auto v = torch::jit::toIValue(n->output());
        if (!v)
            throw std::runtime_error("a constant of the graph has no value");
        know(n->output(), *v);
        return;
    }
    if (n->kind() == prim::GetAttr) {
        const c10::IValue *object = known(n->input());
        if (object && object->isObject()) {
            know(n->output(), object->toObject()->getAttr(n->s(c10::attr::name)));
            return;
        }
    }
    if (n->kind() == prim::unchecked_cast) {
        refs_[n->output()] = ref(n->input());
        return;
    }
    if (n->kind() == c10::aten::warn)
        return; // it would say the same at every request
    if (n->kind() == prim::If && decide(n))
        return;
    if (!fold(n))
        emit(n);
}

void Builder::emit(Node *n)
{
    Step step;
    kept_.refuse_changes(n);
    step.name = n->kind().toQualString();
    if (!n->blocks().empty())
        return emit_opaque(n);
    std::vector<Ref> in;
    for (const Value *v : n->inputs())
        in.push_back(ref(v));
    if (n->kind() == prim::ListConstruct) {
        step.kind = Step::kList;
        step.type = n->output()->type()->expectRef<c10::ListType>().getElementType();
        bool fixed = list_is_only_read(n);
        c10::impl::GenericList list(step.type);
        for (const Value *v : n->inputs()) {
            const c10::IValue *what = fixed ? known(v) : nullptr;
            fixed = what && is_fixed(*what);
            if (fixed)
                list.push_back(*what);
        }
        if (fixed)
            return know(n->output(), list);
    } else if (n->kind() == prim::TupleConstruct) {
        step.kind = Step::kTuple;
        step.type = n->output()->type();
    } else if (n->kind() == prim::ListUnpack || n->kind() == prim::TupleUnpack) {
        step.kind = Step::kUnpack;
    } else if (is_plain_operator(n)) {
        step.op = n->getOperation();
        step.is_told = tells_aliases(n->getOperator());
        step.writes = n->getOperator().schema().is_mutable() || silent_writes(step.name);
        step.written = written_by(n->getOperator().schema());
    } else {
        return emit_opaque(n);
    }
    append_node(std::move(step), in, n);
}

std::shared_ptr<torch::jit::Code> Builder::code_of(const std::shared_ptr<Graph> &graph, const std::string &name) const
{
    auto owned =
        std::make_shared<OwnedCode>(OwnedCode{module_.type()->compilation_unit(), torch::jit::Code(graph, name)});
    return std::shared_ptr<torch::jit::Code>(owned, &owned->code);
}

void Builder::emit_opaque(Node *n)
{
    std::unordered_set<const Value *> inside;
    std::vector<Value *> outside;
    program_->has_state = program_->has_state || calls_out(n);
    read_from_outside(n, inside, outside);

    auto part = std::make_shared<Graph>();
    std::unordered_map<const Value *, Value *> copies;
    std::vector<Ref> in;
    for (Value *v : outside) {
        Value *input = part->addInput();
        input->setType(v->type());
        copies[v] = input;
        in.push_back(ref(v));
    }
    Node *copy = part->createClone(n, [&](Value *v) { return copies.at(v); });
    part->appendNode(copy);
    for (Value *o : copy->outputs())
        part->registerOutput(o);
    Step step;
    step.kind = Step::kOpaque;
    step.name = n->kind().toQualString();
    step.code = code_of(part, step.name);
    // Of numbers alone, such as a check of sizes.
    step.is_told =
        !may_write(n) && !calls_out(n) && only_computes(n) &&
        std::all_of(outside.begin(), outside.end(), [](const Value *v) { return is_scalar_type(v->type()); });
    append_node(std::move(step), in, n);
}

/* A forward() that changes attributes of its module has a state; it runs as one step. */
void Builder::emit_whole()
{
    std::vector<Ref> in;
    Step step;
    program_->has_state = true;
    for (const Value *v : graph_->inputs())
        in.push_back(ref(v));
    step.kind = Step::kOpaque;
    step.name = "forward";
    step.code = code_of(graph_, step.name);
    step.out.push_back(value(kind_of(graph_->outputs()[0]->type())));
    refs_[graph_->outputs()[0]] = static_cast<Ref>(step.out[0]);
    append(std::move(step), in);
}

void Builder::add_inputs()
{
    const auto &schema = forward_.function().getSchema();
    const auto &arguments = schema.arguments();
    if (arguments.size() != graph_->inputs().size() || arguments.empty())
        throw std::runtime_error("forward() has another number of arguments than its graph");
    know(graph_->inputs()[0], module_._ivalue());
    for (size_t i = 1; i < arguments.size(); i++) {
        Input input;
        input.name = arguments[i].name();
        input.type = arguments[i].type();
        if (arguments[i].default_value()) {
            input.optional = true;
            input.standard = *arguments[i].default_value();
        }
        input.value = value(kind_of(graph_->inputs()[i]->type()));
        refs_[graph_->inputs()[i]] = static_cast<Ref>(input.value);
        program_->inputs.push_back(std::move(input));
    }
    if (program_->inputs.size() + 1 > SWN_WIRE_TENSORS)
        throw std::runtime_error("forward() has " + std::to_string(program_->inputs.size()) + " arguments, at most " +
                                 std::to_string(SWN_WIRE_TENSORS - 1) + " can be served");
}

const at::Tensor *Builder::known_tensor(const Node *n, size_t argument)
{
    const c10::IValue *v = argument < n->inputs().size() ? known(n->inputs()[argument]) : nullptr;
    return v && v->isTensor() && v->toTensor().defined() ? &v->toTensor() : nullptr;
}

/* An operator's weight says what the operator's input looks like. */
bool Builder::describe_by(Input &input, const Node *user)
{
    static const auto conv = c10::Symbol::fromQualString("aten::_convolution");
    const std::string name = user->kind().toQualString();
    const at::Tensor *weight = known_tensor(user, 1);
    swn_wire_tensor &t = input.described;
    if (!weight || weight->dim() < 2 || weight->dim() > SWN_WIRE_RANK)
        return false;
    bool is_conv = user->kind() == conv || name.rfind("aten::conv", 0) == 0;
    if (is_conv && user->inputs()[0] == graph_->inputs()[static_cast<size_t>(&input - program_->inputs.data()) + 1]) {
        const c10::IValue *groups = known(user->inputs()[user->kind() == conv ? 8 : user->inputs().size() - 1]);
        if (!groups || !groups->isInt())
            return false;
        // Traced, a transposed convolution is the same operator.
        static const c10::IValue no(false);
        const c10::IValue *transposed = user->kind() == conv ? known(user->inputs()[6]) : &no;
        if (!transposed || !transposed->isBool() || name.rfind("aten::conv_tr", 0) == 0)
            return false;
        int64_t channels = weight->size(0);
        if (groups->toInt() < 1 ||
            (!transposed->toBool() && __builtin_mul_overflow(weight->size(1), groups->toInt(), &channels)))
            return false;
        t.rank = static_cast<uint32_t>(weight->dim());
        std::fill(t.shape, t.shape + t.rank, -1);
        t.shape[1] = channels;
        t.element = element_of(weight->scalar_type());
        return true;
    }
    if (name == "aten::linear") { // of any rank
        t.element = element_of(weight->scalar_type());
        return true;
    }
    return false;
}

void Builder::describe_inputs()
{
    for (size_t i = 0; i < program_->inputs.size(); i++) {
        Input &input = program_->inputs[i];
        snprintf(input.described.name, sizeof input.described.name, "%s", input.name.c_str());
        for (const auto &use : graph_->inputs()[i + 1]->uses())
            if (describe_by(input, use.user))
                break;
    }
}

std::unique_ptr<Program> Builder::build(bool as_a_whole)
{
    if (graph_->outputs().size() != 1)
        throw std::runtime_error("the graph of forward() has no single result");
    add_inputs();
    if (as_a_whole)
        emit_whole();
    else
        walk(graph_->block());
    program_->storages = std::make_shared<Storages>();
    program_->result = ref(graph_->outputs()[0]);
    program_->result_type = graph_->outputs()[0]->type();
    describe_inputs();
    finish();
    for (const auto &t : module_.parameters(true))
        count_weight(t);
    for (const auto &t : module_.buffers(true))
        count_weight(t);
    return std::move(program_);
}

/* Its code is looked at before anything of it is computed, but for what loading itself runs. */
torch::jit::Module load_module(const std::string &path)
{
    static const bool taken = (take_files_from_torchscript(), true);
    (void)taken;
    try {
        torch::jit::Module module = torch::jit::load(path, at::kCPU);
        require_served(*module.type()->compilation_unit());
        return module;
    } catch (const std::exception &e) {
        require_known(e.what());
        throw;
    }
}

} // namespace

std::unique_ptr<Program> program_from_torchscript(const std::string &path)
{
    torch::jit::Module module = load_module(path);
    module.eval();
    if (!module.type()->getForwardHooks().empty() || !module.type()->getForwardPreHooks().empty())
        throw std::runtime_error(
            "the model has hooks on its outermost module, which cannot be served: have forward() call them");
    try {
        return Builder(module).build(false);
    } catch (const HasState &) {
        return Builder(module).build(true);
    }
}

} // namespace swn
