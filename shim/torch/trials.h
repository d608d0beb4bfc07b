// Whether slices of a weight give the bits of the whole.
#ifndef SWN_SHIM_TORCH_TRIALS_H
#define SWN_SHIM_TORCH_TRIALS_H

#include <ATen/record_function.h>

#include <array>
#include <cstdint>

#include "shim/torch/slices.h"

// The slices of a storage. Storages with more kinds of slices are not tried.
struct swn_partition_points {
    std::array<swn_slices, 256> kinds;
    size_t n = 0;
};

// `count` rows from `row` on, in the slice of `bytes` at `off` of the weight's storage, from the slice's byte `skip`
// on.
struct swn_part {
    size_t off, bytes, skip;
    int64_t row, count;
};

// Calls act(part) for the weight's rows in each slice of its storage, in their order, until act returns false. false:
// act returned false, or slices end within a row, or do not cover the storage.
template <typename Act> bool swn_each_part(const swn_sliced &what, const swn_partition_points &cuts, Act act)
{
    size_t begin = static_cast<size_t>(what.weight.storage_offset()) * what.weight.itemsize();
    size_t end = begin + what.weight.nbytes(), at = 0;
    for (size_t kind = 0; kind < cuts.n; kind++)
        for (size_t i = 0; i < cuts.kinds[kind].count; i++) {
            size_t bytes = cuts.kinds[kind].bytes, lo = std::max(at, begin), hi = std::min(at + bytes, end);
            if (lo < hi && ((lo - begin) % what.row_bytes || (hi - begin) % what.row_bytes))
                return false;
            if (lo < hi && !act(swn_part{at, bytes, lo - at, static_cast<int64_t>((lo - begin) / what.row_bytes),
                                         static_cast<int64_t>((hi - lo) / what.row_bytes)}))
                return false;
            at += bytes;
        }
    return at == what.weight.storage().nbytes();
}

// While it lives, parts are computed one after the other (skeleton/tiling/part_waits.h), and no observer sees the
// operators that they take: the program's profiler is to show those of the operator itself, once.
class swn_computing_parts
{
  public:
    swn_computing_parts();
    ~swn_computing_parts();
    swn_computing_parts(const swn_computing_parts &) = delete;
    swn_computing_parts &operator=(const swn_computing_parts &) = delete;

    const bool observed; // whether observers saw the thread's operators before

  private:
    int begun;
    at::DisableRecordFunctionGuard unseen;
};

// Adds the user's settings of PyTorch and its libraries to the key.
void swn_add_settings(swn_key &key);

// A hash of all that the bits of the operator's result may depend on, except for the slices; not 0.
uint64_t swn_shape_of(const swn_sliced &what);

// Whether such slices have been tried, or are tried now, and gave the same bits. Where there is no room to try them now
// the answer is no, and may change later. May throw PyTorch's errors.
bool swn_same_in_slices(const swn_sliced &what, const swn_partition_points &cuts);

// Around a fork, in the thread that forks.
void swn_trials_before_fork();
void swn_trials_after_fork(); // in both processes

#endif
