/* scheduler/policies/one_job.h - the order of models where all requests are for one answer. Inside this folder.
 *
 * The steps of an ensemble that wait for each other's answers end together: which of them ends first is of no interest,
 * only when the last one does. The disk reads for one model while the lane computes another, so a model is two tasks in
 * a row on two machines, and the order with the shortest end is Johnson's (Optimal two- and three-stage production
 * schedules with setup times included, 1954; rule 1 to 3). A model's groups are a chain of such pairs, which counts as
 * one pair (Sidney, The two-machine maximum flow time problem with series parallel precedence relations, 1979):
 *     read = max over k of a[1] + .. + a[k] - b[1] - .. - b[k-1],    compute = read + sum of b - sum of a
 * for groups that read for a[g] and compute for b[g]. What is in memory reads for no time, so it goes first, and before
 * others need its room: in each job those models whose turn in the job before came last. Of models for which the lane
 * waits anyhow those go first that have most in memory: what they would lose is read once more, for longer than any
 * order gains.
 */
#ifndef SWN_SCHEDULER_POLICIES_ONE_JOB_H
#define SWN_SCHEDULER_POLICIES_ONE_JOB_H

#include "scheduler/policies/lane_view.h"

/* Decides if all requests are of one job, of several models, and all are needed. Returns 1, else 0. */
int swn_decide_one_job(const struct swn_lane_view *view, struct swn_lane_decision *decision);

#endif
