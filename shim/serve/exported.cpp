// shim/serve/exported.cpp - a file of torch.export becomes a tape.
//
// The file is a list of calls of operators with named arguments, so there is nothing to inline and no branch to decide.
// Each node becomes one step, which puts the arguments in the order of the operator's schema and calls it through
// PyTorch's dispatcher. Nothing is unpickled, and no operator outside the namespaces aten and prims is called.
#include "shim/serve/tape_program.h"

#include <stdexcept>

#include "shim/serve/error_text.h"
#include "shim/torch/compat.h"

#if SWN_HAS_EXPORT

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include <sys/stat.h>

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <caffe2/serialize/inline_container.h>

#include "shim/serve/program_builder.h"
#include "shim/serve/served_operators.h"
#include "shim/serve/shared_weights.h"
#include "shim/serve/silent_operators.h"
#include "shim/serve/symbolic_numbers.h"
#include "shim/serve/wire_tensors.h"

extern "C" {
#include "skeleton/tape/exported.h"
}

namespace swn
{
namespace
{

using caffe2::serialize::PyTorchStreamReader;
using torch::jit::Stack;

struct ExportedFree {
    void operator()(swn_exported *e) const
    {
        swn_exported_free(e);
    }
};

at::ScalarType type_of(int64_t dtype)
{
    static const at::ScalarType types[] = {
        at::kByte,   at::kChar,        at::kShort,        at::kInt,           at::kLong, at::kHalf,     at::kFloat,
        at::kDouble, at::kComplexHalf, at::kComplexFloat, at::kComplexDouble, at::kBool, at::kBFloat16,
    };
    if (dtype >= 1 && dtype <= 13)
        return types[dtype - 1];
    if (dtype == 28)
        return at::kUInt16;
    if (dtype == 34)
        return at::kUInt32;
    if (dtype == 35)
        return at::kUInt64;
    throw std::runtime_error("element type " + std::to_string(dtype) + " of torch.export cannot be served");
}

int64_t memory_format_of(int64_t format)
{
    static const at::MemoryFormat formats[] = {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast,
                                               at::MemoryFormat::ChannelsLast3d, at::MemoryFormat::Preserve};
    if (format < 1 || format > 4)
        throw std::runtime_error("memory format " + std::to_string(format) + " of torch.export is not known");
    return static_cast<int64_t>(formats[format - 1]);
}

/* An argument of an operator: known, the next of the step's values, or a list of such. */
struct Slot {
    enum { kKnown, kNext, kList } kind = kKnown;
    c10::IValue known;
    c10::TypePtr type; /* of the argument; of a list's elements */
    std::vector<Slot> items;
};

/* A number in place of a tensor is one that does not decide the result's element type, as in Python. */
c10::IValue as_type(c10::IValue v, const c10::TypePtr &type)
{
    c10::TypePtr wanted = type;
    if (auto optional = type->cast<c10::OptionalType>()) {
        if (v.isNone())
            return v;
        wanted = optional->getElementType();
    }
    if (wanted->kind() == c10::TypeKind::TensorType && (v.isInt() || v.isDouble() || v.isBool())) {
        at::Tensor t = at::scalar_to_tensor(v.toScalar());
        t.unsafeGetTensorImpl()->set_wrapped_number(true);
        return t;
    }
    if (wanted->kind() == c10::TypeKind::FloatType && v.isInt())
        return static_cast<double>(v.toInt());
    if (wanted->kind() == c10::TypeKind::IntType && v.isBool())
        return static_cast<int64_t>(v.toBool());
    return v;
}

c10::IValue filled(const Slot &slot, Stack &values, size_t &next)
{
    switch (slot.kind) {
    case Slot::kNext:
        return as_type(std::move(values[next++]), slot.type);
    case Slot::kList: {
        c10::impl::GenericList list(slot.type);
        list.reserve(slot.items.size());
        for (const Slot &item : slot.items)
            list.push_back(filled(item, values, next));
        return list;
    }
    default:
        return slot.known;
    }
}

/* An operator with its arguments. What it writes to must be no weight: requests share those. */
struct Call {
    c10::OperatorHandle op;
    std::vector<Slot> slots;
    std::vector<size_t> written;
    std::vector<int64_t> results; /* per result: the elements of a list, -1: itself, -2: nobody wants it */
    std::shared_ptr<const Storages> weights;

    void operator()(Stack &stack) const
    {
        Stack arguments;
        size_t next = 0;
        arguments.reserve(slots.size());
        for (const Slot &slot : slots)
            arguments.push_back(filled(slot, stack, next));
        stack.clear();
        for (size_t i : written)
            require_no_weight(arguments[i], *weights);
        op.callBoxed(arguments);
        if (arguments.size() > results.size())
            throw std::runtime_error("an operator has more results than the file says");
        for (size_t i = 0; i < arguments.size(); i++) {
            if (results[i] == -1) {
                stack.push_back(std::move(arguments[i]));
            } else if (results[i] >= 0) {
                if (!arguments[i].isList() || static_cast<int64_t>(arguments[i].toListRef().size()) != results[i])
                    throw std::runtime_error("a list has another length than the file says");
                for (const auto &v : arguments[i].toListRef())
                    stack.push_back(v);
            }
        }
    }
};

/* Of an operator that does so when it is told to train. */
bool updates_statistics(const Call &call)
{
    const SilentWrites *w = silent_writes(call.op.schema().name());
    if (!w || w->trains >= call.slots.size())
        return false;
    const Slot &first = call.slots[w->first], &trains = call.slots[w->trains];
    bool has_none = first.kind == Slot::kKnown && first.known.isNone();
    return !has_none && !(trains.kind == Slot::kKnown && trains.known.isBool() && !trains.known.toBool());
}

bool writes_to(const c10::FunctionSchema &schema, size_t argument)
{
    const auto *alias = schema.arguments()[argument].alias_info();
    const SilentWrites *w = silent_writes(schema.name());
    return (alias && alias->isWrite()) ||
           (w && w->trains == SilentWrites::kNone && argument >= w->first && argument <= w->last);
}

class ExportBuilder : ProgramBuilder
{
  public:
    ExportBuilder(PyTorchStreamReader &reader, const swn_exported &e) : reader_(reader), e_(e)
    {
        know(e.weights, "data/weights/");
        know(e.constants, "data/constants/");
    }
    std::unique_ptr<Program> build();

  private:
    void know(const swn_exported_weights &weights, const char *folder);
    at::Tensor weight(const char *name);
    at::Tensor make_weight(const swn_exported_weight &w, const std::string &record);
    void add_input(const swn_exported_input &in);
    void add_inputs();
    void emit(const swn_exported_node &n);
    bool has_weight(const swn_exported_argument &a) const;
    void emit_call(const swn_exported_node &n, const c10::OperatorHandle &op);
    Slot slot(const swn_exported_argument &a, const c10::Argument &wanted, std::vector<Ref> &in);
    Slot item(const swn_exported_argument &a, const c10::TypePtr &type, std::vector<Ref> &in);
    void results(const swn_exported_node &n, Step &step, std::vector<int64_t> &how);
    uint32_t made(const swn_exported_argument &a);
    void add_outputs();

    PyTorchStreamReader &reader_;
    const swn_exported &e_;
    std::vector<Ref> refs_; /* per value of the file */
    struct Known {
        const swn_exported_weight *weight;
        const char *folder;
    };
    std::unordered_map<std::string_view, Known> known_; /* weights by name; the names are e_'s */
    std::unordered_map<std::string, c10::Storage> records_;
    std::shared_ptr<Storages> weights_ = std::make_shared<Storages>();
};

at::Tensor ExportBuilder::make_weight(const swn_exported_weight &w, const std::string &record)
{
    at::ScalarType type = type_of(w.meta.dtype);
    auto found = records_.find(record);
    if (w.meta.layout != 7)
        throw std::runtime_error("the weight \"" + std::string(w.name) + "\" is not strided");
    if (found == records_.end()) {
        if (!reader_.hasRecord(record))
            throw std::runtime_error("the record " + record + " is missing");
        auto [data, bytes] = reader_.getRecord(record);
        found =
            records_
                .emplace(record, c10::Storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), nullptr, false))
                .first;
        weights_->insert(found->second.unsafeGetStorageImpl());
    }
    std::vector<int64_t> sizes, strides;
    __int128 last = w.meta.offset;
    bool empty = false;
    for (uint32_t i = 0; i < w.meta.rank; i++) {
        sizes.push_back(w.meta.sizes[i].size);
        strides.push_back(w.meta.strides[i]);
        empty = empty || sizes[i] == 0;
        if (sizes[i] > 0 && last <= INT64_MAX)
            last += static_cast<__int128>(sizes[i] - 1) * strides[i];
    }
    __int128 room = found->second.nbytes() / c10::elementSize(type);
    if (empty ? w.meta.offset > room : last >= room)
        throw std::runtime_error("the weight \"" + std::string(w.name) + "\" does not fit the record " + record);
    at::Tensor t = at::empty({0}, at::TensorOptions(type));
    t.set_(found->second, w.meta.offset, sizes, strides);
    // A matrix product folds its batch where a gradient could be asked for, and has other bits then.
    if (w.meta.requires_grad && at::isFloatingType(type))
        t.set_requires_grad(true);
    count_weight(t);
    return t;
}

/* A name that a weight and a constant have is the weight's. */
void ExportBuilder::know(const swn_exported_weights &weights, const char *folder)
{
    for (size_t i = 0; i < weights.count; i++)
        known_.emplace(weights.all[i].name, Known{&weights.all[i], folder});
}

at::Tensor ExportBuilder::weight(const char *name)
{
    auto found = known_.find(name);
    if (found == known_.end())
        throw std::runtime_error("the weight \"" + std::string(name) + "\" is missing");
    return make_weight(*found->second.weight, std::string(found->second.folder) + found->second.weight->path);
}

void describe(const swn_exported_meta &meta, const std::string &name, swn_wire_tensor &t)
{
    if (name.size() >= sizeof t.name)
        throw std::runtime_error("the name of an input is too long");
    snprintf(t.name, sizeof t.name, "%s", name.c_str());
    t.element = element_of(type_of(meta.dtype));
    if (t.element == SWN_ELEMENT_NONE)
        throw std::runtime_error("\"" + name + "\" has an element type that no request can have");
    t.rank = meta.rank;
    for (uint32_t i = 0; i < meta.rank; i++)
        t.shape[i] = meta.sizes[i].any || meta.sizes[i].factor ? -1 : meta.sizes[i].size;
}

void ExportBuilder::add_input(const swn_exported_input &in)
{
    Input input;
    input.name = in.name;
    input.type = c10::TensorType::get();
    input.exact = true;
    describe(in.meta, input.name, input.described);
    for (uint32_t i = 0; i < in.meta.rank; i++) {
        const auto &d = in.meta.sizes[i];
        input.sizes.push_back({d.size, d.factor, d.symbol, d.any != 0});
    }
    input.value = value(SWN_TAPE_TENSOR);
    refs_[static_cast<size_t>(in.value)] = static_cast<Ref>(input.value);
    program_->inputs.push_back(std::move(input));
}

void ExportBuilder::add_inputs()
{
    for (size_t i = 0; i < e_.symbol_count; i++)
        program_->symbols.push_back({e_.symbols[i].name, e_.symbols[i].least, e_.symbols[i].most});
    for (size_t i = 0; i < e_.input_count; i++) {
        const swn_exported_input &in = e_.inputs[i];
        if (in.source == SWN_EXPORTED_WEIGHT)
            refs_[static_cast<size_t>(in.value)] = constant(weight(in.name));
        else if (in.source == SWN_EXPORTED_USER)
            add_input(in);
    }
}

c10::IValue known(const swn_exported_argument &a)
{
    switch (a.kind) {
    case SWN_EXPORTED_BOOL:
        return a.number != 0;
    case SWN_EXPORTED_INT:
        return a.number;
    case SWN_EXPORTED_FLOAT:
        return a.real;
    case SWN_EXPORTED_STRING:
        return std::string(a.text);
    case SWN_EXPORTED_DTYPE:
        return static_cast<int64_t>(type_of(a.number));
    case SWN_EXPORTED_LAYOUT:
        if (a.number != 7)
            throw std::runtime_error("a tensor is not strided");
        return static_cast<int64_t>(at::kStrided);
    case SWN_EXPORTED_MEMORY_FORMAT:
        return memory_format_of(a.number);
    case SWN_EXPORTED_DEVICE:
        if (strcmp(a.text, "cpu"))
            throw std::runtime_error("the program was exported for the device \"" + std::string(a.text).substr(0, 40) +
                                     "\"; export it on the CPU");
        return c10::Device(c10::kCPU);
    default:
        return {};
    }
}

Slot ExportBuilder::item(const swn_exported_argument &a, const c10::TypePtr &type, std::vector<Ref> &in)
{
    Slot s;
    s.type = type;
    if (a.kind == SWN_EXPORTED_VALUE) {
        s.kind = Slot::kNext;
        in.push_back(refs_[static_cast<size_t>(a.number)]);
        return s;
    }
    s.known = as_type(known(a), type);
    bool truth = s.known.isBool() && c10::NumberType::get()->isSubtypeOf(*type);
    if (a.kind == SWN_EXPORTED_LIST || (!truth && !s.known.type()->isSubtypeOf(*type)))
        throw std::runtime_error("an argument is no " + type->str());
    return s;
}

Slot ExportBuilder::slot(const swn_exported_argument &a, const c10::Argument &wanted, std::vector<Ref> &in)
{
    c10::TypePtr type = wanted.type();
    if (auto optional = type->cast<c10::OptionalType>())
        if (a.kind != SWN_EXPORTED_NONE)
            type = optional->getElementType();
    auto list = type->cast<c10::ListType>();
    if (!list || a.kind == SWN_EXPORTED_NONE)
        return item(a, type, in);
    Slot s;
    s.kind = Slot::kList;
    s.type = list->getElementType();
    if (a.kind == SWN_EXPORTED_LIST)
        for (size_t i = 0; i < a.count; i++)
            s.items.push_back(item(a.items[i], s.type, in));
    else if (wanted.N() && *wanted.N() > 0 && *wanted.N() < 64 && a.kind != SWN_EXPORTED_VALUE)
        s.items.assign(static_cast<size_t>(*wanted.N()), item(a, s.type, in)); // a number for each element
    else
        throw std::runtime_error("an argument is no " + type->str());
    return s;
}

uint32_t ExportBuilder::made(const swn_exported_argument &a)
{
    auto number = static_cast<size_t>(a.number);
    uint32_t v = value(e_.is_tensor[number] ? SWN_TAPE_TENSOR : SWN_TAPE_SCALAR);
    refs_[number] = static_cast<Ref>(v);
    return v;
}

void ExportBuilder::results(const swn_exported_node &n, Step &step, std::vector<int64_t> &how)
{
    for (size_t i = 0; i < n.output_count; i++) {
        const swn_exported_argument &a = n.outputs[i];
        if (a.kind == SWN_EXPORTED_VALUE) {
            step.out.push_back(made(a));
            how.push_back(-1);
        } else if (a.kind == SWN_EXPORTED_LIST) {
            for (size_t k = 0; k < a.count; k++) {
                if (a.items[k].kind != SWN_EXPORTED_VALUE)
                    throw std::runtime_error("a result has no name");
                step.out.push_back(made(a.items[k]));
            }
            how.push_back(static_cast<int64_t>(a.count));
        } else if (a.kind == SWN_EXPORTED_NONE) {
            how.push_back(-2);
        } else {
            throw std::runtime_error("a result is neither a tensor nor a number");
        }
    }
}

/* Whether the argument is a weight, or a list with one. */
bool ExportBuilder::has_weight(const swn_exported_argument &a) const
{
    if (a.kind == SWN_EXPORTED_VALUE)
        return refs_[static_cast<size_t>(a.number)] < 0;
    return a.kind == SWN_EXPORTED_LIST &&
           std::any_of(a.items, a.items + a.count, [&](const swn_exported_argument &item) { return has_weight(item); });
}

void ExportBuilder::emit_call(const swn_exported_node &n, const c10::OperatorHandle &op)
{
    const auto &arguments = op.schema().arguments();
    std::vector<Ref> in;
    std::vector<bool> used(n.input_count);
    Step step;
    Call call{op, {}, {}, {}, weights_};
    for (const c10::Argument &wanted : arguments) {
        size_t i = 0;
        while (i < n.input_count && (used[i] || wanted.name() != n.inputs[i].name))
            i++;
        if (writes_to(op.schema(), call.slots.size())) {
            call.written.push_back(call.slots.size());
            if (i < n.input_count && has_weight(n.inputs[i]))
                throw std::runtime_error("the program changes a weight, so it has a state");
        }
        if (i < n.input_count) {
            used[i] = true;
            call.slots.push_back(slot(n.inputs[i], wanted, in));
        } else if (wanted.default_value()) {
            call.slots.emplace_back();
            call.slots.back().known = *wanted.default_value();
        } else {
            throw std::runtime_error("the argument \"" + wanted.name() + "\" is missing");
        }
    }
    for (size_t i = 0; i < n.input_count; i++)
        if (!used[i])
            throw std::runtime_error("the operator has no argument \"" + std::string(n.inputs[i].name) + "\"");
    results(n, step, call.results);
    step.name = op.schema().name();
    step.is_told = true; // PyTorch's own operators
    step.writes = !call.written.empty();
    program_->has_state = program_->has_state || updates_statistics(call);
    step.op = std::move(call);
    append(std::move(step), in);
}

/* Namespace, name and overload of "torch.ops.aten.linear.default". */
c10::OperatorHandle operator_named(const std::string &target)
{
    static const char before[] = "torch.ops.";
    size_t space = sizeof before - 1, name, overload;
    if (target.rfind(before, 0) != 0 || (name = target.find('.', space)) == std::string::npos ||
        (overload = target.find('.', name + 1)) == std::string::npos)
        throw std::runtime_error("it is no operator of PyTorch's");
    std::string ns = target.substr(space, name - space);
    std::string op = target.substr(name + 1, overload - name - 1), which = target.substr(overload + 1);
    require_served(ns + "::" + op);
    if (ns != "aten" && ns != "prims")
        throw std::runtime_error("operators of this kind are not served");
    auto found = c10::Dispatcher::singleton().findSchema({ns + "::" + op, which == "default" ? "" : which});
    if (!found)
        throw std::runtime_error("this PyTorch has no such operator");
    return *found;
}

void ExportBuilder::emit(const swn_exported_node &n)
{
    NumberFunction function = number_function(n.target, n.input_count);
    if (!function)
        return emit_call(n, operator_named(n.target));
    std::vector<Ref> in;
    std::vector<Slot> slots;
    std::vector<int64_t> how;
    Step step;
    for (size_t i = 0; i < n.input_count; i++)
        slots.push_back(item(n.inputs[i], c10::NumberType::get(), in));
    results(n, step, how);
    step.name = n.target;
    step.is_told = true;
    step.op = [slots, function](Stack &stack) {
        Stack arguments;
        size_t next = 0;
        for (const Slot &slot : slots)
            arguments.push_back(filled(slot, stack, next));
        function(arguments);
        stack = std::move(arguments);
    };
    append(std::move(step), in);
}

/* The last step is a tuple of the tensors among the outputs. */
void ExportBuilder::add_outputs()
{
    std::vector<Ref> in;
    std::vector<c10::TypePtr> types;
    std::unordered_set<std::string> names;
    Step step;
    for (size_t i = 0; i < e_.output_count; i++) {
        const swn_exported_output &o = e_.outputs[i];
        if (o.what.kind == SWN_EXPORTED_NONE)
            continue;
        if (!o.is_tensor || o.what.kind != SWN_EXPORTED_VALUE)
            throw std::runtime_error("the output \"" + std::string(o.name) + "\" is no tensor");
        if (!names.insert(o.name).second)
            throw std::runtime_error("two outputs are called \"" + std::string(o.name) + "\"");
        swn_wire_tensor t = {};
        describe(o.meta, o.name, t);
        program_->outputs.push_back(t);
        in.push_back(refs_[static_cast<size_t>(o.what.number)]);
        types.push_back(c10::TensorType::get());
    }
    if (in.empty() || in.size() + program_->inputs.size() > SWN_WIRE_TENSORS)
        throw std::runtime_error("the program has " + std::to_string(program_->inputs.size()) + " inputs and " +
                                 std::to_string(in.size()) + " outputs; at least one output and at most " +
                                 std::to_string(SWN_WIRE_TENSORS) + " of both can be served");
    program_->result_type = step.type = c10::TupleType::create(types);
    step.kind = Step::kTuple;
    step.name = "outputs";
    step.out.push_back(value(SWN_TAPE_OTHER));
    program_->result = static_cast<Ref>(step.out[0]);
    append(std::move(step), in);
}

std::unique_ptr<Program> ExportBuilder::build()
{
    refs_.resize(e_.value_count);
    add_inputs();
    for (size_t i = 0; i < e_.node_count; i++) {
        const swn_exported_node &n = e_.nodes[i];
        try {
            emit(n);
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception &e) {
            throw std::runtime_error("the node \"" + std::string(n.name).substr(0, 100) + "\" (" +
                                     std::string(n.target).substr(0, 100) + "): " + error_text(e));
        }
    }
    add_outputs();
    finish();
    program_->storages = weights_;
    return std::move(program_);
}

/* The bytes of text that a file may hold even where the file, compressed by somebody, is shorter. */
constexpr size_t kTextFree = 1 << 20;

/* `room`: how long it may be; what is left then. */
std::string text_of(PyTorchStreamReader &reader, const std::string &record, size_t &room)
{
    if (!reader.hasRecord(record))
        throw std::runtime_error("the record " + record + " is missing");
    if (reader.getRecordSize(record) > room)
        throw std::runtime_error("the record " + record + " is too long");
    auto [data, bytes] = reader.getRecord(record);
    room -= bytes;
    return std::string(static_cast<const char *>(data.get()), bytes);
}

/* NAME of the one models/NAME.json. */
std::string model_name(PyTorchStreamReader &reader)
{
    static const std::string folder = "models/", end = ".json";
    std::string name;
    size_t models = 0;
    bool compiled = false;
    for (const std::string &record : reader.getAllRecords()) {
        compiled = compiled || record.rfind("data/aotinductor/", 0) == 0;
        if (record.rfind(folder, 0) != 0 || record.size() <= folder.size() + end.size() ||
            record.compare(record.size() - end.size(), end.size(), end) != 0)
            continue;
        name = record.substr(folder.size(), record.size() - folder.size() - end.size());
        models++;
    }
    if (compiled)
        throw std::runtime_error("this is a package of AOTInductor, which holds compiled code; save the program itself "
                                 "with torch.export.save");
    if (models != 1)
        throw std::runtime_error("the file has " + std::to_string(models) + " exported programs instead of one");
    return name;
}

} // namespace

std::unique_ptr<Program> program_from_export(const std::string &path)
{
    PyTorchStreamReader reader(path);
    std::string name = model_name(reader);
    struct stat file = {};
    // torch.export compresses nothing. A text that is longer than its file is there to fill memory.
    size_t room = stat(path.c_str(), &file) ? 0 : std::max<size_t>(kTextFree, static_cast<size_t>(file.st_size));
    room = std::min<size_t>(room, SWN_EXPORTED_TEXT);
    if (reader.hasRecord("byteorder") && text_of(reader, "byteorder", room) != "little")
        throw std::runtime_error("the file was written on a machine of the other byte order");
    std::string model = text_of(reader, "models/" + name + ".json", room);
    std::string weights = text_of(reader, "data/weights/" + name + "_weights_config.json", room);
    std::string constants = text_of(reader, "data/constants/" + name + "_constants_config.json", room);
    char why[SWN_EXPORTED_WHY];
    swn_exported *read = nullptr;
    int rc = swn_exported_read(&read, model.data(), model.size(), weights.data(), weights.size(), constants.data(),
                               constants.size(), why);
    if (rc == -ENOMEM)
        throw std::bad_alloc();
    if (rc < 0)
        throw std::runtime_error("the exported program is not as expected: " + std::string(why));
    std::unique_ptr<swn_exported, ExportedFree> e(read);
    return ExportBuilder(reader, *e).build();
}

} // namespace swn

#else

namespace swn
{

std::unique_ptr<Program> program_from_export(const std::string &)
{
    throw std::runtime_error("this is a file of torch.export, which PyTorch " + std::to_string(TORCH_VERSION_MAJOR) +
                             "." + std::to_string(TORCH_VERSION_MINOR) + " does not have (2.9 and later do)");
}

} // namespace swn

#endif
