/* skeleton/core/residency_policy.h - which weights stay in memory: the pool, how a weight comes and goes, and the plan.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_CORE_RESIDENCY_POLICY_H
#define SWN_SKELETON_CORE_RESIDENCY_POLICY_H

#include "skeleton/core/engine_internal.h"

int swn_policy_pool(struct swn_engine *e);
/* Says once if what is written to the store directory stays in memory. Any lock may be held. */
void swn_policy_look_at_disk(struct swn_engine *e);
/* Bytes that this process has written to spill files. */
uint64_t swn_policy_written(const struct swn_engine *e);
/* pages: as for swn_residency_home. */
int swn_policy_home(struct swn_engine *e, struct swn_range *r, void *pages);
void swn_policy_recall(struct swn_engine *e, struct swn_range *r);
int swn_policy_share(struct swn_engine *e, struct swn_range *r);
int swn_policy_bring_home(struct swn_engine *e, struct swn_range *r, void *pages);
int swn_policy_spill(struct swn_engine *e, struct swn_range *r);
/* What follows from a spill of `size` bytes that ended with err. */
void swn_policy_spilled(struct swn_engine *e, size_t size, int err);
/* Frames that have bytes of nobody else go: r has other bytes now, or is gone. */
void swn_policy_drop_frames(struct swn_engine *e, const struct swn_range *r);
void swn_policy_settle(struct swn_engine *e, struct swn_range *r);
size_t swn_policy_gather(struct swn_engine *e, uint32_t *ids, size_t most);
void swn_policy_plan(struct swn_engine *e, struct swn_thread_state *t);
size_t swn_policy_other(struct swn_engine *e);
size_t swn_policy_other_held(struct swn_engine *e);
/* Most of what is held for it of late. */
size_t swn_policy_other_peak(const struct swn_engine *e);
size_t swn_policy_other_needed(const struct swn_engine *e);
size_t swn_policy_minimum(struct swn_engine *e);
/* The disk as its last reads were. */
struct swn_disk_model swn_policy_disk(struct swn_engine *e);
int swn_policy_draft(struct swn_engine *e, struct swn_thread_state *t, struct swn_draft *out);
void swn_policy_drop_draft(struct swn_draft *d);
int swn_policy_make_plan(struct swn_draft *d);
/* Puts it into force; then it is e->in_force, and *d empty. -EAGAIN: a weight that it knows is gone, -EBUSY: part of it
 * could not be carried out now, and it is to be tried again. */
int swn_policy_adopt(struct swn_engine *e, struct swn_draft *d);

#endif
