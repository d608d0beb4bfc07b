/* task_fixture.h - a state of scheduler/tasks with up to eight networks of four layers, one pass of each. */
#ifndef SWN_TESTS_TASK_FIXTURE_H
#define SWN_TESTS_TASK_FIXTURE_H

#include "scheduler/tasks/policy.h"
#include "scheduler/tasks/state.h"

#define TASK_NETWORKS 8
#define TASK_LAYERS 4

struct task_fixture {
    struct swn_task_layer layers[TASK_NETWORKS][TASK_LAYERS];
    struct swn_task_network networks[TASK_NETWORKS];
    struct swn_task_pass passes[TASK_NETWORKS];
    struct swn_task_copy copies[TASK_NETWORKS];
    struct swn_task_state s;
};

/* Empty but for its machine: the disk reads a byte in a nanosecond. */
static inline void task_begin(struct task_fixture *x, uint32_t workers, uint64_t memory_bytes)
{
    *x = (struct task_fixture){.s.estimate = 1};
    x->s.machine = (struct swn_task_machine){.disk_bytes_per_ns = 1, .memory_bytes = memory_bytes, .workers = workers};
    x->s.networks = x->networks;
    x->s.passes = x->passes;
    x->s.copies = x->copies;
}

/* One more network, with `layers` layers that the caller fills in, and a pass of it in a job of its own. Its index. */
static inline uint32_t task_add(struct task_fixture *x, uint32_t layers)
{
    uint32_t n = x->s.network_count++;

    x->networks[n] = (struct swn_task_network){.layers = x->layers[n], .layer_count = layers};
    x->passes[n] = (struct swn_task_pass){.id = n + 1, .weight = 1, .job = n, .network = n, .copy = n, .inputs = 1};
    x->copies[n] = (struct swn_task_copy){.network = n, .is_taken = 1};
    x->s.pass_count = x->s.copy_count = x->s.network_count;
    return n;
}

/* Applies what the policy says until it says nothing at this moment. The number of steps. */
static inline unsigned task_settle(struct task_fixture *x, enum swn_task_policy policy)
{
    struct swn_task_decision d;
    unsigned steps = 0;

    while ((d = swn_task_decide(policy, SWN_TASK_MAKESPAN, &x->s)).kind) {
        swn_task_apply(&x->s, &d);
        steps++;
    }
    return steps;
}

#endif
