// Which way a convolution is computed, what is known of it, and how that is found out.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <vector>

#include "aten_slices.h"
#include "aten_stripe_work.h"
#include "aten_trial_memory.h"
#include "aten_trials.h"
#include "aten_words.h"
#include "swn_stripe_choice.h"

namespace
{

const swn_host *host;

constexpr int64_t least_stripe = 1 << 20;
constexpr size_t most_fold = 8u << 20; // what a folded matrix may take
constexpr size_t most_mappings = 256;
constexpr size_t most_shapes = 512; // that are remembered
constexpr uint64_t most_wholes = 4; // trials that found other bits take as long as so many, at once

struct Shape {
    swn_stripe_known known{};
    swn_stripe_cut cuts[SWN_STRIPE_WAYS]{}; // the first is not used
};

std::mutex shapes_lock; // a fork waits for it
std::map<std::vector<int64_t>, Shape> shapes;

// Of this thread's tensors, as long as this lives.
class Meter
{
  public:
    Meter()
    {
        host->trial_meter(1);
    }
    Meter(const Meter &) = delete;
    ~Meter()
    {
        host->trial_meter(0);
    }
    // The most bytes at once since it began, or since this was asked.
    size_t most()
    {
        return host->trial_meter(1);
    }
};

class Clock
{
  public:
    uint64_t ns() const
    {
        auto passed = std::chrono::steady_clock::now() - begin_;
        return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count()) + 1;
    }

  private:
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

size_t in_line(const at::Tensor &tensor)
{
    return reinterpret_cast<uintptr_t>(tensor.data_ptr()) % swn_line;
}

// How the whole is computed where there is no room for its matrix: with an input that repeats itself after so many
// channels, so that the matrix does, too, and lies in as little memory. Zeros: it cannot be.
struct Fold {
    size_t input_period = 0, matrix_period = 0;
};

Fold fold_of(const swn_stripe_work &work)
{
    const at::Tensor &input = work.what.input;
    auto samples = static_cast<size_t>(input.size(0)), channels = static_cast<size_t>(input.size(1)),
         groups = static_cast<size_t>(work.what.groups), at_once = static_cast<size_t>(work.channels);
    size_t image = input.nbytes() / (samples * channels),
           block = work.matrix_bytes / ((work.matrix.together ? samples : 1) * at_once);
    auto pages = [](size_t bytes) { return swn_page / std::gcd(bytes, swn_page); };
    // Of powers of two the larger one; and not so little that there are many mappings.
    size_t n = std::max(pages(image), pages(block));
    while (n * block < std::max(work.matrix_bytes, input.nbytes()) / most_mappings)
        n *= 2;
    // Of several groups, one matrix after the other is made of some channels of each sample.
    if (at_once < channels && work.matrix.together && samples > 1 && at_once % n)
        return {};
    // Other tensors of its size would be taken for it.
    for (size_t bytes : {work.out_bytes, work.out_bytes / groups, input.nbytes() / groups})
        if (bytes >= work.matrix_bytes && bytes <= work.matrix_bytes / 8 * 9)
            return {};
    if (n * block > most_fold || n * block > work.matrix_bytes / 2)
        return {};
    return {n * image, n * block};
}

// Whether these are the same numbers, without a copy where they lie in rows.
bool same_numbers(const at::Tensor &a, const at::Tensor &b, int64_t dim)
{
    if (a.is_contiguous() && b.is_contiguous())
        return std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
    int64_t run = 1, many = 1, item = static_cast<int64_t>(a.itemsize());
    for (int64_t i = 0; i < a.dim(); i++)
        (i < dim ? many : run) *= a.size(i);
    auto in_rows = [&](const at::Tensor &t) {
        int64_t below = 1;
        for (int64_t i = t.dim() - 1; i >= dim; i--) {
            if (t.size(i) > 1 && t.stride(i) != below)
                return false;
            below *= t.size(i);
        }
        below = t.stride(dim - 1);
        for (int64_t i = dim - 1; i >= 0; i--) {
            if (t.size(i) > 1 && t.stride(i) != below)
                return false;
            below *= t.size(i);
        }
        return true;
    };
    if (!in_rows(a) || !in_rows(b))
        return swn_same_bits(a, b);
    auto x = static_cast<const char *>(a.data_ptr()), y = static_cast<const char *>(b.data_ptr());
    for (int64_t i = 0; i < many; i++)
        if (std::memcmp(x + i * a.stride(dim - 1) * item, y + i * b.stride(dim - 1) * item,
                        static_cast<size_t>(run * item)) != 0)
            return false;
    return true;
}

// Numbers to try it out with.
class Trial
{
  public:
    Trial(const swn_stripe_work &work_, const Fold &fold, const swn_stripe_cut &first, swn_numbers_kind kind)
        : work(work_), inputs(in_line(work.what.input) + work.what.input.nbytes(),
                              fold.input_period ? fold.input_period : swn_period_of(work.what.input.nbytes()),
                              work.what.input.scalar_type(), kind,
                              static_cast<size_t>(work.what.input.size(-1)) * work.what.input.itemsize()),
          weights(in_line(work.what.weight) + work.what.weight.nbytes(), swn_period_of(work.what.weight.nbytes()),
                  work.what.weight.scalar_type())
    {
        if (!inputs.base() || !weights.base())
            return;
        input = like(work.what.input, inputs);
        weight = like(work.what.weight, weights);
        if (!warm.exchange(true)) // the first use of a library takes longer
            work.part_of(first, input, weight, 0, first.samples, 0, first.rows);
        swn_folding folding(fold.matrix_period ? work.matrix_bytes : 0, fold.matrix_period);
        Meter meter;
        Clock clock;
        const swn_convolution &what = work.what;
        expect = swn_convolution{input,        weight,        what.bias,           what.stride,
                                 what.padding, what.dilation, what.output_padding, what.groups}
                     .whole();
        took_ns = clock.ns();
        // Memory that is few pages is faster than what it stands for.
        whole_ns = fold.matrix_period ? 0 : took_ns;
        whole_bytes = meter.most();
    }

    bool complete() const
    {
        return expect.defined();
    }

    // Whether these stripes have the same bits, and take less.
    bool right(const swn_stripe_cut &cut, uint64_t &ns) const
    {
        Meter meter;
        Clock clock;
        size_t n = work.each_part(cut, [&](int64_t sample, int64_t samples, int64_t row, int64_t count) {
            at::Tensor got = work.part_of(cut, input, weight, sample, samples, row, count);
            auto dim = static_cast<int64_t>(work.dim);
            return same_numbers(got, expect.narrow(0, sample, samples).narrow(dim, row, count), dim);
        });
        ns = clock.ns();
        size_t whole = whole_bytes - std::min(whole_bytes, work.out_bytes);
        return n && meter.most() < whole - whole / 4;
    }

    uint64_t took_ns = 0, whole_ns = 0; // of the whole; the latter 0 where it says nothing of the real one

  private:
    static at::Tensor like(const at::Tensor &tensor, const swn_random &memory)
    {
        return at::from_blob(memory.base() + in_line(tensor), tensor.sizes(), tensor.strides(),
                             at::dtype(tensor.scalar_type()));
    }

    static std::atomic<bool> warm;
    const swn_stripe_work &work;
    swn_random inputs, weights;
    at::Tensor input, weight, expect;
    size_t whole_bytes = 0;
};

std::atomic<bool> Trial::warm{false};

// The whole, and stripes of half of its matrix, a quarter and so on. Where rows are not computed as in the whole,
// samples may be: as many as there are threads, or one by one.
Shape ways_of(const swn_stripe_work &work)
{
    std::vector<int64_t> targets;
    for (auto bytes = static_cast<int64_t>(work.matrix_bytes / 2); bytes >= least_stripe; bytes /= 2)
        targets.push_back(bytes);
    const swn_stripe_scratch &matrix = work.matrix;
    int64_t sample = matrix.row_bytes * matrix.rows, half = static_cast<int64_t>(work.matrix_bytes / 2);
    if (matrix.together && matrix.samples > 1)
        for (int64_t samples : {int64_t{1}, std::max<int64_t>(matrix.threads, 2)})
            if (samples * sample <= half)
                targets.push_back(samples * sample);
    std::vector<swn_stripe_cut> cuts;
    for (int64_t target : targets) {
        swn_stripe_cut found[2];
        unsigned n = swn_stripe_cuts(&matrix, target, found);
        for (unsigned i = 0; i < n; i++)
            if (std::none_of(cuts.begin(), cuts.end(), [&](const swn_stripe_cut &cut) {
                    return cut.samples == found[i].samples && cut.rows == found[i].rows;
                }))
                cuts.push_back(found[i]);
    }
    std::stable_sort(cuts.begin(), cuts.end(), [&](const swn_stripe_cut &a, const swn_stripe_cut &b) {
        return work.bytes_of(a) > work.bytes_of(b);
    });
    Shape shape;
    swn_stripe_known &known = shape.known;
    known.ways[known.n++] = {matrix.rows * matrix.row_pixels, SWN_STRIPE_SAME, 0, 0};
    for (const swn_stripe_cut &cut : cuts) {
        if (known.n == SWN_STRIPE_WAYS)
            break;
        shape.cuts[known.n] = cut;
        known.ways[known.n++] = {cut.rows * matrix.row_pixels, SWN_STRIPE_UNTRIED, 0, 0};
    }
    return shape;
}

// What such stripes take while they are tried: their result is looked at beside the whole one.
std::unique_ptr<Trial> begin_trial(const swn_stripe_work &work, const swn_stripe_cut &cut, bool whole_fits,
                                   swn_numbers_kind kind)
{
    size_t room = work.bytes_of(cut) + swn_period_of(work.what.weight.nbytes()),
           whole = work.whole_bytes() - work.out_bytes + swn_period_of(work.what.input.nbytes());
    Fold fold;
    if (!whole_fits || !host->trial_room(room + whole)) {
        fold = fold_of(work);
        if (!host->trial_room(room + (fold.matrix_period ? fold.matrix_period + fold.input_period : whole)))
            return nullptr;
    }
    auto trial = std::make_unique<Trial>(work, fold, cut, kind);
    return trial->complete() ? std::move(trial) : nullptr;
}

void note(swn_stripe_way &way, uint64_t ns)
{
    if (ns && (!way.ns || ns < way.ns))
        way.ns = ns;
}

// Until it is known what to do. Returns the way.
unsigned decide(const swn_stripe_work &work, Shape &shape)
{
    swn_stripe_known &known = shape.known;
    std::unique_ptr<Trial> trial;
    for (Clock all;;) {
        swn_stripe_step step = swn_stripe_next(&known);
        if (!step.try_out)
            return step.way;
        const swn_stripe_cut &cut = shape.cuts[step.way];
        swn_stripe_way &way = known.ways[step.way];
        Clock clock;
        bool fits = known.ways[0].cost_ns != SWN_STRIPE_NO_ROOM;
        if (!trial)
            trial = begin_trial(work, cut, fits, swn_numbers_kind::ordinary);
        if (!trial)
            return 0; // there was no room; the next time there may be
        uint64_t ns = 0, took_ns = trial->took_ns, whole_ns = trial->whole_ns;
        bool right = trial->right(cut, ns);
        if (right) {
            trial.reset(); // there may be room for one
            auto odd = begin_trial(work, cut, fits, swn_numbers_kind::odd);
            uint64_t unused = 0;
            if (!odd)
                return 0;
            right = odd->right(cut, unused);
        }
        way.bits = right ? SWN_STRIPE_SAME : SWN_STRIPE_DIFFERS;
        note(way, right ? ns : 0);
        note(known.ways[0], whole_ns);
        known.tried_ns += clock.ns();
        if (!right && all.ns() > most_wholes * took_ns)
            return 0; // others are tried the next time
    }
}

void add_to(swn_key &key, const swn_convolution &what)
{
    key.add({what.groups, what.bias && what.bias->defined()});
    for (at::IntArrayRef numbers : {what.stride, what.padding, what.dilation, what.input.sizes(), what.weight.sizes()})
        key.add(numbers);
    key.add(static_cast<int64_t>(what.input.scalar_type()));
    key.add(static_cast<int64_t>(in_line(what.input)));
    key.add(static_cast<int64_t>(in_line(what.weight)));
    swn_add_settings(key);
}

at::Tensor in_stripes(const swn_stripe_work &work, const swn_stripe_cut &cut)
{
    const swn_convolution &what = work.what;
    at::Tensor out = at::empty(work.sizes, what.input.options());
    size_t n = work.each_part(cut, [&](int64_t sample, int64_t samples, int64_t row, int64_t count) {
        out.narrow(0, sample, samples)
            .narrow(static_cast<int64_t>(work.dim), row, count)
            .copy_(work.part_of(cut, what.input, what.weight, sample, samples, row, count));
        return true;
    });
    host->stripes_count(n, 0);
    return out;
}

} // namespace

at::Tensor swn_stripes_compute(const swn_stripe_work &work, uint64_t whole_cost_ns)
{
    swn_key key;
    add_to(key, work.what);
    if (!key.complete() || !swn_words_are_usual())
        return {};
    std::vector<int64_t> numbers(key.begin(), key.end());
    Shape shape;
    {
        std::lock_guard<std::mutex> guard(shapes_lock);
        auto found = shapes.find(numbers);
        if (found != shapes.end())
            shape = found->second;
    }
    if (!shape.known.n) {
        if (!whole_cost_ns)
            return {};
        shape = ways_of(work);
    }
    swn_stripe_known &known = shape.known;
    known.ways[0].cost_ns = whole_cost_ns;
    for (unsigned i = 1; i < known.n; i++)
        known.ways[i].cost_ns =
            known.ways[i].bits == SWN_STRIPE_DIFFERS ? 0 : host->stripes_room(work.bytes_of(shape.cuts[i]));
    unsigned way = decide(work, shape);
    if (!way && swn_stripe_refused(&known))
        host->stripes_count(0, 1);
    Clock clock;
    at::Tensor out = way ? in_stripes(work, shape.cuts[way]) : work.what.whole();
    uint64_t ns = clock.ns();
    if (way || whole_cost_ns != SWN_STRIPE_NO_ROOM)
        note(known.ways[way], ns);
    known.used_ns += ns;
    known.last = way;
    std::lock_guard<std::mutex> guard(shapes_lock);
    if (shapes.size() >= most_shapes)
        shapes.clear();
    shapes[numbers] = shape;
    return out;
}

void swn_stripe_choice_begin(const swn_host *h)
{
    host = h;
}

void swn_stripe_choice_before_fork()
{
    shapes_lock.lock();
}

void swn_stripe_choice_after_fork()
{
    shapes_lock.unlock();
}
