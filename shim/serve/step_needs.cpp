// shim/serve/step_needs.cpp - see step_needs.h.
#include "shim/serve/step_needs.h"

#include <algorithm>

#include "shim/serve/shared_weights.h"

namespace swn
{
namespace
{

/* Bytes of tensors that are alive in the process, and the most since the last call; 0: nothing counts them. */
uint64_t live_bytes(uint64_t *peak)
{
    return library() ? library()->tensors(peak) : 0;
}

void raise(uint64_t &to, uint64_t bytes)
{
    to = std::max(to, bytes + 1);
}

} // namespace

void StepNeeds::of(size_t first, size_t end, uint64_t *activation_bytes, uint64_t *state_bytes) const
{
    uint64_t most = 0;
    *activation_bytes = *state_bytes = 0;
    if (end >= held_.size() || held_[first] == 0 || held_[end] == 0)
        return;
    most = std::max(held_[first], held_[end]);
    for (size_t s = first; s < end; s++) {
        if (peak_[s] == 0)
            return;
        most = std::max(most, peak_[s]);
    }
    *activation_bytes = most;
    *state_bytes = held_[first] - 1;
}

Meter::Meter(StepNeeds &needs, size_t steps) : needs_(needs)
{
    needs_.held_.resize(steps + 1);
    needs_.peak_.resize(steps + 1);
}

uint64_t Meter::own(uint64_t live) const
{
    return live > others_ ? live - others_ : 0;
}

void Meter::begin()
{
    uint64_t peak, live = looks_ ? live_bytes(&peak) : 0;
    looks_ = live > 0;
    others_ = live > held_ ? live - held_ : 0;
}

void Meter::end()
{
    uint64_t peak;
    if (!looks_)
        return;
    held_ = own(live_bytes(&peak));
    if (has_inputs_)
        return;
    has_inputs_ = true;
    input_bytes_ = held_ + 1;
    looks_ = input_bytes_ > needs_.input_bytes_;
    if (looks_)
        raise(needs_.held_[0], held_);
}

bool Meter::looks() const
{
    return looks_;
}

void Meter::before_step(size_t step)
{
    uint64_t peak;
    raise(needs_.held_[step], own(live_bytes(&peak)));
}

void Meter::after_step(size_t step)
{
    uint64_t peak, live = live_bytes(&peak);
    raise(needs_.peak_[step], own(peak));
    raise(needs_.held_[step + 1], own(live));
}

void Meter::stop()
{
    looks_ = false;
}

void Meter::finish()
{
    needs_.input_bytes_ = std::max(needs_.input_bytes_, input_bytes_);
    looks_ = false;
}

} // namespace swn
