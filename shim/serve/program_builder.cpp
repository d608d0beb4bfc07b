// shim/serve/program_builder.cpp - see program_builder.h.
#include "shim/serve/program_builder.h"

#include <new>

#include <ATen/core/Tensor.h>

namespace swn
{

ProgramBuilder::ProgramBuilder() : program_(std::make_unique<Program>())
{
    program_->tape.reset(swn_tape_new());
    if (!program_->tape)
        throw std::bad_alloc();
}

Ref ProgramBuilder::constant(c10::IValue v)
{
    program_->constants.push_back(std::move(v));
    return ~static_cast<Ref>(program_->constants.size() - 1);
}

uint32_t ProgramBuilder::value(swn_tape_kind kind)
{
    int64_t v = swn_tape_value(program_->tape.get(), kind);
    if (v < 0 || v > INT32_MAX)
        throw std::bad_alloc();
    return static_cast<uint32_t>(v);
}

/* Bytes of the weights among the arguments that no step before has read. */
uint64_t ProgramBuilder::weights_first_read(const std::vector<Ref> &in)
{
    uint64_t bytes = 0;
    auto add = [&](const at::Tensor &t) {
        if (t.defined() && t.has_storage() && read_.insert(t.storage().unsafeGetStorageImpl()).second)
            bytes += t.storage().nbytes();
    };
    for (Ref r : in) {
        if (r >= 0)
            continue;
        const c10::IValue &v = program_->constants[static_cast<size_t>(~r)];
        if (v.isTensor())
            add(v.toTensor());
    }
    return bytes;
}

void ProgramBuilder::append(Step step, const std::vector<Ref> &in)
{
    std::vector<uint32_t> reads;
    step.in = in;
    step.moves.assign(in.size(), 0);
    for (Ref r : in)
        if (r >= 0)
            reads.push_back(static_cast<uint32_t>(r));
    if (swn_tape_step(program_->tape.get(), reads.data(), reads.size(), step.out.data(), step.out.size(),
                      weights_first_read(in)) < 0)
        throw std::bad_alloc();
    program_->steps.push_back(std::move(step));
}

void ProgramBuilder::finish()
{
    swn_tape *tape = program_->tape.get();
    if (program_->result >= 0)
        swn_tape_result(tape, static_cast<uint32_t>(program_->result));
    if (swn_tape_finish(tape) < 0)
        throw std::bad_alloc();
    for (size_t s = 0; s < program_->steps.size(); s++) {
        Step &step = program_->steps[s];
        size_t count;
        const uint32_t *dead = swn_tape_dead_after(tape, s, &count);
        for (size_t i = 0; i < count; i++) {
            size_t a = step.in.size();
            while (a > 0 && step.in[a - 1] != static_cast<Ref>(dead[i]))
                a--;
            if (a > 0)
                step.moves[a - 1] = 1;
            else
                step.drops.push_back(dead[i]);
        }
    }
    size_t count;
    const uint32_t *unread = swn_tape_unread(tape, &count);
    program_->unread.assign(unread, unread + count);
}

void ProgramBuilder::count_weight(const at::Tensor &t)
{
    if (t.defined() && t.has_storage() && counted_.insert(t.storage().unsafeGetStorageImpl()).second)
        program_->weight_bytes += t.storage().nbytes();
}

} // namespace swn
