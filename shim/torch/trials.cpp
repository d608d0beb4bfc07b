// shim/torch/trials.cpp - see trials.h.
#include "shim/torch/trials.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>

#include "shim/torch/trial_memory.h"
#include "shim/torch/fp_control.h"
#include "shim/torch/math_settings.h"
#include "shim/torch/services.h"

namespace
{

// Rows after which a weight repeats itself where kernels copy it in blocks of rows: blocks have 8 to 64 rows, or one
// group.
constexpr size_t block_rows = 64;
constexpr size_t most_trials = 512; // shapes that are remembered

struct Less {
    using is_transparent = void;
    template <typename A, typename B> bool operator()(const A &a, const B &b) const
    {
        return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
    }
};

enum class Found { same, differs, no_room };

// The result of a trial.
struct Trial {
    Found found = Found::no_room; // no_room: not tried, but may be tried again
    size_t folded = 0;            // most rows after which folded copies of the weight gave other bits
};

std::mutex trials_lock; // a fork waits for it
std::map<std::vector<int64_t>, Trial, Less> trials;

size_t weight_in_page(const swn_sliced &what)
{
    return static_cast<size_t>(what.weight.storage_offset()) * what.weight.itemsize() % swn_page;
}

size_t input_in_line(const swn_sliced &what)
{
    return reinterpret_cast<uintptr_t>(what.input.data_ptr()) % swn_line;
}

// As many rows as fill whole pages: a copy in the kernel's own order, block by block of rows, repeats itself as well,
// and needs as little memory. 0: that would be too much.
size_t period_of_rows(const swn_sliced &what, size_t rows)
{
    size_t period = what.row_bytes * rows / std::gcd(what.row_bytes * rows, swn_page) * swn_page;
    return period <= swn_most_period && period < what.weight.nbytes() ? period : 0;
}

// One trial with numbers of that kind, in which the weight repeats itself after `period` bytes. If copies of all of it
// are folded, they are right if the kernel copies block by block of rows; otherwise their numbers differ, and so do the
// bits.
Found same_with(const swn_numbers_kind kind, const swn_sliced &what, const swn_partition_points &cuts, size_t period,
                bool folded)
{
    size_t off = folded ? 0 : weight_in_page(what), to = input_in_line(what);
    size_t weight_bytes = off + what.weight.nbytes(), input_bytes = to + swn_extent(what.input);
    swn_random weights(weight_bytes, period, what.type, kind, what.row_bytes),
        inputs(input_bytes, swn_period_of(input_bytes), what.type);
    if (!weights.base() || !inputs.base())
        return Found::no_room;
    const char *first = weights.base() + off;
    at::Tensor from = at::from_blob(inputs.base() + to, what.input.sizes(), what.input.strides(), at::dtype(what.type));
    at::Tensor expect;
    {
        swn_folding folding(folded ? what.weight.nbytes() : 0, period);
        expect = what.part_of(from, first, 0, what.rows);
    }
    if (!expect.sizes().equals(what.sizes) || !expect.is_contiguous())
        return Found::differs;
    at::Tensor sum;
    bool same = swn_each_part(what, cuts, [&](const swn_part &part) {
        const char *rows_at = first + static_cast<size_t>(part.row) * what.row_bytes;
        if (what.summed) {
            what.put_part(sum, from, rows_at, part.row, part.count);
            return true;
        }
        at::Tensor got = what.part_of(from, rows_at, part.row, part.count);
        return swn_same_bits(got, expect.narrow(what.dim, part.row * what.width, part.count * what.width));
    });
    return same && (!what.summed || swn_same_bits(sum, expect)) ? Found::same : Found::differs;
}

// With numbers that show the rounding, and with numbers that are never rounded.
Found same_in_parts(const swn_sliced &what, const swn_partition_points &cuts, size_t period, bool folded)
{
    Found found = same_with(swn_numbers_kind::ordinary, what, cuts, period, folded);
    if (found != Found::same)
        return found;
    // so that odd rows are odd in their whole length
    size_t whole_rows = folded ? 0 : period_of_rows(what, (period / what.row_bytes / block_rows + 1) * block_rows);
    return same_with(swn_numbers_kind::odd, what, cuts, whole_rows ? whole_rows : period, folded);
}

// Whether the result is as large as a copy of the weight, and could be taken for one.
bool result_like_weight(const swn_sliced &what)
{
    size_t bytes = what.weight.itemsize();
    for (int64_t size : what.sizes)
        bytes *= static_cast<size_t>(size);
    return bytes >= what.weight.nbytes() / 2 && bytes / 2 <= what.weight.nbytes();
}

// With folded copies of the weight: after as many rows as there is room for, since some kernels need more than the
// smallest blocks, but after more than the last failed try.
bool same_folded(const swn_sliced &what, const swn_partition_points &cuts, size_t input_bytes, size_t &before)
{
    if (weight_in_page(what) || result_like_weight(what))
        return false;
    for (size_t rows = what.block > 1 ? block_rows : 1; rows > before; rows = rows > swn_block ? rows / 2 : 0) {
        size_t period = period_of_rows(what, rows);
        if (!period || !swn_services->tiling.trial_room(2 * period + input_bytes))
            continue;
        Found found = same_in_parts(what, cuts, period, true);
        if (found == Found::differs)
            before = rows;
        if (found != Found::no_room)
            return found == Found::same;
    }
    return false;
}

void try_out(const swn_sliced &what, const swn_partition_points &cuts, Trial &trial)
{
    size_t bytes = what.weight.nbytes(), input_bytes = swn_period_of(input_in_line(what) + swn_extent(what.input));
    if (what.copied) {
        if (same_folded(what, cuts, input_bytes, trial.folded)) {
            trial.found = Found::same;
            return;
        }
        // A copy that cannot be folded needs room for the whole weight once more.
        if (!swn_services->tiling.trial_room(bytes + bytes / 8 + input_bytes + swn_most_period))
            return;
    }
    trial.found = same_in_parts(what, cuts, swn_period_of(weight_in_page(what) + bytes), false);
}

void add_shape(swn_key &key, const swn_sliced &what)
{
    what.add_to(key);
    swn_add_settings(key);
    for (at::IntArrayRef sizes : {what.input.sizes(), what.input.strides(), what.weight.sizes()})
        key.add(sizes);
    key.add(static_cast<int64_t>(what.type));
    key.add(static_cast<int64_t>(weight_in_page(what)));
    key.add(static_cast<int64_t>(input_in_line(what)));
}

} // namespace

swn_computing_parts::swn_computing_parts()
    : observed(at::isRecordFunctionEnabled()), begun(swn_services->tiling.parts_begin(swn_most_threads()))
{
}

swn_computing_parts::~swn_computing_parts()
{
    swn_services->tiling.parts_end(begun);
}

void swn_add_settings(swn_key &key)
{
    for (int64_t setting : swn_math_settings())
        key.add(setting);
}

uint64_t swn_shape_of(const swn_sliced &what)
{
    swn_key key;
    add_shape(key, what);
    uint64_t hash = 0xcbf29ce484222325u;
    for (int64_t number : key) {
        hash = (hash ^ static_cast<uint64_t>(number)) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash ? hash : 1;
}

bool swn_same_in_slices(const swn_sliced &what, const swn_partition_points &cuts)
{
    swn_key key;
    int64_t n = 0, before = 0;
    add_shape(key, what);
    swn_each_part(what, cuts, [&](const swn_part &part) {
        if (part.count != before) { // only the cuts count
            key.add(n);
            key.add(part.count);
        }
        before = part.count;
        n++;
        return true;
    });
    if (n == 1)
        return true;
    if (!key.complete() || !swn_words_are_usual())
        return false;
    Trial trial;
    {
        std::lock_guard<std::mutex> guard(trials_lock);
        auto known = trials.find(key);
        if (known != trials.end())
            trial = known->second;
    }
    if (trial.found != Found::no_room)
        return trial.found == Found::same;
    size_t folded = trial.folded;
    swn_computing_parts computing;
    try_out(what, cuts, trial);
    if (trial.found != Found::no_room || trial.folded != folded) {
        std::lock_guard<std::mutex> guard(trials_lock);
        if (trials.size() >= most_trials)
            trials.clear();
        trials[std::vector<int64_t>(key.begin(), key.end())] = trial;
    }
    return trial.found == Found::same;
}

void swn_trials_before_fork()
{
    trials_lock.lock();
}

void swn_trials_after_fork()
{
    trials_lock.unlock();
}
