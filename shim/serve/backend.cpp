// shim/serve/backend.cpp - the functions that swapnet-engine calls: see backend.h.
//
// Nothing is thrown over this border: each function that can fail turns exceptions into a status and a text.
#include "shim/serve/backend.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/version.h>

#include "shim/serve/activation.h"
#include "shim/serve/input_check.h"
#include "shim/serve/wire_tensors.h"

/* Layer groups of a model, unless the caller says. Requests can be set aside between them: often enough to be fair and
 * to see a deadline, too seldom to cost anything (edge-serving paper, section 5: with five groups its planning takes 2
 * ms, with all layers 13). */
#define GROUPS_USUAL 5

struct swn_model {
    std::unique_ptr<swn::Program> program;
    std::shared_ptr<const swn::Groups> groups;
    size_t most_groups;
    unsigned requests = 0; /* begun; one after the first is timed, as that waits for the disk */
    bool timed = false;    /* the groups are by those times */
};

struct swn_activation {
    swn_activation(swn_model &m) : model(m), values(*m.program, m.groups)
    {
    }

    swn_model &model;
    swn::Activation values;
    std::vector<uint64_t> step_ns; /* empty but for the request that is timed */
};

namespace
{

void say(char *text, const char *what)
{
    snprintf(text, SWN_WIRE_ENGINE_TEXT, "%s", what);
}

/* PyTorch's allocator says it in words only. */
bool is_out_of_memory(const char *what)
{
    return strstr(what, "not enough memory") || strstr(what, "can't allocate memory") || strstr(what, "bad_alloc");
}

/* The first line: the rest is a stack trace. */
enum swn_engine_status failed(const std::exception &e, char *text)
{
    bool memory = dynamic_cast<const std::bad_alloc *>(&e) || is_out_of_memory(e.what());
    const auto *ours = dynamic_cast<const c10::Error *>(&e);
    say(text, ours ? ours->what_without_backtrace() : e.what());
    return memory ? SWN_ENGINE_NO_MEMORY : SWN_ENGINE_FAILED;
}

template <class Function> enum swn_engine_status guarded(char *text, Function &&function)
{
    text[0] = 0;
    try {
        c10::InferenceMode mode;
        function();
        return SWN_ENGINE_OK;
    } catch (const swn::BadInput &e) {
        say(text, e.what());
        return SWN_ENGINE_BAD_INPUT;
    } catch (const std::exception &e) {
        return failed(e, text);
    } catch (...) {
        say(text, "an unknown exception");
        return SWN_ENGINE_FAILED;
    }
}

std::shared_ptr<const swn::Groups> make_groups(const swn::Program &program, size_t most, const uint64_t *cost)
{
    auto groups = std::make_shared<swn::Groups>(most);
    groups->resize(swn_tape_groups(program.tape.get(), cost, most, groups->data()));
    if (groups->empty())
        groups->push_back(0); // a model that returns its input has no steps, and a group all the same
    groups->push_back(program.steps.size());
    return groups;
}

enum swn_engine_status load(const char *path, uint32_t groups, struct swn_model **out, char *text)
{
    enum swn_engine_status status = guarded(text, [&] {
        auto m = std::make_unique<swn_model>();
        // Weights are no inference tensors: a model may write to its own buffers.
        c10::InferenceMode normal(false);
        m->program = swn::program_from_file(path);
        m->most_groups = groups ? std::min<size_t>(groups, swn_tape_cuts(m->program->tape.get()) + 1) : GROUPS_USUAL;
        m->groups = make_groups(*m->program, m->most_groups, nullptr);
        *out = m.release();
    });
    return status == SWN_ENGINE_FAILED ? SWN_ENGINE_UNREADABLE : status;
}

void unload(struct swn_model *m)
{
    delete m;
}

uint64_t weight_bytes(const struct swn_model *m)
{
    return m->program->weight_bytes;
}

uint32_t groups(const struct swn_model *m)
{
    return static_cast<uint32_t>(m->groups->size() - 1);
}

void describe(const struct swn_model *m, struct swn_wire_tensor *tensors, uint32_t *inputs, uint32_t *outputs)
{
    const c10::TypePtr &type = m->program->result_type;
    size_t results = 1, room = SWN_WIRE_TENSORS - m->program->inputs.size();
    *inputs = 0;
    // Clients have to send each input that is described.
    for (const auto &input : m->program->inputs)
        if (!input.optional)
            tensors[(*inputs)++] = input.described;
    *outputs = 0;
    for (const auto &output : m->program->outputs)
        tensors[*inputs + (*outputs)++] = output;
    if (*outputs > 0)
        return;
    if (type->kind() == c10::TypeKind::TupleType)
        results = type->containedTypes().size();
    for (size_t i = 0; i < results && i < room; i++) {
        swn_wire_tensor &t = tensors[*inputs + (*outputs)++];
        t = {};
        snprintf(t.name, sizeof t.name, "OUTPUT__%zu", i);
    }
}

/* The model's argument that a request calls `name`: by its name in forward(), or as Triton's clients do, by ANY__INDEX.
 * The number of arguments if there is none. */
size_t argument_named(const swn::Program &program, const char *name)
{
    size_t i = 0;
    unsigned index;
    int end = 0;
    const char *mark = strstr(name, "__");
    for (; i < program.inputs.size(); i++)
        if (program.inputs[i].name == name)
            return i;
    if (mark && sscanf(mark, "__%3u%n", &index, &end) == 1 && mark[end] == 0 && index < program.inputs.size())
        return index;
    return i;
}

void set_inputs(swn_activation &a, const struct swn_wire_tensor *inputs, size_t count, const char *buffer)
{
    const swn::Program &program = *a.model.program;
    std::vector<bool> given(program.inputs.size());
    swn::InputCheck check(program);
    for (size_t i = 0; i < count; i++) {
        size_t at = argument_named(program, inputs[i].name);
        if (at == program.inputs.size())
            throw swn::BadInput("the model has no input \"" + std::string(inputs[i].name) + "\"");
        if (given[at])
            throw swn::BadInput("input \"" + std::string(inputs[i].name) + "\" is there twice");
        const c10::TypePtr &type = program.inputs[at].type;
        if (!c10::TensorType::get()->isSubtypeOf(*type))
            throw swn::BadInput("input \"" + program.inputs[at].name + "\" of the model is no tensor but " +
                                type->str());
        check.tensor(program.inputs[at], inputs[i]);
        a.values.set_input(at, swn::tensor_from_wire(inputs[i], buffer));
        given[at] = true;
    }
    for (size_t i = 0; i < given.size(); i++) {
        if (given[i])
            continue;
        if (!program.inputs[i].optional)
            throw swn::BadInput("input \"" + program.inputs[i].name + "\" is missing");
        a.values.set_input(i, program.inputs[i].standard);
    }
}

enum swn_engine_status begin(struct swn_model *m, const struct swn_wire_tensor *inputs, size_t count,
                             const char *buffer, struct swn_activation **out, char *text)
{
    return guarded(text, [&] {
        auto a = std::make_unique<swn_activation>(*m);
        set_inputs(*a, inputs, count, buffer);
        *out = a.release();
    });
}

uint32_t groups_of(const struct swn_activation *a)
{
    return static_cast<uint32_t>(a->values.groups());
}

enum swn_engine_status run(struct swn_activation *a, uint32_t group, char *text)
{
    return guarded(text, [&] {
        if (group != a->values.next_group() || group >= a->values.groups())
            throw std::runtime_error("layer group " + std::to_string(group) + " is not the next one");
        if (group == 0 && a->model.requests++ > 0 && !a->model.timed)
            a->step_ns.resize(a->model.program->steps.size());
        a->values.run_group(group, a->step_ns.empty() ? nullptr : &a->step_ns);
        if (group + 1 == a->values.groups() && !a->step_ns.empty() && !a->model.timed) {
            a->model.groups = make_groups(*a->model.program, a->model.most_groups, a->step_ns.data());
            a->model.timed = true;
        }
    });
}

enum swn_engine_status outputs(struct swn_activation *a, struct swn_wire_tensor *tensors, uint32_t *count, char *text)
{
    return guarded(text, [&] {
        *count = 0;
        for (const auto &output : a->values.outputs()) {
            if (*count == SWN_WIRE_TENSORS)
                throw std::runtime_error("the model has more than " + std::to_string(SWN_WIRE_TENSORS) + " outputs");
            swn_wire_tensor &t = tensors[(*count)++];
            t = {};
            snprintf(t.name, sizeof t.name, "%s", output.first.c_str());
            swn::describe_tensor(output.second, t);
        }
    });
}

enum swn_engine_status store(struct swn_activation *a, const struct swn_wire_tensor *outputs, size_t count,
                             char *buffer, char *text)
{
    return guarded(text, [&] {
        auto &tensors = a->values.outputs();
        if (count != tensors.size())
            throw std::runtime_error("the request has another number of outputs");
        for (size_t i = 0; i < count; i++) {
            swn_wire_tensor own = {};
            swn::describe_tensor(tensors[i].second, own);
            if (own.bytes != outputs[i].bytes)
                throw std::runtime_error("output \"" + tensors[i].first + "\" has another size");
            if (own.bytes > 0)
                memcpy(buffer + outputs[i].offset, tensors[i].second.data_ptr(), own.bytes);
        }
    });
}

void drop(struct swn_activation *a)
{
    delete a;
}

} // namespace

extern "C" __attribute__((visibility("default"))) const struct swn_serve_backend swn_serve_backend = {
    SWN_SERVE_ABI, TORCH_VERSION, load, unload,  weight_bytes, groups, describe,
    begin,         groups_of,     run,  outputs, store,        drop,
};
