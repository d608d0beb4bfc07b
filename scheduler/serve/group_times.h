/* scheduler/serve/group_times.h - what the layer groups of a model cost, learned from the runs of its requests.
 *
 * The first run of a group sets what is expected of it, each later one moves that by a quarter of the difference. A
 * model may be divided anew, into another number of groups: then its whole cost is spread over them until they have
 * run. What requests need of memory the engine says, and the most counts that it has said. No clock and no I/O. For one
 * thread.
 */
#ifndef SWN_SCHEDULER_SERVE_GROUP_TIMES_H
#define SWN_SCHEDULER_SERVE_GROUP_TIMES_H

#include <stdint.h>

#include "scheduler/policies/lane.h"
#include "scheduler/protocol/engine_wire.h"

#define SWN_GROUPS_MOST SWN_LANE_GROUPS /* of a model; of more only the first are looked at */

struct swn_group_times {
    uint32_t count;        /* groups of the present division; 0: nothing is known */
    uint64_t known;        /* bit g: group g has run */
    int is_weighed;        /* the division is what the engine said; runs of an older one change nothing */
    uint64_t read_mark;    /* what its engine had read in all when `missing_bytes` were true */
    uint64_t output_bytes; /* of an answer, at most so far */
    struct swn_lane_group groups[SWN_GROUPS_MOST];
    /* Computing for 2, 4, ... requests that are joined, as parts of that for as many one after the other; 0: they are
     * not joined. */
    float joined[SWN_GROUPS_MOST][SWN_WIRE_JOINED];
};

#define SWN_CURVE_MOST (SWN_WIRE_FOLLOWING + 1)

/* One run of one group, as the engine tells it. */
struct swn_group_run {
    uint32_t group, groups;
    uint64_t ns, wait_ns; /* from begin to end; of it: waiting for the disk */
    uint64_t read_bytes;
    uint64_t output_bytes; /* of the answer, with the last group */
    int is_joined;         /* with other requests: its time is not that of a request alone */
};

void swn_group_times_ran(struct swn_group_times *t, const struct swn_group_run *run);

/* The engine says of the groups of the division that begins now what they read, and what of it is in memory.
 * `read_total`: what it has read in all until now. */
void swn_group_times_weigh(struct swn_group_times *t, const struct swn_wire_group *weights, uint32_t groups,
                           uint64_t read_total);

/* The groups as they are now, room for SWN_GROUPS_MOST; returns how many, at least 1. What the engine has read since
 * for other models took the place of this one's weights, as far as is known, in equal parts. activation_bytes of a
 * group that the engine has not seen run are SWN_LANE_NOT_KNOWN. */
uint32_t swn_group_times_now(const struct swn_group_times *t, uint64_t weight_bytes, uint64_t read_total,
                             struct swn_lane_group *to);

/* What group g takes to compute for 1, 2, ... SWN_CURVE_MOST requests, of which as many run at once as the engine
 * joins: `compute_ns` is that of one. 0: none are joined, and n take n times as long. */
int swn_group_times_curve(const struct swn_group_times *t, uint32_t g, uint64_t compute_ns,
                          uint64_t curve[SWN_CURVE_MOST]);

/* The engine read ahead for these groups in this order, of models whose state it has not told since: `bytes` in all,
 * while its sum of what it has read went from `before` on. Nothing of these models has left for it, as what an engine
 * is told to read ahead it also keeps. */
struct swn_group_ahead {
    struct swn_group_times *times;
    uint32_t group;
};
void swn_group_times_ahead(const struct swn_group_ahead *ahead, unsigned count, uint64_t before, uint64_t now,
                           uint64_t bytes);

/* The engine says how much of a group is in memory, when it has read read_total in all; there is no such group, or less
 * of it, if the model has been divided anew meanwhile. */
void swn_group_times_place(struct swn_group_times *t, uint32_t group, uint64_t in_memory, uint64_t read_total);

/* What the disk gives, bytes per nanosecond: moved by runs that waited for it. */
struct swn_disk_rate {
    double bytes_per_ns; /* 0: not known */
};
void swn_disk_rate_add(struct swn_disk_rate *r, const struct swn_group_run *run);
double swn_disk_rate(const struct swn_disk_rate *r);

#endif
