/* scheduler/tasks/state.h - what holds in a state, and how it goes on: the rules of the machine, for policies that look
 * ahead, for the exact optimum and for the simulation alike. */
#ifndef SWN_SCHEDULER_TASKS_STATE_H
#define SWN_SCHEDULER_TASKS_STATE_H

#include "scheduler/tasks/tasks.h"

#define SWN_TASK_NEVER UINT64_MAX

/* Needs, as the state knows them: times its estimate. */
uint64_t swn_task_weight_bytes(const struct swn_task_state *s, uint32_t network, uint32_t layer);
uint64_t swn_task_activation_bytes(const struct swn_task_state *s, const struct swn_task_pass *pass);
/* Output of the layer before, which a pass holds that is between two layers. */
uint64_t swn_task_held_bytes(const struct swn_task_state *s, const struct swn_task_pass *pass);
/* What starting the next layer adds to the used bytes; 0: it needs no more than it holds. */
uint64_t swn_task_compute_bytes(const struct swn_task_state *s, const struct swn_task_pass *pass);
/* The sum that used_bytes has to be. */
uint64_t swn_task_used(const struct swn_task_state *s);
uint64_t swn_task_free_bytes(const struct swn_task_state *s);
/* The most that one layer needs: its weights beside the output of the layer before or, while it computes, its
 * activations. */
uint64_t swn_task_largest(const struct swn_task_network *network, uint32_t inputs);

uint64_t swn_task_load_ns(const struct swn_task_state *s, uint32_t network, uint32_t layer);
uint64_t swn_task_compute_ns(const struct swn_task_state *s, const struct swn_task_pass *pass);

uint32_t swn_task_layers(const struct swn_task_state *s, const struct swn_task_pass *pass);
int swn_task_is_done(const struct swn_task_state *s, const struct swn_task_pass *pass);
int swn_task_has_begun(const struct swn_task_pass *pass);
/* Does the cascade let this pass compute now; load now? */
int swn_task_may_compute(const struct swn_task_state *s, const struct swn_task_pass *pass);
int swn_task_may_load(const struct swn_task_state *s, const struct swn_task_pass *pass);
/* May it, and is a worker or a reader free, and all that must be before it done? Memory is not looked at. */
int swn_task_can_compute(const struct swn_task_state *s, uint32_t pass);
int swn_task_can_load(const struct swn_task_state *s, uint32_t pass, uint32_t layer);
/* Is a worker or a reader free? */
int swn_task_has_room(const struct swn_task_state *s);
/* No worker has a task, and no reader. */
int swn_task_is_idle(const struct swn_task_state *s);
/* A block of this copy that computes now, or is the next one of a pass that computes or may. */
int swn_task_is_block_running(const struct swn_task_state *s, uint32_t copy, uint32_t layer);

/* Applies a decision that is possible. A task begins; a block is dropped. */
void swn_task_apply(struct swn_task_state *s, const struct swn_task_decision *decision);
/* When the next task ends; SWN_TASK_NEVER: none runs. */
uint64_t swn_task_next_ns(const struct swn_task_state *s);
/* The clock goes on to `until_ns`, not past the next end; tasks end that are due. A pass that has ended, or was aborted
 * and does not run any more, gives back what it holds; of a copy of its own all blocks. */
void swn_task_advance(struct swn_task_state *s, uint64_t until_ns);
/* Gives back what an ended or aborted pass has in memory, where nothing of it is in flight. */
void swn_task_release(struct swn_task_state *s, uint32_t pass);

/* A DROP of a block whose layer has computed, in a copy that one pass uses: Masa's unload task. 1: there is one. */
int swn_task_drop_computed(const struct swn_task_state *s, struct swn_task_decision *decision);

#endif
