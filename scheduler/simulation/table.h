/* scheduler/simulation/table.h - the networks and the arrivals of a simulation, as tables in memory and as CSV.
 *
 * Networks, one layer a line, the layers of a network in their order and together:
 *     network,dense,load_bytes,compute_ns,activation_bytes,output_bytes,peak_bytes
 * `dense` is 0 or 1, peak_bytes the same in all lines of a network (0: not known).
 *
 * Arrivals, one pass a line, the passes of a job together, jobs numbered from 0 in the order of time:
 *     arrived_ns,job,network,inputs,upstream,outcome
 * `upstream` is a network of the same job in a line above, or `-`. `outcome` is 0 or 1: does the result of this pass
 * ask for the passes behind it?
 *
 * The readers are strict: the first line is as above, each line has all fields and ends with a newline, numbers are
 * decimal digits within bounds. What they take, the writers write byte by byte.
 */
#ifndef SWN_SCHEDULER_SIMULATION_TABLE_H
#define SWN_SCHEDULER_SIMULATION_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "scheduler/tasks/tasks.h"

#define SWN_TABLE_NETWORKS 32
#define SWN_TABLE_NAME 32
#define SWN_TABLE_PASSES 100000
#define SWN_TABLE_BYTES_MOST (UINT64_C(1) << 40)       /* of a layer */
#define SWN_TABLE_COMPUTE_MOST UINT64_C(1000000000000) /* 1000 s */
#define SWN_TABLE_ARRIVED_MOST UINT64_C(1000000000000000000)

struct swn_network_table {
    uint32_t count;
    struct swn_task_network networks[SWN_TABLE_NETWORKS]; /* point into layers */
    char names[SWN_TABLE_NETWORKS][SWN_TABLE_NAME];
    struct swn_task_layer layers[SWN_TABLE_NETWORKS][SWN_TASK_LAYERS];
};

#define SWN_TABLE_NONE UINT32_MAX

struct swn_arrival {
    uint64_t arrived_ns;
    uint32_t job, network, inputs;
    uint32_t upstream; /* index of an earlier arrival of the same job, or SWN_TABLE_NONE */
    uint8_t outcome;
};

struct swn_arrival_table {
    struct swn_arrival *arrivals; /* swn_arrivals_free */
    uint32_t count, job_count;
};

/* 0; -EINVAL with the number of the first bad line in *line; -ENOMEM (arrivals). */
int swn_networks_parse(const char *text, size_t size, struct swn_network_table *out, uint32_t *line);
int swn_arrivals_parse(const char *text, size_t size, const struct swn_network_table *networks,
                       struct swn_arrival_table *out, uint32_t *line);
void swn_networks_write(const struct swn_network_table *networks, FILE *to);
void swn_arrivals_write(const struct swn_arrival_table *arrivals, const struct swn_network_table *networks, FILE *to);
void swn_arrivals_free(struct swn_arrival_table *arrivals);

/* The network of this name, or SWN_TABLE_NONE. */
uint32_t swn_networks_find(const struct swn_network_table *networks, const char *name, size_t length);

#endif
