// shim/serve/join_trial.cpp - see join_trial.h.
#include "shim/serve/join_trial.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <time.h>
#include <unordered_set>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#include "shim/serve/memory_error.h"
#include "shim/serve/shared_weights.h"
#include "shim/torch/fp_control.h"

namespace swn
{
namespace
{

constexpr size_t kKeptMost = 4; /* requests of one shape */
constexpr size_t kShapesMost = 16;
/* Of the budget, what kept requests of all models may take. */
constexpr uint64_t kKeptPart = 16;
constexpr uint64_t kKeptBytes = UINT64_C(64) << 20; /* without a budget */
constexpr uint64_t kKeptNs = UINT64_C(10000000000);
/* After so many trials in a row that a message has ended before they found anything, this number of requests is not
 * joined. */
constexpr unsigned kInterruptedMost = 3;
/* A vector loop takes two vectors at once, of 512 bits of 16-bit numbers at most. */
constexpr int64_t kVector = 64;

struct Interrupted {
};

/* No request of this shape has run since the model was divided. */
struct NotYet {
};

/* So many requests at once, and more, take too much memory or time. */
struct TooMany {
};

// The numbers with which a group is tried. With the first two rules are looked at, with the others time is taken.
enum class Kind { real, ordinary, other, denormal, odd };
constexpr Kind kinds[] = {Kind::real, Kind::ordinary, Kind::other, Kind::denormal, Kind::odd};

/* ---- rules: what equal bits in a trial could not show ---- */

template <class Function> void each_tensor(const c10::IValue &v, Function &&function)
{
    if (v.isTensor()) {
        if (v.toTensor().defined() && v.toTensor().has_storage())
            function(v.toTensor());
    } else if (v.isTensorList() || v.isList()) {
        for (const c10::IValue &element : v.toListRef())
            each_tensor(element, function);
    } else if (v.isTuple()) {
        for (const c10::IValue &element : v.toTupleRef().elements())
            each_tensor(element, function);
    }
}

/* Memory that has numbers of the request in it, whichever tensors show it. The storages' addresses stay taken, so that
 * none gets that of another one which has gone. */
class Touched
{
  public:
    void add(const c10::IValue &v)
    {
        each_tensor(v, [&](const at::Tensor &t) {
            storages_.emplace(t.storage().unsafeGetStorageImpl(), t.storage().getWeakStorageImpl());
        });
    }

    void add(const Touched &others)
    {
        storages_.insert(others.storages_.begin(), others.storages_.end());
    }

    bool has(const c10::IValue &v) const
    {
        bool found = false;
        each_tensor(v,
                    [&](const at::Tensor &t) { found = found || storages_.count(t.storage().unsafeGetStorageImpl()); });
        return found;
    }

  private:
    std::map<const void *, c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;
};

/* What a group's steps make of numbers of the request, and whether a rule speaks against joining. */
class RuleWatch : public StepWatch
{
  public:
    RuleWatch(const Activation::Live &live, int (*is_wanted)()) : is_wanted_(is_wanted)
    {
        for (const auto &[number, v] : live) {
            of_request_.insert(number);
            touched_.add(v);
        }
    }

    void before(const Step &step, const torch::jit::Stack &stack) override
    {
        if (is_wanted_())
            throw Interrupted();
        reads_ = false;
        written_ = Touched();
        for (size_t i = 0; i < step.in.size(); i++) {
            if (step.in[i] < 0) // a step that writes to a constant is none of a program that can be joined
                continue;
            reads_ = reads_ || of_request_.count(static_cast<uint32_t>(step.in[i])) || touched_.has(stack[i]);
            if (step.writes)
                written_.add(stack[i]);
        }
        stack_ = reads_ ? stack : torch::jit::Stack();
        is_sound = is_sound && !(reads_ && step.kind == Step::kOpaque);
        at_vectors_ = true;
        for (const c10::IValue &v : stack_)
            if (v.isTensor() && v.toTensor().defined() && !v.toTensor().is_non_overlapping_and_dense())
                at_vectors_ = false;
    }

    void after(const Step &step, const std::vector<c10::IValue> &values) override
    {
        bool shows = false; // what it has written
        for (uint32_t v : step.out) {
            of_request_.erase(v);
            if (!reads_)
                continue;
            shows = shows || values[v].isTensor();
            touched_.add(values[v]);
            if (values[v].isTensor())
                made(values[v].toTensor());
            else if (values[v].isTensorList())
                for (const at::Tensor &t : values[v].toTensorVector())
                    made(t);
            else if (is_told_without_data(step))
                continue;
            else
                is_sound = false;
            of_request_.insert(v);
        }
        if (reads_ && step.writes) {
            touched_.add(written_);
            is_sound = is_sound && shows;
        }
        stack_.clear();
        written_ = Touched();
    }

    bool is_sound = true;
    std::vector<Numbers> sizes; /* of each tensor that was made of the request's */

  private:
    void made(const at::Tensor &t)
    {
        sizes.push_back(t.sizes().vec());
        if (t.is_floating_point() || t.is_complex())
            is_sound = is_sound && is_whole_vectors(t);
    }

    /* A kernel that goes over elements takes as many as fit a vector, and the last ones of its thread one by one, which
     * may round functions in another way. Which ones these are must not depend on the number of requests. */
    bool is_whole_vectors(const at::Tensor &t) const
    {
        int64_t parts = (t.numel() + at::internal::GRAIN_SIZE - 1) / at::internal::GRAIN_SIZE;
        parts = std::max<int64_t>(1, std::min<int64_t>(parts, at::get_num_threads()));
        bool is_whole = t.numel() % (parts * kVector) == 0;
        return is_whole && (at_vectors_ || (t.dim() > 0 && t.size(-1) % kVector == 0));
    }

    /* Sizes and types of tensors, and what follows from them, are no numbers of the request: an operator tells them of
     * tensors that have no data. */
    bool is_told_without_data(const Step &step)
    {
        if (step.kind != Step::kOperator)
            return false;
        for (c10::IValue &v : stack_)
            if (v.isTensor() && v.toTensor().defined())
                v = at::empty_strided(v.toTensor().sizes(), v.toTensor().strides(),
                                      v.toTensor().options().device(at::kMeta));
        try {
            step.op(stack_);
        } catch (const std::exception &) {
            return false;
        }
        return true;
    }

    int (*is_wanted_)();
    std::unordered_set<uint32_t> of_request_; /* values that depend on its numbers */
    Touched touched_, written_;               /* written_: to which the step may write */
    torch::jit::Stack stack_;
    bool reads_ = false, at_vectors_ = true;
};

/* Each tensor of a joined run is n times as long as that of a request alone, in its first dimension only: none is a sum
 * or a choice over requests. */
bool is_n_times_each(const std::vector<Numbers> &joined, const std::vector<Numbers> &alone, uint64_t n)
{
    if (joined.size() != alone.size())
        return false;
    for (size_t i = 0; i < alone.size(); i++) {
        Numbers sizes = alone[i];
        if (sizes.empty())
            return false;
        sizes[0] *= static_cast<int64_t>(n);
        if (sizes != joined[i])
            return false;
    }
    return true;
}

/* ---- numbers ---- */

/* The elements of the tensors in any order, for types without arithmetic. */
at::Tensor shuffled(const at::Tensor &like, at::Generator generator)
{
    at::Tensor flat = like.contiguous().view(-1);
    return flat.index_select(0, at::randint(flat.numel(), {flat.numel()}, generator, at::dtype(at::kLong)))
        .view(like.sizes());
}

void sprinkle(at::Tensor &numbers, at::Generator generator)
{
    static const uint32_t odd[] = {0x7f800000, 0xff800000, 0x7fc00001, 0xffc12345, 0x7f812345, 0x80000000,
                                   0x00000000, 0x00000001, 0x807fffff, 0x7f7fffff, 0x00800000};
    at::Tensor at =
        at::randint(numbers.numel(), {std::max<int64_t>(1, numbers.numel() / 4096)}, generator, at::dtype(at::kLong));
    auto *to = static_cast<char *>(numbers.data_ptr());
    for (int64_t i = 0; i < at.numel(); i++)
        memcpy(to + 4 * at.data_ptr<int64_t>()[i], &odd[static_cast<size_t>(i) % std::size(odd)], 4);
}

at::Tensor numbers_like(const at::Tensor &real, Kind kind, at::Generator generator)
{
    at::Tensor numbers;
    if (kind == Kind::real)
        numbers = real;
    else if (!real.is_floating_point()) {
        numbers = shuffled(real, generator);
    } else {
        double scale = real.abs().nan_to_num(1, 1, 1).max().to(at::kDouble).item<double>();
        numbers = at::randn(real.sizes(), generator, at::dtype(at::kFloat));
        numbers.mul_(kind == Kind::denormal ? 1e-39 : scale > 0 && scale < 1e30 ? scale : 1.0);
        if (kind == Kind::denormal) // a quarter of them zeros, of either sign
            numbers.mul_(at::randint(4, real.sizes(), generator, at::dtype(at::kFloat)).clamp_max_(1));
        if (kind == Kind::odd)
            sprinkle(numbers, generator);
    }
    at::Tensor own = at::empty_strided(real.sizes(), real.strides(), real.options());
    return own.copy_(numbers);
}

Activation::Live numbers_like(const Activation::Live &real, Kind kind, const at::Generator &generator)
{
    Activation::Live found;
    for (const auto &[number, v] : real)
        found.emplace_back(number, numbers_like(v.toTensor(), kind, generator));
    return found;
}

bool is_same(const std::vector<at::Tensor> &joined, const std::vector<at::Tensor> &alone, size_t i)
{
    for (size_t k = 0; k < alone.size(); k++) {
        int64_t rows = alone[k].size(0);
        at::Tensor a = alone[k].contiguous();
        at::Tensor b = joined[k].narrow(0, static_cast<int64_t>(i) * rows, rows).contiguous();
        if (a.nbytes() != b.nbytes() || memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) != 0)
            return false;
    }
    return true;
}

bool is_same_for_all(const std::vector<at::Tensor> &joined, const std::vector<std::vector<at::Tensor>> &alone)
{
    for (size_t i = 0; i < alone.size(); i++)
        if (!is_same(joined, alone[i], i))
            return false;
    return true;
}

/* PyTorch's random numbers. A model that draws some is not joined, and a trial draws none of its next request's. */
class RandomState
{
  public:
    RandomState() : generator_(at::detail::getDefaultCPUGenerator()), state_(now())
    {
    }

    ~RandomState()
    {
        restore();
    }

    /* Whether nobody has drawn any. */
    bool restore()
    {
        if (at::equal(state_, now()))
            return true;
        std::lock_guard<std::mutex> guard(generator_.mutex());
        generator_.set_state(state_);
        return false;
    }

  private:
    at::Tensor now()
    {
        std::lock_guard<std::mutex> guard(generator_.mutex());
        return generator_.get_state();
    }

    at::Generator generator_;
    at::Tensor state_;
};

/* ---- a trial ---- */

class Trial
{
  public:
    Trial(swn_model &model, unsigned which, int (*is_wanted)())
        : model_(model), which_(which), n_(swn_join_size(which)), is_wanted_(is_wanted),
          generator_(at::detail::createCPUGenerator(0x5157 + which))
    {
        for (const at::Tensor &t : model.joining.kept[0])
            inputs_.push_back(t);
        shape_ = shape_of(*model.program, inputs_);
    }

    void run()
    {
        std::vector<Activation::Live> lives;
        if (!takes_joined(*model_.program, shape_.inputs, n_))
            return;
        for (size_t i = 0; i < n_; i++) {
            Activation a(*model_.program, model_.groups, model_.joining.aside);
            const KeptInputs &kept = model_.joining.kept[i % model_.joining.kept.size()];
            for (size_t k = 0; k < kept.size(); k++)
                a.set_input(k, kept[k]);
            lives.push_back(a.live());
        }
        for (size_t g = 0; g < model_.groups->size() && !lives.empty(); g++)
            lives = try_group(g, lives);
    }

    bool has_found = false; /* what is new */

  private:
    /* Only what is known to write to nothing but the trial's own tensors is run. */
    bool may_run(size_t group) const
    {
        const LayerGroup &g = (*model_.groups)[group];
        auto first = model_.program->steps.begin();
        return std::none_of(first + static_cast<ptrdiff_t>(g.first), first + static_cast<ptrdiff_t>(g.end), is_untold);
    }

    Activation begin(size_t group, Activation::Live live) const
    {
        Activation a(*model_.program, model_.groups, model_.joining.aside);
        a.go_on(group, std::move(live));
        return a;
    }

    std::vector<Activation::Live> copies(const std::vector<Activation::Live> &lives, Kind kind)
    {
        std::vector<Activation::Live> own;
        for (const Activation::Live &live : lives)
            own.push_back(numbers_like(live, kind, generator_));
        return own;
    }

    /* The values behind the group, of each request; none: there is no next group, or requests cannot be told apart. */
    std::vector<Activation::Live> try_group(size_t group, const std::vector<Activation::Live> &lives)
    {
        Activation first = begin(group, lives[0]);
        std::optional<Numbers> key = join_key(model_.joining, model_.groups, shape_, first);
        if (!key || !swn_words_are_usual())
            return {};
        JoinCase &c = join_case(model_.joining, *key, shape_, first);
        swn_join_case &now = c.known.of[which_];
        swn_join_limits limits = limits_of(model_.joining, shape_.samples);
        std::vector<Activation::Live> behind;
        if (!may_run(group)) {
            now.verdict = SWN_JOIN_CANNOT;
            return {};
        }
        if (!c.has_left || !c.known.alone_ns)
            throw NotYet();
        if (!swn_join_may_try(&c.known, which_, &limits))
            throw TooMany();
        if (now.verdict != SWN_JOIN_UNTRIED) {
            auto own = copies(lives, Kind::real);
            run_each(c, group, own, interrupt_, &behind);
            return behind;
        }
        swn_join_verdict verdict = SWN_JOIN_EQUAL;
        for (Kind kind : kinds) {
            swn_join_verdict found = try_numbers(c, group, lives, kind, behind);
            verdict = std::max(verdict, found);
            if (verdict != SWN_JOIN_EQUAL)
                break;
        }
        now.verdict = verdict;
        has_found = true;
        return behind;
    }

    /* Both ways. behind: of the real numbers, what each request leaves. */
    swn_join_verdict try_numbers(JoinCase &c, size_t group, const std::vector<Activation::Live> &lives, Kind kind,
                                 std::vector<Activation::Live> &behind)
    {
        std::vector<Activation::Live> own = copies(lives, kind);
        bool is_ruled = kind <= Kind::ordinary;
        RandomState random;
        RuleWatch rules(own[0], is_wanted_), rules_joined(own[0], is_wanted_);
        Activation together = begin(group, join_live(own));
        auto alone = run_each(c, group, own, is_ruled ? static_cast<StepWatch &>(rules) : interrupt_,
                              kind == Kind::real ? &behind : nullptr);
        if (c.left.empty() || !random.restore() || !rules.is_sound)
            return SWN_JOIN_CANNOT;
        uint64_t ns = timed(together, is_ruled ? static_cast<StepWatch &>(rules_joined) : interrupt_);
        if (kind == Kind::real)
            sizes_ = rules.sizes;
        if (is_ruled &&
            (!rules_joined.is_sound || rules.sizes != sizes_ || !is_n_times_each(rules_joined.sizes, rules.sizes, n_)))
            return SWN_JOIN_CANNOT;
        if (!random.restore() || !is_n_times(what_is_left(together), c.left, n_))
            return SWN_JOIN_CANNOT;
        if (kind == Kind::real || !is_ruled) // the first time prepares kernels
            swn_join_ran(&c.known.of[which_], ns);
        return is_same_for_all(tensors_left(together), alone) ? SWN_JOIN_EQUAL : SWN_JOIN_DIFFERS;
    }

    static uint64_t timed(Activation &a, StepWatch &watch)
    {
        uint64_t began = computing_ns(), ended;
        a.run_group(a.next_group(), nullptr, &watch);
        ended = computing_ns();
        return ended > began ? ended - began : 1;
    }

    /* What each request leaves. watch: of the first one. behind, unless it is NULL or the last group: likewise, as
     * values; none if they cannot be joined. */
    std::vector<std::vector<at::Tensor>> run_each(JoinCase &c, size_t group, std::vector<Activation::Live> &own,
                                                  StepWatch &watch, std::vector<Activation::Live> *behind)
    {
        std::vector<std::vector<at::Tensor>> found;
        for (size_t i = 0; i < n_; i++) {
            Activation a = begin(group, std::move(own[i]));
            uint64_t ns = timed(a, i == 0 ? watch : interrupt_);
            if (&watch == &interrupt_)
                swn_join_ran_alone(&c.known, ns);
            found.push_back(tensors_left(a));
            if (behind && group + 1 < model_.groups->size() && !c.left.empty())
                behind->push_back(a.live());
        }
        return found;
    }

    class Interrupt : public StepWatch
    {
      public:
        explicit Interrupt(int (*is_wanted)()) : is_wanted_(is_wanted)
        {
        }
        void before(const Step &, const torch::jit::Stack &) override
        {
            if (is_wanted_())
                throw Interrupted();
        }
        void after(const Step &, const std::vector<c10::IValue> &) override
        {
        }

      private:
        int (*is_wanted_)();
    };

    swn_model &model_;
    unsigned which_;
    size_t n_;
    int (*is_wanted_)();
    Interrupt interrupt_{is_wanted_};
    at::Generator generator_;
    std::vector<at::Tensor> inputs_;
    JoinShape shape_;
    std::vector<Numbers> sizes_; /* of the group's tensors; they may not depend on numbers */
};

bool is_divided(const swn_model &m)
{
    return m.told_groups > 0 || !m.times.empty();
}

/* The next number of requests for which a trial of the model is to be made; SWN_JOIN_SIZES: none. */
unsigned next_case(const swn_model &m)
{
    const Joining &j = m.joining;
    if (j.kept.empty() || !is_divided(m))
        return SWN_JOIN_SIZES;
    uint64_t samples = static_cast<uint64_t>(j.kept[0][0].size(0));
    for (unsigned i = 0; i < SWN_JOIN_SIZES; i++)
        if (!(j.tried >> i & 1))
            return swn_join_size(i) * samples <= j.batch_most ? i : SWN_JOIN_SIZES;
    return SWN_JOIN_SIZES;
}

uint64_t bytes_of(const std::vector<at::Tensor> &inputs)
{
    uint64_t bytes = 0;
    for (const at::Tensor &t : inputs)
        bytes += t.nbytes();
    return bytes;
}

uint64_t now_ns()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

/* Drops what waits for too long. The bytes that are still kept, of all models. */
uint64_t kept_bytes(uint64_t now)
{
    uint64_t bytes = 0;
    for (swn_model *m : all_models()) {
        if (now - m->joining.kept_ns > kKeptNs)
            m->joining.kept.clear();
        for (const KeptInputs &kept : m->joining.kept)
            bytes += bytes_of(kept);
    }
    return bytes;
}

void keep(swn_model &model, const JoinShape &shape, const std::vector<at::Tensor> &inputs)
{
    Joining &j = model.joining;
    uint64_t budget = library() ? library()->budget() : 0, now = now_ns();
    if (j.batch_most < 2 || j.bits != SWN_JOIN_EXACT || !shape.samples || 2 * shape.samples > j.batch_most)
        return;
    if (j.over.size() >= kShapesMost || j.over.count(shape.inputs))
        return;
    if (kept_bytes(now) + bytes_of(inputs) > (budget ? budget / kKeptPart : kKeptBytes))
        return;
    if (j.kept.size() >= kKeptMost || (!j.kept.empty() && j.kept_shape != shape.inputs))
        return;
    KeptInputs own;
    for (const at::Tensor &t : inputs)
        own.push_back(t.clone());
    if (j.kept_shape != shape.inputs) {
        j.kept_shape = shape.inputs;
        j.tried = j.interrupted = 0;
    }
    if (j.kept.empty())
        j.kept_ns = now;
    j.kept.push_back(std::move(own));
}

/* Requests of that shape have been tried as far as is possible now. */
void end_trials(const swn_model &m, Joining &j)
{
    if (!j.kept.empty() && is_divided(m)) {
        j.over.insert(j.kept_shape);
        j.kept_shape.clear();
    }
    j.kept.clear();
}

/* One trial. What it has not tried is not joined: such requests go on one after the other. */
void try_case(swn_model &m, unsigned which, int (*is_wanted)())
{
    const unsigned all = (1u << SWN_JOIN_SIZES) - 1;
    Joining &j = m.joining;
    Trial trial(m, which, is_wanted);
    try {
        RandomState random;
        trial.run();
    } catch (const Interrupted &) {
        j.interrupted = trial.has_found ? 0 : j.interrupted + 1;
        if (j.interrupted < kInterruptedMost)
            return;
    } catch (const NotYet &) {
        j.kept.clear(); // the next requests are kept
        return;
    } catch (const TooMany &) {
        j.tried |= all & ~((1u << which) - 1);
    } catch (const std::exception &e) {
        if (is_out_of_memory(e))
            j.tried |= all & ~((1u << which) - 1);
    }
    j.tried |= 1u << which;
    j.interrupted = 0;
    j.kept_ns = now_ns();
}

} // namespace

void keep_for_trial(swn_model &model, const JoinShape &shape, const std::vector<at::Tensor> &inputs) noexcept
{
    try {
        keep(model, shape, inputs);
    } catch (...) { // no request fails for it
    }
}

void drop_kept(const std::vector<swn_model *> &models) noexcept
{
    for (swn_model *m : models)
        m->joining.kept.clear();
}

bool try_joining(const std::vector<swn_model *> &models, int (*is_wanted)())
{
    static size_t turn = 0;
    size_t begin = turn;
    kept_bytes(now_ns());
    for (size_t i = 0; i < models.size(); i++) {
        swn_model *m = models[(begin + i) % models.size()];
        unsigned which = next_case(*m);
        if (which < SWN_JOIN_SIZES) {
            turn = (begin + i + 1) % models.size();
            try_case(*m, which, is_wanted);
            return true;
        }
        end_trials(*m, m->joining);
    }
    return false;
}

} // namespace swn
