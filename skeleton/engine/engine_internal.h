/* skeleton/engine/engine_internal.h - what the engine's files share. Everything in it is guarded by `lock` unless it
 * says otherwise.
 *
 * Lock rank: engine lock before the fetch queue's own. Never held while calling out (into PyTorch, or waiting for a
 * fetch other than through `changed`).
 */
#ifndef SWN_SKELETON_ENGINE_ENGINE_INTERNAL_H
#define SWN_SKELETON_ENGINE_ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/log.h"
#include "blocks/memory/arena.h"
#include "skeleton/engine/spin_wait.h"
#include "scheduler/protocol/control.h"
#include "skeleton/engine/engine.h"
#include "skeleton/engine/frame_use.h"
#include "skeleton/engine/tensor.h"
#include "blocks/memory/fetch_queue.h"
#include "skeleton/engine/access_order.h"
#include "skeleton/engine/announced.h"
#include "profiles/disk_speed.h"
#include "scheduler/planner/plan.h"
#include "blocks/memory/frame_pool.h"
#include "profiles/queue_depth.h"
#include "blocks/memory/residency.h"
#include "blocks/memory/spill_file.h"
#include "scheduler/protocol/trace.h"

/* A weight in the learned order. Its id is index + 1 in the low 20 bits and a generation above. */
struct swn_weight {
    struct swn_range *range;
    uint32_t id;
    uint32_t then;            /* the weight that was read next, the last time */
    int joined;               /* by the same operator */
    int loaded;               /* its bytes came from a checkpoint: no pass has computed them */
    int oversize;             /* does not fit the plan's ring, and is not sliced: the mapping serves it */
    double compute_ns, op_ns; /* as in struct swn_plan_weight */
    uint64_t read_at;         /* number of its last access among those of all weights */
    uint64_t widest_gap;      /* accesses from one of its own to the next, at most; 0: there was one */
};
#define SWN_WEIGHT_BITS 20
#define SWN_WEIGHT_MOST ((size_t)1 << SWN_WEIGHT_BITS)

/* How far the machine has changed since the plan in force was made, see skeleton/core/replan.c. */
struct swn_replan {
    double speed, compute_ns; /* at that time, or at the last review; compute_ns: of all weights' operators together */
    size_t nonweight;         /* likewise, the peak of nonweight bytes */
    unsigned passes;          /* passes in a row with other values */
    uint64_t since_ns;        /* when these began */
    int review_due;           /* the plan is to be reviewed */
    uint64_t reviews;         /* so far */
    unsigned plans; /* number of plans made for that reason, up to a limit; reduced after reviews without a new plan */
    unsigned unchanged_reviews; /* reviews in a row without a new plan */
    unsigned short_passes;      /* in a row, with too little memory for activations */
    uint64_t dropped;           /* bytes dropped until the end of the last pass */
};

/* A plan in the making. Its steps are separate: solving it needs no lock. */
struct swn_plan_candidate {
    uint32_t *ids;
    struct swn_plan_weight *weights;
    const struct swn_extent_file *file; /* of a program with many models: the one that they are all of */
    size_t n, nonweight;
    uint64_t goal;   /* bytes for weights, the staging ring and nonweight bytes */
    size_t straddle; /* bytes by which the ring is larger: a plan counts a chunk once, for the first weight in it, but
                        two operators hold it in turn */
    struct swn_disk_model disk;
    int keep;              /* weights with room stay from pass to pass */
    size_t region_extra;   /* the part of nonweight bytes that exists only because activations have regions */
    double region_gain_ns; /* the time that a pass gains by regions, all else being equal */
    int drop_regions;      /* out: the plan has no regions, as weights make better use of the memory */
    struct swn_plan plan;
};

struct swn_thread_state {
    struct swn_cursor cursor;
    struct swn_walks walks; /* along the order, for what it reads next */
    uint64_t last_access;   /* engine's access number */
    uint32_t last_weight;   /* the weight whose computing is being timed */
    uint64_t ready_ns;      /* when that began */
    uint64_t op_ns;         /* until its operator ended; 0: it still runs */
    unsigned open;          /* nested operators under way */
    uint64_t left_ns;       /* when the outermost operator ended last */
    uint64_t idle_ns;       /* idle part of the computing time: the program waited for its next input */
    uint64_t pass_idle;     /* the same since the begin of the pass */
    unsigned index;
    uint64_t next_plan_try;
    uint64_t pass_ns;       /* when the pass under way began */
    uint64_t flops;         /* since the last access; only with a record */
    struct swn_small small; /* likewise */
    size_t nonweight;       /* most nonweight bytes since then, likewise */
    uintptr_t slicing;      /* where the next slice begins of the weight that its operator is going through; 0: none */
    uintptr_t slicing_end;  /* the end of the bytes that the operator needs of it */
    struct swn_expert_list *experts;    /* of the mixture that it reads or has read last (skeleton/engine/experts.h); or
                                       NULL */
    struct swn_activation_plan *places; /* of its activations; NULL before its first pass has ended */
    struct swn_row_reading
        *reading; /* kept for the next rows that the thread looks up, see skeleton/tiling/row_gather.c; or NULL */
    struct swn_row *rows; /* likewise, in the order of their addresses */
    int looking_up;       /* a look-up is using these */
    struct swn_thread_state *next;
    int listed;
};

struct source;
struct swn_row;
struct swn_row_reading;
struct swn_expert_list;

/* The state of the engine from start to exit. */
struct swn_life {
    _Atomic int running;
    _Atomic int retired;     /* everything is resident and nothing leaves any more, see skeleton/core/retire.h */
    _Atomic int want_hook;   /* first spill: a thread that holds no lock is to install the operator hook */
    _Atomic int want_client; /* a forked child that is not registered with the daemon yet */
    _Atomic int hook_state;  /* 0 none, 1 being installed, 2 installed, 3 refused */
    int forked;
    pid_t pid;
    struct swn_fetch *fork_paused;
};

/* The subsystems set these when the engine starts; see skeleton/engine/subsystem.h. */
struct swn_features {
    const struct swn_weight_source *source;
    const struct swn_placement *placement;
    const struct swn_tiling *tiling;
    const struct swn_observer *observer;
    struct swn_record *record; /* NULL unless SWAPNET_PROFILE is set */
};

/* The budget, in bytes. `limit` is in force: it is the target, or on its way down to it (skeleton/budget). */
struct swn_budget_state {
    uint64_t user_cap;        /* the user's budget, which no lease exceeds; 0: none */
    uint64_t target;          /* the last budget that was set */
    uint64_t limit;           /* in force now */
    uint64_t limit_at_change; /* the limit from which it comes down: more than that is too much in any case */
    uint64_t target_since_ns;
    uint64_t bound_ns;     /* when the limit reached the target */
    uint64_t target_seq;   /* the last operator that had begun by then */
    uint64_t in_flight_ns; /* when the last of these operators, and of the reads under way then, ended */
    double urgency;
    _Atomic size_t slices_least;   /* smaller weights are not sliced within the target */
    struct swn_budgeter *budgeter; /* made by the first change of the budget */
    struct swn_client *client;     /* if a daemon rules, or is to rule */
    struct swn_control *control;
};

struct swn_weights {
    struct swn_weight *all;
    size_t count, room, live;
    uint32_t *free;
    size_t free_count;
    size_t resident_bytes; /* of resident ranges that are weights */
    uint64_t accesses;     /* weights read so far */
    struct swn_access_order *order;
    uint32_t epoch; /* of the counts of uses of experts */
};

struct swn_operators {
    struct swn_thread_state *threads;
    unsigned thread_count;
    struct swn_op *open;
    uint64_t seq;  /* outermost operators so far */
    uint64_t aged; /* SWN_AGED_OPS of this process; 0: that */
    struct swn_announced announced;
};

/* Counted bytes of nonweight memory. */
struct swn_nonweight {
    size_t peak;      /* peak of this pass */
    size_t before;    /* peak of passes before, fading */
    size_t peak_ever; /* peak since there are weights */
    size_t planned;   /* reserved by the plan */
    _Atomic long long small_bytes;
};

struct swn_plan_state {
    struct swn_plan_candidate in_force; /* the plan, once there is one */
    int planned, dirty;
    int short_of_disk; /* its passes are short of the disk, see scheduler/planner/plan.h */
    int pressed;       /* the budget has been full */
    uint64_t made, access;
    uint64_t since_ns;   /* since when a plan for this budget has been in force */
    size_t ring_goal;    /* bytes of the staging ring's frames */
    size_t lent_from;    /* the ring's size without lent room, or 0 */
    size_t experts_room; /* bytes of further frames, for experts, which stay by how often they are used */
    struct swn_replan replan;
};

/* Planned addresses of activations, see skeleton/activations/activation_plan.c. */
struct swn_region_state {
    int warmup_passes;        /* until activations have their final places */
    int small_pages;          /* some of their pages are new, and small */
    unsigned huge_promotions; /* how often they were promoted to huge pages */
    size_t nonweight_without; /* peak of nonweight bytes before there were regions; 0: extra is known */
    size_t extra;             /* how much more the regions take */
    uint64_t refused;         /* the budget in which weights make better use of that memory; 0: none */
    uint64_t placed;          /* bytes of tensors that got their planned addresses */
};

/* Writes to spill files. */
struct swn_writes {
    struct swn_extent_file *spill;
    struct swn_extent_file *full;    /* files that have bytes of ranges, and take no more */
    char spill_dir[PATH_MAX];        /* where spill files are made; "" before the first: the store directory */
    uint64_t spilled_before;         /* bytes written to spill files that were in use before */
    uint64_t spill_retry;            /* allocation number before which a full disk is not tried again */
    uint64_t bytes, ns;              /* by program threads that needed room */
    struct swn_write_behind *behind; /* NULL until the first write-behind */
};

/* The disk with the store directory. */
struct swn_disk_state {
    struct swn_disk_speed speed;
    struct swn_queue_depth preferred; /* by its device profile, without measurements; depth 0: none */
    uint64_t read_done_ns;            /* when the last read ended */
    /* Reads of single rows, which do not show how fast weights are read: bytes, and the time that operators waited for
     * them (row_waiters of them now). */
    uint64_t row_bytes, row_ns, rows_since_ns;
    unsigned row_waiters;
    _Atomic int looked_at; /* what swn_look_at_store_disk found; 0: not yet */
};

/* Whether the source is likely to get a read of `bytes` registered soon after its extent number `after`. */
typedef int swn_expected_read_match(const void *source, size_t after, size_t bytes);

/* See skeleton/core/expected_read.h. */
struct swn_expected_read {
    swn_expected_read_match *match;
    const void *source;
    size_t after;
    pthread_t thread;
    struct swn_range *range;
    uint32_t id;
    size_t bytes;
};

/* Counters for the statistics. */
struct swn_counters {
    uint64_t filled;  /* bytes of memory that came without pages, each of which is filled or zeroed once */
    uint64_t dropped; /* bytes of dropped pages */
    uint64_t slices, rows, swap_ins, window_hits, window_misses, stalls, stall_ns, read_errors, allocs;
    uint64_t deferred;                /* bytes registered instead of read or copied */
    uint64_t untracked;               /* bytes of tensors for which the arena had no room */
    uint64_t untracked_weights;       /* bytes of weights that PyTorch did not allocate: skeleton/load/untracked.h */
    uint64_t live_bytes, live_recent; /* of tensors; recent peak */
    uint64_t live_mark;               /* most of them, small ones too, since somebody asked last */
    uint64_t demand_peak;             /* peak */
    size_t peak_resident, over_budget_peak;
    size_t mapped_file_bytes; /* of files that the program mapped */
};

/* Messages that are printed once: not 0 when printed. */
struct swn_said {
    int pool, over, written, full, oversize, read, store, refused, compressed, closed, small, limited;
};

struct swn_engine {
    pthread_mutex_t lock;
    pthread_cond_t changed;         /* a frame arrived, was evicted, or failed */
    struct swn_spin_wait spin_wait; /* told when a frame arrives or fails */
    struct swn_config config;       /* constant after the start, except for `enforce` */
    const struct swn_io *io;
    const struct swn_torch_backend *torch;
    struct swn_life life;
    struct swn_features features;
    struct swn_arena *arena;
    struct swn_pool *pool;
    struct swn_residency res;
    struct swn_fetch *fetch;
    struct swn_prefault *prefault; /* NULL until a tensor without pages is filled */
    struct swn_trace *trace;
    struct swn_budget_state budget;
    struct swn_weights weights;
    struct swn_operators ops;
    struct swn_nonweight nonweight;
    struct swn_plan_state plan;
    struct swn_region_state regions;
    struct swn_writes writes;
    struct swn_disk_state disk;
    struct swn_expected_read expected;
    struct swn_counters counters;
    struct swn_said said;
};

/* Where the address space is limited, the arena takes one part in this many of the rest: the pool will need as much and
 * more, and the math libraries have yet to map their buffers (OpenBLAS retries for ever when it cannot). */
#define SWN_SPACE_PART 4

/* The disk's assumed speed before the first read. */
#define SWN_FIRST_BYTES_PER_NS 1.6

extern struct swn_engine swn_engine_one;
/* All mapped files that the engine serves lie between these addresses; 0, 0: there never was one. The torch backend
 * reads them without a lock. */
extern uintptr_t swn_mapped_bounds[2];
extern const struct swn_io *swn_engine_io; /* the I/O table of the engine; tests replace it */

/* A tensor that is read when it is this many operators old counts as a weight; residual connections are younger. Where
 * features live longer (DenseNet's are read by every later layer of their block), what was taken for a weight and is
 * freed raises the number of this process, up to SWN_AGED_OPS_MOST. */
#define SWN_AGED_OPS 64
#define SWN_AGED_OPS_MOST 4096

/* Whether r is a weight of the order. */
static inline int swn_is_weight(const struct swn_range *r)
{
    return r->weight >= 0;
}

/* Whether an operator reads a range that is not resident through this argument. */
static inline int swn_arg_is_file_backed(const struct swn_arg *arg)
{
    return arg->range && arg->reading && atomic_load(&arg->range->state) == SWN_FILE_BACKED;
}

static inline size_t swn_weight_bytes(const struct swn_range *r)
{
    return swn_round_up(r->len, SWN_PAGE);
}

/* Initialises the lock, and its condition variables, as if never used. */
void swn_engine_init_sync(struct swn_engine *e);
/* Ends a tensor that is no weight any more. */
void swn_engine_drop(struct swn_engine *e, struct swn_range *r);
/* Ends the program: a weight's bytes are not the stored ones. */
void swn_engine_corrupt(const struct swn_extent_file *file, uint32_t block, uint64_t off) __attribute__((noreturn));
/* The same: the disk has not taken bytes that the program has stored. */
void swn_engine_unwritable(const struct swn_range *r, int err) __attribute__((noreturn));

#endif
