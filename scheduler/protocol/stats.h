/* scheduler/protocol/stats.h - the counters of one process, as plain data.
 *
 * The function that fills it owns the strings, which must outlive the struct (literals, or the life of the process);
 * NULL means not known. All *_bytes are bytes, *_ns nanoseconds of CLOCK_MONOTONIC. The keys of the statistics JSON are
 * the names of the fields.
 */
#ifndef SWN_SCHEDULER_PROTOCOL_STATS_H
#define SWN_SCHEDULER_PROTOCOL_STATS_H

#include <stdint.h>

struct swn_stats {
    uint64_t pid;
    uint64_t budget_bytes;        /* set last; state says whether the limit is there yet */
    uint64_t minimum_bytes;       /* the least budget that would be accepted */
    uint64_t demand_bytes;        /* what the process would take without a budget */
    uint64_t resident_bytes;      /* bytes that count against the budget, now */
    uint64_t peak_resident_bytes; /* their peak */
    uint64_t pool_bytes;          /* buffers that blocks are read into */
    uint64_t kept_bytes;          /* weights that stay in memory */
    uint64_t small_bytes;         /* live allocations below the streaming size */
    uint64_t streamed_bytes;      /* read from disk by the fetcher */
    uint64_t encoded_bytes;       /* of these, the bytes that were stored compressed */
    uint64_t decoded_bytes;       /* and their size in memory */
    uint64_t spilled_bytes;       /* written to the spill file */
    uint64_t deferred_bytes;      /* registered at load instead of read */
    uint64_t swap_ins;
    uint64_t window_hits;            /* operators that found their weight read in */
    uint64_t window_misses;          /* operators that had to use the weight's own address */
    uint64_t stalls;                 /* weights that operators waited for while they were read */
    uint64_t stall_ns;               /* operators waiting for the disk */
    uint64_t filled_bytes;           /* memory that came without pages: each is faulted in or zeroed once */
    uint64_t dropped_bytes;          /* pages freed that tensors had, or that were kept for them */
    uint64_t placed_bytes;           /* activations at their planned addresses */
    uint64_t slices;                 /* parts of weights lent one after the other to an operator */
    uint64_t rows;                   /* rows looked up in weights of which only the rows were read */
    uint64_t fallback_reads;         /* pages read through the mappings */
    uint64_t over_budget_bytes;      /* at its peak */
    uint64_t untracked_bytes;        /* of tensors that the library had no room for */
    uint64_t untracked_weight_bytes; /* of weights in memory that PyTorch did not allocate */
    uint64_t passes;
    uint64_t read_errors;
    uint64_t plans;
    uint64_t plan_reviews;          /* how often the plan in force was reviewed, because the machine had changed */
    uint64_t plan_budget_bytes;     /* budget for which the plan in force was made; 0: no plan */
    uint64_t plan_since_ns;         /* when the plan came into force */
    uint64_t budget_since_ns;       /* when the budget was set last; 0: it is the first */
    uint64_t bound_ns;              /* when that budget came to be the limit */
    uint64_t in_flight_ns;          /* when everything in flight at that time had ended; 0: not yet */
    uint64_t unified_elided_bytes;  /* of tensors that a device uses without a copy */
    uint64_t unified_copied_bytes;  /* of tensors that were copied to a device */
    uint64_t device_budget_bytes;   /* of cards, for weights that come and go: SWAPNET_DEVICE_BUDGET, or the limit that
                                       was taken on nearly full cards */
    uint64_t device_resident_bytes; /* memory of devices for weights that come and go there, now */
    uint64_t device_peak_bytes;     /* their peak */
    uint64_t device_kept_bytes; /* of such weights that got PyTorch's memory, or that a graph keeps beyond the budget */
    uint64_t device_swap_ins;
    uint64_t device_pinned_bytes;  /* pinned host memory with copies of such weights, for which the budget has room */
    uint64_t device_swapped_bytes; /* read from disk for them */
    uint64_t device_stall_ns;      /* operators waiting for such weights */
    double urgency;                /* 1 is ordinary */
    const char *fetch_path;
    const char *torch_version;
    const char *state;         /* "running", "shrinking" */
    const char *name;          /* of the program */
    const char *daemon_socket; /* of the swapnetd that gives the budget; NULL: none does */
    const char *unified;       /* how a device shares host memory: "pageable", "registered", "managed", "none", "off" */
};

#endif
