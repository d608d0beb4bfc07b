/* scheduler/simulation/simulation.h - a policy of scheduler/tasks over a table of arrivals, event by event.
 *
 * The machine is that of scheduler/tasks/state.h. Beside it, what happens when memory is exceeded: a task that begins
 * while more is used than there is has its share of that paged out and in again, and takes so much longer. A policy
 * that is bounded (swn_task_policy_is_bounded) runs where the limit holds, as under libswapnet: a task that does not
 * fit, because the estimate of its activations was too low, makes room of clean blocks, waits for a task to end, or is
 * spilled at last. Weights are files, whose sizes it knows.
 *
 * Policies that are not bounded load weights for each pass anew, as Masa does. Those that are share them.
 */
#ifndef SWN_SCHEDULER_SIMULATION_SIMULATION_H
#define SWN_SCHEDULER_SIMULATION_SIMULATION_H

#include "scheduler/simulation/table.h"
#include "scheduler/tasks/policy.h"

struct swn_simulation {
    enum swn_task_policy policy;
    enum swn_task_objective objective;
    enum swn_task_cascade cascade;
    struct swn_task_machine machine;
    double estimate;    /* what the policy takes needs for, by the real ones; above 0 */
    double paging;      /* bytes moved for each byte that is paged; 2: out and in */
    double probability; /* that a result asks for the passes behind it, as the policy is told */
    uint8_t is_private; /* a bounded policy loads for each pass anew, too */
};

struct swn_simulation_result {
    uint64_t end_ns;         /* of the last job */
    uint64_t bytes_read;     /* weights */
    uint64_t compute_ns;     /* of all workers */
    uint64_t wasted_ns;      /* of these: for passes that were aborted */
    uint64_t peak_bytes;     /* used at most */
    uint64_t over_commits;   /* tasks that began while more was used than there is */
    uint64_t paged_bytes;    /* moved because of that */
    uint64_t spilled_bytes;  /* of activations, where the limit holds */
    double mean_response_ns; /* of jobs */
};

/* response_ns[job] of each job. 0; -ENOMEM; -EINVAL: a field is out of range; -ENOSPC: a layer is larger than a bounded
 * policy's memory; -ELOOP: the policy does nothing although there is work (a mistake of the policy). */
int swn_simulate_tasks(const struct swn_network_table *networks, const struct swn_arrival_table *arrivals,
                       const struct swn_simulation *how, uint64_t *response_ns, struct swn_simulation_result *result);

#endif
