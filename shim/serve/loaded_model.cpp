// shim/serve/loaded_model.cpp - see loaded_model.h.
#include "shim/serve/loaded_model.h"

#include <algorithm>
#include <map>

#include "shim/serve/shared_weights.h"

/* Layer groups of a model, unless the caller says. Requests can be set aside between them: often enough to be fair and
 * to see a deadline, too seldom to cost anything (edge-serving paper, section 5: with five groups its planning takes 2
 * ms, with all layers 13). */
#define GROUPS_USUAL 5

namespace swn
{
namespace
{

std::vector<swn_model *> &models()
{
    static std::vector<swn_model *> all;
    return all;
}

uint64_t weight_bytes(const swn_model &m, size_t begin, size_t end)
{
    return swn_tape_weight_bytes(m.program->tape.get(), begin, end);
}

/* Where what it has in common with others ends; of each such place, the fewest weight bytes of all models that have so
 * much in common with it. All of them come to the same division up to there. */
std::map<size_t, uint64_t> common_ends(const swn_model &m)
{
    std::map<size_t, uint64_t> ends;
    std::vector<std::pair<size_t, uint64_t>> others;
    for (const swn_model *other : models()) {
        if (other == &m || other->told_groups)
            continue;
        size_t steps = common_steps(*m.program, m.steps, *other->program, other->steps);
        if (steps > 0)
            others.emplace_back(steps, weight_bytes(*other, 0, other->program->steps.size()));
    }
    for (const auto &[end, unused] : others) {
        uint64_t least = weight_bytes(m, 0, m.program->steps.size());
        for (const auto &[steps, bytes] : others)
            if (steps >= end)
                least = std::min(least, bytes);
        ends[end] = least;
    }
    return ends;
}

/* Requests that take turns in a group share what is read of it where its weights stay in memory until the last one has
 * had its turn. Plans keep part of the budget for other weights: of groups of this part of it that holds. */
constexpr uint64_t kBudgetPart = 8;

uint64_t largest_group()
{
    uint64_t budget = library() ? library()->budget() : 0;
    return budget ? std::max<uint64_t>(budget / kBudgetPart, 1) : UINT64_MAX;
}

void divide_one(swn_model &m)
{
    const uint64_t *times = m.times.empty() ? nullptr : m.times.data();
    const size_t steps = m.program->steps.size();
    std::vector<Part> parts;
    size_t used = 0, begin = 0;
    if (m.told_groups) {
        m.groups = make_groups(*m.program, {{steps, m.told_groups, times}}, UINT64_MAX, m.steps.numbers);
        return;
    }
    // By weight bytes, which all who have these steps in common agree on.
    for (const auto &[end, least] : common_ends(m)) {
        size_t share = (GROUPS_USUAL * weight_bytes(m, begin, end) + least / 2) / std::max<uint64_t>(least, 1);
        parts.push_back({end, std::clamp<size_t>(share, 1, GROUPS_USUAL), nullptr});
        used += parts.back().most;
        begin = end;
    }
    if (begin < steps || parts.empty())
        parts.push_back({steps, used < GROUPS_USUAL ? GROUPS_USUAL - used : 1, times});
    m.groups = make_groups(*m.program, parts, largest_group(), m.steps.numbers);
}

} // namespace

const std::vector<swn_model *> &all_models()
{
    return models();
}

void divide(swn_model &model)
{
    divide_one(model);
    for (swn_model *other : models())
        if (other != &model && !model.told_groups && !other->told_groups &&
            common_steps(*model.program, model.steps, *other->program, other->steps) > 0)
            divide_one(*other);
}

void add_model(swn_model &model)
{
    std::vector<const NumberedSteps *> others;
    share_weights(*model.program);
    for (const swn_model *other : models())
        others.push_back(&other->steps);
    model.steps = number_steps(*model.program, others);
    models().push_back(&model);
    divide(model);
}

void remove_model(swn_model &model)
{
    auto &all = models();
    all.erase(std::remove(all.begin(), all.end(), &model), all.end());
}

} // namespace swn
