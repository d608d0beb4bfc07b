/* skeleton/observe/hook_baseline.h - measures the cost of the operator hook.
 *
 * A profiled run watches all operators, but a run in which everything fits watches none, and without this measurement
 * MobileNetV2's passes of 20 ms were predicted up to a tenth too long. So some passes of a profiled run go without the
 * hook. Then only the number of tensors shows where a pass ends, as each pass makes as many as the one before: passes
 * are timed from first allocation to first allocation, with the hook and without it. The engine lock is held in all
 * calls.
 */
#ifndef SWN_SKELETON_OBSERVE_HOOK_BASELINE_H
#define SWN_SKELETON_OBSERVE_HOOK_BASELINE_H

#include <stdint.h>

#include "skeleton/abi/abi.h"
#include "profiles/recent_times.h"

/* Zeroed: nothing is known, and operators are watched. */
struct swn_hook_baseline {
    struct swn_times watched, unwatched;
    int begun, counts; /* begun: a watched pass has no allocation yet; counts: the pass before is a measurement */
    uint64_t first;    /* number of this pass's first allocation; 0: unknown */
    uint64_t first_ns;
    uint64_t allocs; /* of the last whole pass */
    unsigned alike;  /* passes in a row with as many allocations */
    int wanted;      /* passes that are to go without the hook, from the next allocation on */
    int left;        /* those that remain; 0: operators are watched */
};

/* A watched pass has ended, and the next one begun; counts: whether the ended one is a measurement. */
void swn_hook_baseline_pass(struct swn_hook_baseline *u, int counts);
/* From now on `passes` passes go without the hook. 0: they do not, as the number of tensors of a pass is unknown. */
int swn_hook_baseline_begin(struct swn_hook_baseline *u, int passes);
/* Allocation number `number`. 1: the hook was put back just now, and operators before it went unwatched. */
int swn_hook_baseline_alloc(struct swn_hook_baseline *u, const struct swn_torch_backend *backend, uint64_t number);
/* Puts the hook back before all passes are over. As above. */
int swn_hook_baseline_end(struct swn_hook_baseline *u, const struct swn_torch_backend *backend);

/* Seconds of a pass; 0 where the cost is within the variation of passes; below 0: not known. */
double swn_hook_baseline_cost(const struct swn_hook_baseline *u);

#endif
