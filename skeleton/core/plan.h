/* skeleton/core/plan.h - which weights stay in memory: the plan, and how it is put into force.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_CORE_PLAN_H
#define SWN_SKELETON_CORE_PLAN_H

#include "skeleton/engine/engine_internal.h"

size_t swn_plan_gather(struct swn_engine *e, uint32_t *ids, size_t most);
void swn_plan_if_due(struct swn_engine *e, struct swn_thread_state *t);
size_t swn_plan_minimum(struct swn_engine *e);
/* The disk's speed as shown by its last reads. */
struct swn_disk_model swn_plan_disk(struct swn_engine *e);
/* A candidate for t's order. -EAGAIN: there is none, or a plan is of no use; where the model of the plan in force fits
 * by now, that plan ends. */
int swn_plan_candidate_make(struct swn_engine *e, struct swn_thread_state *t, struct swn_plan_candidate *out);
void swn_plan_candidate_free(struct swn_plan_candidate *d);
int swn_plan_candidate_solve(struct swn_plan_candidate *d);
/* Puts the candidate into force; then it is e->plan.in_force, and *d is empty. -EAGAIN: a weight of the candidate is
 * gone; -EBUSY: part of the plan could not be carried out now, and the caller tries again. */
int swn_plan_commit(struct swn_engine *e, struct swn_plan_candidate *d);
/* Before swn_weight_remove. Of a program with many models, it ends a plan that is for the model whose weight r is: no
 * candidate for another model that fits would take its place, and what it reserves would be missing to all of them. */
void swn_plan_weight_leaves(struct swn_engine *e, const struct swn_range *r);

#endif
