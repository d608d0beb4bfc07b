// shim/serve/common_steps.cpp - see common_steps.h.
#include "shim/serve/common_steps.h"

#include <algorithm>
#include <sstream>
#include <string>

#include <ATen/core/Tensor.h>

namespace swn
{
namespace
{

/* Less is not worth a layer group of its own. */
constexpr uint64_t kLeastBytes = 1 << 20;

/* A number for everything that is like nothing else. */
uint64_t fresh()
{
    static uint64_t last = 0;
    return ++last;
}

void describe(std::ostringstream &text, const c10::IValue &v)
{
    if (v.isTensor()) {
        const at::Tensor &t = v.toTensor();
        if (!t.defined())
            text << "undefined";
        else if (t.has_storage())
            text << t.storage().data() << '+' << t.storage_offset() << t.sizes() << t.strides() << t.scalar_type();
        else
            text << '?' << fresh();
    } else if (v.isNone() || v.isBool() || v.isInt() || v.isDouble() || v.isString() || v.isDevice() || v.isIntList() ||
               v.isDoubleList() || v.isBoolList()) {
        text << v.tagKind() << v;
    } else {
        text << '?' << fresh();
    }
}

std::string description(const Program &program, const Step &step)
{
    std::ostringstream text;
    text << static_cast<int>(step.kind) << ' ' << step.name;
    if (step.type)
        text << ' ' << step.type->str();
    if (step.kind == Step::kOpaque)
        text << '?' << fresh();
    for (Ref r : step.in) {
        text << ' ';
        if (r >= 0)
            text << '%' << r;
        else
            describe(text, program.constants[static_cast<size_t>(~r)]);
    }
    for (uint32_t v : step.out)
        text << " >" << v;
    return text.str();
}

bool may_end(const Program &program, size_t step)
{
    return step == program.steps.size() || swn_tape_is_cut(program.tape.get(), step);
}

} // namespace

NumberedSteps number_steps(const Program &program, const std::vector<const NumberedSteps *> &others)
{
    NumberedSteps own;
    const NumberedSteps *like = nullptr;
    size_t alike = 0;
    for (const Step &step : program.steps)
        own.texts.push_back(description(program, step));
    for (const NumberedSteps *other : others) {
        auto end = std::mismatch(own.texts.begin(), own.texts.end(), other->texts.begin(), other->texts.end()).first;
        auto count = static_cast<size_t>(end - own.texts.begin());
        if (count > alike) {
            alike = count;
            like = other;
        }
    }
    for (size_t s = 0; s < own.texts.size(); s++)
        own.numbers.push_back(s < alike ? like->numbers[s] : fresh());
    return own;
}

size_t common_steps(const Program &a, const NumberedSteps &steps_a, const Program &b, const NumberedSteps &steps_b)
{
    const auto &numbers_a = steps_a.numbers, &numbers_b = steps_b.numbers;
    size_t most = std::min(numbers_a.size(), numbers_b.size()), n = 0;
    while (n < most && numbers_a[n] == numbers_b[n])
        n++;
    while (n > 0 && !(may_end(a, n) && may_end(b, n)))
        n--;
    return swn_tape_weight_bytes(a.tape.get(), 0, n) >= kLeastBytes ? n : 0;
}

} // namespace swn
