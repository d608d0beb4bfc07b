/* skeleton/observe/hook_baseline.h - what it costs a program that its operators are watched.
 *
 * A profile watches all of them; a run in which everything fits watches none, and MobileNetV2's passes of 20 ms were
 * predicted up to a tenth too long for it. So some passes of a profile go by without the hook. Then only the number of
 * tensors tells where a pass ends, as a pass makes as many as the one before: passes are timed from first allocation to
 * first allocation, with the hook and without it. The engine lock is held in all calls.
 */
#ifndef SWN_SKELETON_OBSERVE_HOOK_BASELINE_H
#define SWN_SKELETON_OBSERVE_HOOK_BASELINE_H

#include <stdint.h>

#include "skeleton/abi/abi.h"
#include "profiles/recent_times.h"

/* Zeroed: nothing is known, and operators are watched. */
struct swn_hook_baseline {
    struct swn_times watched, unwatched;
    int begun, counts; /* a watched pass, without an allocation yet; whether the one before is a measurement */
    uint64_t first;    /* allocation of this pass; 0: it is not known */
    uint64_t first_ns;
    uint64_t allocs; /* of the last whole pass */
    unsigned alike;  /* passes in a row that had as many */
    int wanted;      /* passes that are to go by without the hook, from the next allocation on */
    int left;        /* of them; 0: operators are watched */
};

/* A watched pass has ended, and the next one begun; whether that which ended counts. */
void swn_hook_baseline_pass(struct swn_hook_baseline *u, int counts);
/* Lets `passes` passes go by without the hook from now on. 0: it does not, as the number of tensors of a pass is not
 * known. */
int swn_hook_baseline_begin(struct swn_hook_baseline *u, int passes);
/* The number-th allocation. 1: the hook was put back just now, and operators before it went unwatched. */
int swn_hook_baseline_alloc(struct swn_hook_baseline *u, const struct swn_torch_backend *backend, uint64_t number);
/* The hook is put back though passes are left. As above. */
int swn_hook_baseline_end(struct swn_hook_baseline *u, const struct swn_torch_backend *backend);

/* Seconds of a pass; 0 where it is not more than how passes vary; below 0: not known. */
double swn_hook_baseline_cost(const struct swn_hook_baseline *u);

#endif
