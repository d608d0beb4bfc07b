// shim/serve/activation.cpp - runs the steps of a program for one request.
//
// Values leave where the interpreter of TorchScript drops them: a value's last use moves it to the stack, so its memory
// is free when the operator returns.
#include "shim/serve/activation.h"

#include <algorithm>
#include <stdexcept>
#include <time.h>

#include <ATen/ATen.h>

#include "shim/serve/shared_weights.h"

namespace swn
{
namespace
{

uint64_t activation_ns()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

} // namespace

Activation::Activation(const Program &program, std::shared_ptr<const Groups> groups, StepNeeds &needs)
    : program_(program), groups_(std::move(groups)), values_(swn_tape_values(program.tape.get())),
      meter_(needs, program.steps.size())
{
}

Meter &Activation::meter()
{
    return meter_;
}

void Activation::set_input(size_t index, c10::IValue v)
{
    values_[program_.inputs[index].value] = std::move(v);
}

const Program &Activation::program() const
{
    return program_;
}

const Groups &Activation::groups() const
{
    return *groups_;
}

const std::shared_ptr<const Groups> &Activation::division() const
{
    return groups_;
}

size_t Activation::next_group() const
{
    return next_;
}

Activation::Live Activation::live() const
{
    Live found;
    for (size_t v = 0; v < values_.size(); v++) {
        const auto number = static_cast<uint32_t>(v);
        const auto &unread = program_.unread;
        if (!values_[v].isNone() && std::find(unread.begin(), unread.end(), number) == unread.end())
            found.emplace_back(number, values_[v]);
    }
    return found;
}

void Activation::go_on(size_t group, Live live) noexcept
{
    for (c10::IValue &v : values_)
        v = c10::IValue();
    for (auto &[number, v] : live)
        values_[number] = std::move(v);
    next_ = group;
    meter_.stop();
}

void Activation::end(std::vector<std::pair<std::string, at::Tensor>> outputs) noexcept
{
    values_.clear();
    outputs_ = std::move(outputs);
    next_ = groups_->size();
    meter_.stop();
}

void Activation::push(Ref r, bool move)
{
    if (r < 0)
        stack_.push_back(program_.constants[static_cast<size_t>(~r)]);
    else if (move)
        stack_.push_back(std::move(values_[static_cast<size_t>(r)]));
    else
        stack_.push_back(values_[static_cast<size_t>(r)]);
}

void Activation::run_step(const Step &step, StepWatch *watch)
{
    size_t count = step.in.size();
    stack_.clear();
    for (size_t i = 0; i < count; i++)
        push(step.in[i], step.moves[i]);
    if (watch)
        watch->before(step, stack_);
    switch (step.kind) {
    case Step::kOperator:
        for (size_t i : step.written)
            require_no_weight(stack_[i], *program_.storages);
        step.op(stack_);
        break;
    case Step::kList: {
        c10::impl::GenericList list(step.type);
        list.reserve(count);
        for (auto &v : stack_)
            list.push_back(std::move(v));
        stack_.clear();
        stack_.emplace_back(std::move(list));
        break;
    }
    case Step::kTuple: {
        auto type = step.type->cast<c10::TupleType>();
        std::vector<c10::IValue> elements(std::make_move_iterator(stack_.begin()),
                                          std::make_move_iterator(stack_.end()));
        stack_.clear();
        if (type->name())
            stack_.emplace_back(c10::ivalue::Tuple::createNamed(std::move(elements), type));
        else
            stack_.emplace_back(c10::ivalue::Tuple::create(std::move(elements)));
        break;
    }
    case Step::kUnpack: {
        c10::IValue whole = std::move(stack_.back());
        stack_.clear();
        if (whole.isTuple())
            for (const auto &v : whole.toTupleRef().elements())
                stack_.push_back(v);
        else
            for (const auto &v : whole.toListRef())
                stack_.push_back(v);
        break;
    }
    case Step::kOpaque:
        torch::jit::InterpreterState(*step.code).run(stack_);
        break;
    }
    if (stack_.size() != step.out.size())
        throw std::runtime_error(step.name + " has " + std::to_string(stack_.size()) + " results instead of " +
                                 std::to_string(step.out.size()));
    for (size_t i = 0; i < step.out.size(); i++)
        values_[step.out[i]] = std::move(stack_[i]);
    stack_.clear();
    if (watch)
        watch->after(step, values_);
    for (uint32_t v : step.drops)
        values_[v] = c10::IValue();
}

void Activation::run_group(size_t group, std::vector<uint64_t> *step_ns, StepWatch *watch)
{
    if (group == 0)
        for (uint32_t v : program_.unread)
            values_[v] = c10::IValue();
    meter_.begin();
    for (size_t s = (*groups_)[group].first; s < (*groups_)[group].end; s++) {
        if (meter_.looks())
            meter_.before_step(s);
        uint64_t began = step_ns ? activation_ns() : 0;
        run_step(program_.steps[s], watch);
        if (step_ns)
            (*step_ns)[s] = activation_ns() - began;
        if (meter_.looks())
            meter_.after_step(s);
    }
    meter_.end();
    next_ = group + 1;
    if (next_ < groups_->size())
        return;
    meter_.finish();
    // Named before anybody asks, so that the rest of the request's values can go.
    c10::IValue result = program_.result < 0 ? program_.constants[static_cast<size_t>(~program_.result)]
                                             : std::move(values_[static_cast<size_t>(program_.result)]);
    values_.clear();
    if (program_.outputs.empty())
        return add_output("OUTPUT", result);
    for (size_t i = 0; i < program_.outputs.size(); i++)
        add_output(program_.outputs[i].name, result.toTupleRef().elements()[i]);
}

/* Tensors of tuples, lists and dictionaries, at any depth. */
void Activation::add_output(std::string name, const c10::IValue &v)
{
    size_t i = 0;
    if (v.isTensor()) {
        if (name.size() >= SWN_WIRE_TENSOR_NAME)
            throw std::runtime_error("the name of an output is too long");
        if (name == "OUTPUT" && program_.outputs.empty())
            name = "OUTPUT__0";
        at::Tensor t = v.toTensor().resolve_conj().resolve_neg().contiguous();
        // The next request may change what the model keeps before this answer has left.
        if (program_.has_state)
            t = t.clone();
        outputs_.emplace_back(std::move(name), std::move(t));
    } else if (v.isTuple()) {
        for (const auto &element : v.toTupleRef().elements())
            add_output(name + "__" + std::to_string(i++), element);
    } else if (v.isList()) {
        for (const auto &element : v.toListRef())
            add_output(name + "__" + std::to_string(i++), element);
    } else if (v.isGenericDict()) {
        for (const auto &entry : v.toGenericDict()) {
            if (!entry.key().isString())
                throw std::runtime_error("a dictionary among the outputs has keys that are no strings");
            add_output(name == "OUTPUT" ? entry.key().toStringRef() : name + "." + entry.key().toStringRef(),
                       entry.value());
        }
    } else if (!v.isNone()) {
        throw std::runtime_error("the model returns a " + v.tagKind() + ", which is no tensor");
    }
}

std::vector<std::pair<std::string, at::Tensor>> &Activation::outputs()
{
    return outputs_;
}

} // namespace swn
