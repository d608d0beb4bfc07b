/* base/system_memory.h - how much memory there is to be had, for a total that follows what else runs on the machine. */
#ifndef SWN_BASE_SYSTEM_MEMORY_H
#define SWN_BASE_SYSTEM_MEMORY_H

#include <stdint.h>

struct swn_memory {
    uint64_t available;    /* MemAvailable of /proc/meminfo: what could be taken without swapping */
    uint64_t cgroup_limit; /* the smallest memory limit above us, memory.high included; UINT64_MAX: none */
    uint64_t cgroup_usage; /* of the cgroup with that limit, less page cache that is not in active use */
    double pressure;       /* PSI memory "some avg10", percent of time a task waited for memory; < 0: not known */
};

/* Reads all that below `root` ("" outside tests): meminfo, pressure/memory of /proc, and the limits of our own cgroup,
 * version 2 or 1. 0 or -errno: without MemAvailable there is no answer. */
int swn_memory_read(struct swn_memory *out, const char *root);

/* A descriptor for poll(2), POLLPRI: ready once when tasks on the machine, in any cgroup, have waited for memory for a
 * tenth of the time; the caller closes it. -errno where the kernel has no such thing, or not for us. */
int swn_pressure_open(const char *root);
/* The same for our own cgroup (version 2), else the machine's. As a service a daemon is alone in its own. */
int swn_pressure_open_own(const char *root);

/* The `pressure` to assume when that descriptor becomes ready, as averages follow later. */
#define SWN_PRESSURE_NOW 100.0

/* The share of memory that is left after each second with or without pressure. */
struct swn_follow {
    double share; /* of what our processes have together with what is still to be had */
    double ease;  /* 1: all of that share; less after pressure */
};

/* The total for processes that have `ours` bytes resident: share * ease * (ours + what is to be had). Additive
 * increase, multiplicative decrease: a tenth goes for each call under pressure, a fiftieth comes back for each without.
 * Call it once a second. Pure but for f->ease. */
uint64_t swn_follow_total(struct swn_follow *f, const struct swn_memory *m, uint64_t ours);

#endif
