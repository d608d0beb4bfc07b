/* scheduler/tasks/sandbox.h - a small copy of a state, in which a schedule is run to its end by a rule. Inside this
 * folder.
 *
 * The sandbox has the passes that matter now, the most urgent ones first. What others hold stays used; their blocks and
 * those of idle networks are spare: room can be made of them at once.
 */
#ifndef SWN_SCHEDULER_TASKS_SANDBOX_H
#define SWN_SCHEDULER_TASKS_SANDBOX_H

#include "scheduler/tasks/tasks.h"

struct swn_task_schedule;

#define SWN_SANDBOX_PASSES 16
#define SWN_SANDBOX_COPIES (SWN_SANDBOX_PASSES + 2 * SWN_TASK_WORKERS)

struct swn_sandbox {
    struct swn_task_state s;
    struct swn_task_pass passes[SWN_SANDBOX_PASSES];
    struct swn_task_copy copies[SWN_SANDBOX_COPIES];
    uint32_t pass_of[SWN_SANDBOX_PASSES]; /* index in the state it was made from */
    uint32_t copy_of[SWN_SANDBOX_COPIES];
};

/* A rule makes one schedule. Passes have a fixed order, the leader first. */
struct swn_task_rule {
    uint32_t order[SWN_SANDBOX_PASSES];
    uint32_t depth;    /* how many layers beyond its next one a pass may have loaded */
    uint8_t reserves;  /* loads leave room for what the leader's next layer computes with */
    uint8_t is_strict; /* where a pass finds no memory for its load, those behind it load nothing either */
    uint8_t in_turns;  /* the next layers of all passes are loaded before the layers behind them */
};

/* What is minimized: a sum over jobs of weight times end, or the end of the last one; each breaks ties of the other. */
enum swn_task_objective { SWN_TASK_RESPONSE, SWN_TASK_MAKESPAN };

/* The passes that run, and the most urgent others, `most` in all as far as those that run leave room for them. */
void swn_sandbox_make(struct swn_sandbox *box, const struct swn_task_state *state, uint32_t most);
/* Time that a pass still computes, and still reads. */
uint64_t swn_task_left_compute_ns(const struct swn_task_state *s, const struct swn_task_pass *pass);
uint64_t swn_task_left_load_ns(const struct swn_task_state *s, const struct swn_task_pass *pass);

/* Has a pass begun, or could it without keeping any from ending: could all that have begun then still be finished one
 * after the other (banker's rule)? */
int swn_sandbox_may_begin(const struct swn_sandbox *box, uint32_t pass);
/* It may, and its next layer fits, spare and all. */
int swn_sandbox_is_safe(const struct swn_sandbox *box, uint32_t pass);
/* Makes room for a decision out of spare blocks; not more than there are. */
void swn_sandbox_take_spare(struct swn_sandbox *box, const struct swn_task_decision *decision);
/* The bytes that a decision adds. */
uint64_t swn_sandbox_need(const struct swn_sandbox *box, const struct swn_task_decision *decision);

/* What the rule does now. */
void swn_task_rule_step(const struct swn_sandbox *box, const struct swn_task_rule *rule,
                        struct swn_task_decision *decision);
/* Makes one first step, or waits with all else until a task ends where it is SWN_TASK_NONE; then runs the rule to the
 * end. Cost, or INFINITY when it gets stuck or comes to `bound`. schedule: what begins is appended; NULL: nobody asks.
 */
double swn_sandbox_run(struct swn_sandbox *box, struct swn_task_decision first, const struct swn_task_rule *rule,
                       enum swn_task_objective objective, double bound, struct swn_task_schedule *schedule);

#endif
