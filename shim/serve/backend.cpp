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
#include "shim/serve/error_text.h"
#include "shim/serve/input_check.h"
#include "shim/serve/join_trial.h"
#include "shim/serve/loaded_model.h"
#include "shim/serve/memory_error.h"
#include "shim/serve/wire_tensors.h"
#include "shim/torch/fp_control.h"

struct swn_activation {
    swn_activation(swn_model &m) : model(m), values(*m.program, m.groups, m.needs)
    {
    }

    swn_model &model;
    swn::Activation values;
    std::vector<uint64_t> step_ns; /* empty but for the request that is timed */
    swn::JoinShape shape;
};

namespace
{

void say(char *text, const char *what)
{
    snprintf(text, SWN_WIRE_ENGINE_TEXT, "%s", what);
}

enum swn_engine_status failed(const std::exception &e, char *text)
{
    say(text, swn::error_text(e));
    return swn::is_out_of_memory(e) ? SWN_ENGINE_NO_MEMORY : SWN_ENGINE_FAILED;
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

enum swn_engine_status load(const char *path, uint32_t groups, struct swn_model **out, char *text)
{
    enum swn_engine_status status = guarded(text, [&] {
        auto m = std::make_unique<swn_model>();
        // Weights are no inference tensors: a model may write to its own buffers.
        c10::InferenceMode normal(false);
        m->program = swn::program_from_file(path);
        m->told_groups = groups ? std::min<size_t>(groups, swn_tape_cuts(m->program->tape.get()) + 1) : 0;
        swn::add_model(*m);
        *out = m.release();
    });
    return status == SWN_ENGINE_FAILED ? SWN_ENGINE_UNREADABLE : status;
}

void unload(struct swn_model *m)
{
    if (m)
        swn::remove_model(*m);
    delete m;
}

uint64_t weight_bytes(const struct swn_model *m)
{
    return m->program->weight_bytes;
}

uint32_t groups(const struct swn_model *m)
{
    return static_cast<uint32_t>(m->groups->size());
}

const struct swn_serving_weight *weights(const struct swn_model *m, uint32_t group, size_t *count)
{
    const auto &weights = (*m->groups)[group].weights;
    *count = weights.size();
    return weights.data();
}

uint64_t identity(const struct swn_model *m, uint32_t group)
{
    return (*m->groups)[group].identity;
}

uint64_t dense_bytes(const struct swn_model *m, uint32_t group)
{
    return (*m->groups)[group].dense_bytes;
}

void needs(const struct swn_model *m, uint32_t group, uint64_t *activation_bytes, uint64_t *state_bytes)
{
    const swn::LayerGroup &g = (*m->groups)[group];
    m->needs.of(g.first, g.end, activation_bytes, state_bytes);
}

/* Appends the outputs that a result of the type always has, by the names that Activation gives them; false: how many
 * there are, or their names, shows only when the model runs. */
bool describe_result(const c10::TypePtr &type, const std::string &name, std::vector<swn_wire_tensor> &to)
{
    swn_wire_tensor t = {};
    size_t i = 0;
    switch (type->kind()) {
    case c10::TypeKind::TensorType:
        if (name.size() >= sizeof t.name)
            return false;
        snprintf(t.name, sizeof t.name, "%s", name.c_str());
        to.push_back(t);
        return true;
    case c10::TypeKind::TupleType:
        for (const c10::TypePtr &inner : type->containedTypes())
            if (!describe_result(inner, name + "__" + std::to_string(i++), to))
                return false;
        return true;
    default:
        return type->kind() == c10::TypeKind::NoneType;
    }
}

void describe(const struct swn_model *m, struct swn_wire_tensor *tensors, uint32_t *inputs, uint32_t *outputs)
{
    const c10::TypePtr &type = m->program->result_type;
    std::vector<swn_wire_tensor> results;
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
    bool is_one = type->kind() == c10::TypeKind::TensorType;
    if (!describe_result(type, is_one ? "OUTPUT__0" : "OUTPUT", results) ||
        results.size() > SWN_WIRE_TENSORS - m->program->inputs.size())
        return;
    for (const swn_wire_tensor &t : results)
        tensors[*inputs + (*outputs)++] = t;
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

/* The inputs, in the order of the model's. */
std::vector<at::Tensor> set_inputs(swn_activation &a, const struct swn_wire_tensor *inputs, size_t count,
                                   const char *buffer)
{
    const swn::Program &program = *a.model.program;
    std::vector<bool> given(program.inputs.size());
    std::vector<at::Tensor> tensors(program.inputs.size());
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
        tensors[at] = swn::tensor_from_wire(inputs[i], buffer);
        a.values.set_input(at, tensors[at]);
        given[at] = true;
    }
    for (size_t i = 0; i < given.size(); i++) {
        if (given[i])
            continue;
        if (!program.inputs[i].optional)
            throw swn::BadInput("input \"" + program.inputs[i].name + "\" is missing");
        a.values.set_input(i, program.inputs[i].standard);
    }
    return tensors;
}

/* What trials keep goes before requests. */
enum swn_engine_status with_memory_back(enum swn_engine_status status)
{
    if (status == SWN_ENGINE_NO_MEMORY)
        swn::drop_kept(swn::all_models());
    return status;
}

enum swn_engine_status begin(struct swn_model *m, const struct swn_wire_tensor *inputs, size_t count,
                             const char *buffer, struct swn_activation **out, char *text)
{
    return with_memory_back(guarded(text, [&] {
        auto a = std::make_unique<swn_activation>(*m);
        a->values.meter().begin();
        std::vector<at::Tensor> tensors = set_inputs(*a, inputs, count, buffer);
        a->values.meter().end();
        if (m->joining.batch_most > 1) {
            a->shape = swn::shape_of(*m->program, tensors);
            swn::keep_for_trial(*m, a->shape, tensors); // no part of what the request takes
        }
        *out = a.release();
    }));
}

uint32_t groups_of(const struct swn_activation *a)
{
    return static_cast<uint32_t>(a->values.groups().size());
}

const struct swn_serving_weight *weights_of(const struct swn_activation *a, uint32_t group, size_t *count)
{
    const auto &weights = a->values.groups()[group].weights;
    *count = weights.size();
    return weights.data();
}

void run_group(swn_activation &a)
{
    std::vector<uint64_t> *step_ns = a.step_ns.empty() ? nullptr : &a.step_ns;
    auto key = swn::join_key(a.model.joining, a.model.groups, a.shape, a.values);
    if (key && swn_words_are_usual())
        swn::run_alone(swn::join_case(a.model.joining, *key, a.shape, a.values), a.values, step_ns);
    else
        a.values.run_group(a.values.next_group(), step_ns);
}

enum swn_engine_status run(struct swn_activation *a, uint32_t group, char *text)
{
    return with_memory_back(guarded(text, [&] {
        if (group != a->values.next_group() || group >= a->values.groups().size())
            throw std::runtime_error("layer group " + std::to_string(group) + " is not the next one");
        if (group == 0 && a->model.requests++ > 0 && a->model.times.empty())
            a->step_ns.resize(a->model.program->steps.size());
        run_group(*a);
        if (group + 1 == a->values.groups().size() && !a->step_ns.empty() && a->model.times.empty()) {
            a->model.times = a->step_ns;
            swn::divide(a->model);
        }
    }));
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

void batching(struct swn_model *m, uint32_t batch_most, int may_differ)
{
    m->joining.batch_most = batch_most;
    m->joining.bits = may_differ ? SWN_JOIN_BATCH : SWN_JOIN_EXACT;
}

/* The division must be final, or a request that is timed for it would run with others. */
size_t join(struct swn_activation *const *a, size_t count, uint32_t group)
{
    swn_model &m = a[0]->model;
    size_t joined = 0;
    char text[SWN_WIRE_ENGINE_TEXT];
    if (m.joining.batch_most < 2 || (m.times.empty() && !m.told_groups))
        return 0;
    guarded(text, [&] {
        std::vector<swn::JoinMember> members;
        while (members.size() < count && &a[members.size()]->model == &m &&
               a[members.size()]->values.next_group() == group)
            members.push_back({&a[members.size()]->values, &a[members.size()]->shape});
        if (members.size() > 1)
            joined = swn::run_joined(*m.program, m.joining, m.groups, members);
    });
    if (group == 0)
        m.requests += static_cast<unsigned>(joined);
    return joined;
}

void joined(const struct swn_model *m, uint32_t group, struct swn_wire_group *to)
{
    const swn::Joining &j = m->joining;
    if (j.division != m->groups || group >= j.latest.size() || !j.latest[group].second)
        return;
    const auto &[inputs, found] = j.latest[group];
    swn_join_limits limits = swn::limits_of(j, static_cast<uint64_t>(inputs[1]));
    to->alone_ns = found->known.alone_ns;
    for (unsigned i = 0; i < SWN_WIRE_JOINED; i++)
        if (!found->left.empty() && swn_join_allows(&found->known, i, &limits))
            to->joined_ns[i] = std::max<uint64_t>(swn_join_expected_ns(&found->known, i), 1);
}

int idle(int (*is_wanted)(void))
{
    char text[SWN_WIRE_ENGINE_TEXT];
    bool is_more = false;
    guarded(text, [&] { is_more = swn::try_joining(swn::all_models(), is_wanted); });
    return is_more;
}

} // namespace

extern "C" __attribute__((visibility("default"))) const struct swn_serve_backend swn_serve_backend = {
    SWN_SERVE_ABI, TORCH_VERSION, load,    unload,   weight_bytes, groups,  describe,   begin,
    groups_of,     run,           outputs, store,    drop,         weights, weights_of, nullptr,
    identity,      dense_bytes,   needs,   batching, join,         joined,  idle,
};
