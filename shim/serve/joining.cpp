// shim/serve/joining.cpp - see joining.h.
#include "shim/serve/joining.h"

#include <algorithm>
#include <time.h>
#include <unordered_set>

#include <ATen/ATen.h>

#include "shim/serve/input_check.h"
#include "shim/serve/memory_error.h"
#include "shim/serve/shared_weights.h"
#include "shim/serve/wire_tensors.h"
#include "shim/torch/fp_control.h"
#include "shim/torch/math_settings.h"

namespace swn
{
namespace
{

constexpr size_t kCasesMost = 512;
/* Of the budget, what tensors of joined requests may take. The requests themselves hold as much at most, and the rest
 * is for weights. */
constexpr uint64_t kRoomPart = 4;

/* The most bytes that the request's tensors have at once, from those on that the group begins with. */
class PeakWatch : public StepWatch
{
  public:
    /* Joined, each of them has memory of its own for all of its numbers, whatever they share now. */
    explicit PeakWatch(const Activation &a)
    {
        for (const auto &[number, v] : a.live())
            if (v.isTensor() && v.toTensor().defined() && v.toTensor().has_storage())
                peak += std::max(v.toTensor().nbytes(), v.toTensor().storage().nbytes());
    }

    void before(const Step &, const torch::jit::Stack &) override
    {
    }

    void after(const Step &, const std::vector<c10::IValue> &values) override
    {
        std::unordered_set<const void *> seen;
        uint64_t bytes = 0;
        for (const c10::IValue &v : values)
            if (v.isTensor() && v.toTensor().defined() && v.toTensor().has_storage() &&
                seen.insert(v.toTensor().storage().unsafeGetStorageImpl()).second)
                bytes += v.toTensor().storage().nbytes();
        peak = std::max(peak, bytes);
    }

    uint64_t peak = 0;
};

bool is_plain(const at::Tensor &t)
{
    return t.defined() && t.layout() == at::kStrided && t.device().is_cpu() && !t.is_quantized() && t.dim() > 0 &&
           t.size(0) > 0;
}

void add(Numbers &to, at::IntArrayRef numbers)
{
    to.insert(to.end(), numbers.begin(), numbers.end());
    to.push_back(-1);
}

/* Whether two of these share memory to which the groups from the next one on may write. Joined or parted, each has
 * memory of its own, and what is written to one of them is not seen in the other. */
bool are_entangled(const std::vector<at::Tensor> &tensors, const Activation &a)
{
    std::unordered_set<const void *> storages;
    for (const at::Tensor &t : tensors)
        storages.insert(t.storage().unsafeGetStorageImpl());
    if (storages.size() == tensors.size() || a.next_group() == a.groups().size())
        return false;
    const std::vector<Step> &steps = a.program().steps;
    return std::any_of(steps.begin() + static_cast<ptrdiff_t>(a.groups()[a.next_group()].first), steps.end(),
                       [](const Step &step) { return may_write(step); });
}

/* All that a group's bits may depend on, but for the numbers. */
std::optional<Numbers> key_of(const JoinShape &shape, const Activation &a)
{
    Numbers key = shape.inputs;
    std::vector<at::Tensor> tensors;
    key.push_back(static_cast<int64_t>(a.next_group()));
    for (const auto &[number, v] : a.live()) {
        if (!v.isTensor() || !is_plain(v.toTensor()))
            return {};
        const at::Tensor t = v.toTensor();
        tensors.push_back(t);
        key.push_back(number);
        key.push_back(static_cast<int64_t>(t.scalar_type()));
        add(key, t.sizes());
        add(key, t.strides());
    }
    if (are_entangled(tensors, a))
        return {};
    for (int64_t setting : swn_math_settings())
        key.push_back(setting);
    return key;
}

Left left_of(uint32_t value, const at::Tensor &t)
{
    return {value, t.scalar_type(), t.sizes().vec(), t.strides().vec()};
}

/* Each request's part, in memory of its own, and laid out as it would be after a run alone. */
at::Tensor part_of(const at::Tensor &joined, const Left &left, int64_t i)
{
    at::Tensor own = at::empty_strided(left.sizes, left.strides, joined.options());
    own.copy_(joined.narrow(0, i * left.sizes[0], left.sizes[0]));
    return own;
}

/* All parts are made before the first request moves on, which cannot fail: they all do, or none. */
void hand_out(Activation &together, const JoinCase &c, const std::vector<JoinMember> &members, size_t n)
{
    struct Part {
        Activation::Live live;
        std::vector<std::pair<std::string, at::Tensor>> outputs;
    };
    bool is_last = together.next_group() == together.groups().size();
    std::vector<at::Tensor> tensors = tensors_left(together);
    std::vector<Part> parts(n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < tensors.size(); k++) {
            at::Tensor own = part_of(tensors[k], c.left[k], static_cast<int64_t>(i));
            if (is_last)
                parts[i].outputs.emplace_back(together.outputs()[k].first, std::move(own));
            else
                parts[i].live.emplace_back(c.left[k].value, std::move(own));
        }
    for (size_t i = 0; i < n; i++)
        if (is_last)
            members[i].values->end(std::move(parts[i].outputs));
        else
            members[i].values->go_on(together.next_group(), std::move(parts[i].live));
}

} // namespace

JoinShape shape_of(const Program &program, const std::vector<at::Tensor> &inputs)
{
    JoinShape shape;
    if (program.has_state || inputs.size() != program.inputs.size() || inputs.empty())
        return shape;
    for (const at::Tensor &t : inputs) {
        if (!is_plain(t) || t.size(0) != inputs[0].size(0))
            return {};
        shape.inputs.push_back(static_cast<int64_t>(t.scalar_type()));
        add(shape.inputs, t.sizes());
    }
    shape.samples = static_cast<uint64_t>(inputs[0].size(0));
    return shape;
}

swn_join_limits limits_of(const Joining &joining, uint64_t samples)
{
    uint64_t budget = library() ? library()->budget() : 0;
    return {joining.bits, joining.batch_most, samples, budget ? budget / kRoomPart : UINT64_MAX};
}

bool takes_joined(const Program &program, const Numbers &inputs, uint64_t n)
{
    InputCheck check(program);
    size_t at = 0;
    try {
        for (const Input &input : program.inputs) {
            swn_wire_tensor t = {};
            t.element = element_of(static_cast<at::ScalarType>(inputs[at++]));
            for (; inputs[at] >= 0 && t.rank < SWN_WIRE_RANK; at++)
                t.shape[t.rank++] = inputs[at];
            at++;
            t.shape[0] *= static_cast<int64_t>(n);
            check.tensor(input, t);
        }
    } catch (const BadInput &) {
        return false;
    }
    return true;
}

std::optional<Numbers> join_key(const Joining &joining, const std::shared_ptr<const Groups> &division,
                                const JoinShape &shape, const Activation &a)
{
    if (joining.batch_most < 2 || !shape.samples || a.division() != division || a.next_group() >= division->size())
        return {};
    std::optional<Numbers> key = key_of(shape, a);
    if (key && joining.division == division && joining.cases.size() >= kCasesMost && !joining.cases.count(*key))
        return {};
    return key;
}

JoinCase &join_case(Joining &joining, const Numbers &key, const JoinShape &shape, const Activation &a)
{
    if (joining.division != a.division()) {
        joining.cases.clear();
        joining.over.clear();
        joining.tried = joining.interrupted = 0;
        joining.latest.assign(a.groups().size(), {});
        joining.division = a.division();
    }
    JoinCase &found = joining.cases.try_emplace(key).first->second;
    joining.latest[a.next_group()] = {shape.inputs, &found};
    return found;
}

uint64_t computing_ns()
{
    timespec t;
    uint64_t read = 0, waited = 0;
    clock_gettime(CLOCK_MONOTONIC, &t);
    if (library())
        library()->progress(&read, &waited);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec) - waited;
}

std::vector<at::Tensor> tensors_left(Activation &a)
{
    std::vector<at::Tensor> found;
    if (a.next_group() == a.groups().size())
        for (const auto &output : a.outputs())
            found.push_back(output.second);
    else
        for (const auto &[number, v] : a.live())
            found.push_back(v.isTensor() ? v.toTensor() : at::Tensor());
    return found;
}

std::vector<Left> what_is_left(Activation &a)
{
    std::vector<Left> found;
    bool is_last = a.next_group() == a.groups().size();
    Activation::Live live = is_last ? Activation::Live() : a.live();
    std::vector<at::Tensor> tensors = tensors_left(a);
    for (size_t k = 0; k < tensors.size(); k++) {
        if (!is_plain(tensors[k]) || !tensors[k].is_non_overlapping_and_dense())
            return {};
        found.push_back(left_of(is_last ? 0 : live[k].first, tensors[k]));
    }
    if (are_entangled(tensors, a))
        return {};
    return found;
}

void run_alone(JoinCase &c, Activation &a, std::vector<uint64_t> *step_ns)
{
    PeakWatch peak(a);
    uint64_t began = computing_ns(), ended;
    a.run_group(a.next_group(), step_ns, c.has_left ? nullptr : &peak);
    ended = computing_ns();
    swn_join_ran_alone(&c.known, ended > began ? ended - began : 0);
    if (c.has_left)
        return;
    c.left = what_is_left(a);
    c.known.peak_bytes = peak.peak;
    c.has_left = true;
}

bool is_n_times(const std::vector<Left> &joined, const std::vector<Left> &alone, uint64_t n)
{
    if (joined.size() != alone.size() || alone.empty())
        return false;
    for (size_t k = 0; k < alone.size(); k++) {
        Numbers sizes = alone[k].sizes;
        sizes[0] *= static_cast<int64_t>(n);
        if (joined[k].value != alone[k].value || joined[k].type != alone[k].type || joined[k].sizes != sizes)
            return false;
    }
    return true;
}

Activation::Live join_live(const std::vector<Activation::Live> &lives)
{
    Activation::Live joined;
    for (size_t k = 0; k < lives[0].size(); k++) {
        std::vector<at::Tensor> parts;
        for (const Activation::Live &live : lives)
            parts.push_back(live[k].second.toTensor());
        joined.emplace_back(lives[0][k].first, at::cat(parts));
    }
    return joined;
}

size_t run_joined(const Program &program, Joining &joining, const std::shared_ptr<const Groups> &division,
                  const std::vector<JoinMember> &members)
{
    std::optional<Numbers> key = join_key(joining, division, *members[0].shape, *members[0].values);
    uint32_t like = 1;
    unsigned which = 0;
    if (!key)
        return 0;
    JoinCase *c = &join_case(joining, *key, *members[0].shape, *members[0].values);
    if (c->left.empty())
        return 0;
    swn_join_limits limits = limits_of(joining, members[0].shape->samples);
    size_t n = swn_join_choose(&c->known, &limits, static_cast<uint32_t>(members.size()), &which);
    if (n < 2 || !swn_words_are_usual())
        return 0;
    while (like < n && join_key(joining, division, *members[like].shape, *members[like].values) == key)
        like++;
    n = swn_join_choose(&c->known, &limits, like, &which);
    if (n < 2)
        return 0;
    swn_join_case &now = c->known.of[which];
    if (!now.runs && !takes_joined(program, members[0].shape->inputs, n)) {
        now.verdict = SWN_JOIN_CANNOT;
        return 0;
    }
    try {
        std::vector<Activation::Live> lives;
        for (size_t i = 0; i < n; i++)
            lives.push_back(members[i].values->live());
        Activation together(program, division, joining.aside);
        uint64_t began = computing_ns(), ended;
        together.go_on(members[0].values->next_group(), join_live(lives));
        together.run_group(together.next_group(), nullptr);
        if (!is_n_times(what_is_left(together), c->left, n)) {
            now.verdict = SWN_JOIN_CANNOT;
            return 0;
        }
        hand_out(together, *c, members, n);
        ended = computing_ns();
        swn_join_ran(&now, ended > began ? ended - began : 1);
        return n;
    } catch (const std::exception &e) {
        if (!is_out_of_memory(e))
            swn_join_failed(&now);
        else if (limits.room_bytes == UINT64_MAX)
            now.verdict = SWN_JOIN_CANNOT;
        else
            c->known.peak_bytes = std::max(c->known.peak_bytes, limits.room_bytes / n + 1);
    }
    return 0;
}

} // namespace swn
