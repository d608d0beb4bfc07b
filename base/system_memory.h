/* base/system_memory.h - how much memory is available, for a total that adapts to the other programs on the machine. */
#ifndef SWN_BASE_SYSTEM_MEMORY_H
#define SWN_BASE_SYSTEM_MEMORY_H

#include <stdint.h>

struct swn_memory {
    uint64_t available;    /* MemAvailable of /proc/meminfo: what could be taken without swapping */
    uint64_t cgroup_limit; /* smallest limit of our cgroup and those above, memory.high too; UINT64_MAX: none */
    uint64_t cgroup_usage; /* of the cgroup with that limit, less page cache that is not in active use */
    double pressure;       /* PSI memory "some avg10", percent of time a task waited for memory; < 0: not known */
};

/* Reads meminfo, the memory pressure, and the limits of the process's cgroup, version 2 or 1, below `root` ("" outside
 * tests). 0 or -errno: without MemAvailable there is no answer. */
int swn_memory_read(struct swn_memory *out, const char *root);

/* A descriptor for poll(2), POLLPRI: ready when tasks on the machine, in any cgroup, have waited for memory for a tenth
 * of the time. The caller closes it. -errno where the kernel lacks pressure triggers, or refuses them to this process.
 */
int swn_pressure_open(const char *root);
/* The same for the process's own cgroup (version 2), else the machine's. A daemon that is a service is alone in its
 * cgroup. */
int swn_pressure_open_own(const char *root);

/* The `pressure` to assume when that descriptor becomes ready, as the averages lag behind. */
#define SWN_PRESSURE_NOW 100.0

/* The fraction of memory to use, adjusted once a second by the pressure. */
struct swn_follow {
    double share; /* of the processes' memory and the available memory together */
    double ease;  /* 1: all of that share; less after pressure */
};

/* The total for processes that have `ours` bytes resident: share * ease * (ours + available). Additive increase,
 * multiplicative decrease: each call under pressure takes a tenth, each call without gives a fiftieth back. Call it
 * once a second. Pure but for f->ease. */
uint64_t swn_follow_total(struct swn_follow *f, const struct swn_memory *m, uint64_t ours);

#endif
