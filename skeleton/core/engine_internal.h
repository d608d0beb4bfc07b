/* skeleton/core/engine_internal.h - what the engine's files share. Everything in it is guarded by `lock` unless it says
 * otherwise.
 *
 * Lock rank: engine lock before the fetch queue's own. Never held while calling out (into PyTorch, or waiting for a
 * fetch other than through `changed`).
 */
#ifndef SWN_SKELETON_CORE_ENGINE_INTERNAL_H
#define SWN_SKELETON_CORE_ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "blocks/memory/arena.h"
#include "skeleton/core/spin_wait.h"
#include "scheduler/protocol/control.h"
#include "blocks/store/codec.h"
#include "skeleton/core/engine.h"
#include "blocks/memory/fetch_queue.h"
#include "skeleton/core/access_order.h"
#include "profiles/disk_speed.h"
#include "scheduler/planner/plan.h"
#include "blocks/memory/frame_pool.h"
#include "profiles/queue_depth.h"
#include "blocks/memory/residency.h"
#include "blocks/memory/spill_file.h"
#include "scheduler/protocol/trace.h"

/* A weight in the learned order. Its id is index + 1 in the low 20 bits and a generation above. */
struct swn_node {
    struct swn_range *range;
    uint32_t id;
    uint32_t then; /* what was read next, the last time */
    int joined;    /* by the same operator */
    int oversize;  /* the plan has no window that it fits, nor is it taken in slices: the mapping serves it */
    double compute_ns, own_ns; /* as in struct swn_plan_node */
};
#define SWN_NODE_BITS 20
#define SWN_NODE_MOST ((size_t)1 << SWN_NODE_BITS)

/* How far the machine is from what the plan in force was made for, see skeleton/core/replan.c. */
struct swn_drift {
    double speed, compute_ns; /* then, or when it was looked at last; the latter of all weights' operators together */
    unsigned passes;          /* in a row, with others */
    uint64_t since_ns;        /* when these began */
    int due;                  /* it is to be looked at */
    uint64_t looks;           /* so far */
    unsigned plans;           /* made for that reason, up to some number; fewer after looks that came to nothing */
    unsigned stays;           /* such looks in a row */
    unsigned short_passes;    /* in a row, that had too little for activations */
    uint64_t dropped;         /* what had been let go of when the last pass ended */
};

/* A plan in the making. The steps may be taken apart: making it needs no lock. */
struct swn_draft {
    uint32_t *ids;
    struct swn_plan_node *nodes;
    size_t n, other;
    uint64_t goal;   /* the budget for weights, the window and other */
    size_t straddle; /* a plan counts a chunk once, for the first weight in it, and two operators hold it in turn: so
                      * much more is the window */
    struct swn_disk_model disk;
    int keep;            /* what has room stays from pass to pass */
    size_t plot_extra;   /* how much of `other` is there only because activations have plots */
    double plot_gain_ns; /* what a pass gains by these, all else being equal */
    int unplot;          /* out: the plan is one without them, whose room weights have a better use for */
    struct swn_plan plan;
};

struct swn_thread_state {
    struct swn_cursor cursor;
    uint64_t last_visit; /* engine's visit number */
    uint32_t last_node;  /* whose computing is being timed */
    uint64_t ready_ns;   /* when it began */
    uint64_t own_ns;     /* until its operator was done; 0: it is not */
    unsigned open;       /* operators under way, one in the other */
    uint64_t left_ns;    /* when the last one of them ended */
    uint64_t idle_ns;    /* of the time that is computing's: nothing was, but the program waited for its next input */
    uint64_t pass_idle;  /* the same since the pass began */
    unsigned index;
    uint64_t next_plan_try;
    uint64_t pass_ns;       /* when the pass under way began */
    uint64_t flops;         /* since the last visit; while there is a record */
    struct swn_small small; /* likewise */
    size_t other;           /* most of everything that is not a weight since then, likewise */
    uintptr_t slicing;      /* where the next slice of the weight begins that its operator is going through; 0: none */
    uintptr_t slicing_end;  /* and where what it needs of it ends */
    int starved;            /* reading ahead for it ended where there was no frame */
    struct swn_places *places; /* of its activations; NULL before its first pass has ended */
    struct swn_row_reading
        *reading;         /* kept for the next rows that it looks up, see skeleton/tiling/row_gather.c; or NULL */
    struct swn_row *rows; /* likewise, in the order of their addresses */
    int looking_up;       /* it is using these */
    struct swn_thread_state *next;
    int listed;
};

struct source;
struct swn_row;
struct swn_row_reading;

struct swn_engine {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a frame arrived, was let go, or failed */
    struct swn_awake awake; /* told of frames that arrived or failed */
    struct swn_config config;
    const struct swn_io *io;
    struct swn_arena *arena;
    struct swn_pool *pool;
    struct swn_extent_file *spill;
    uint64_t spilled_before; /* written to spill files that the program has closed */
    struct swn_residency res;
    struct swn_fetch *fetch;
    struct swn_reads liked;        /* what the disk's profile says, without measurements; depth 0: there is none */
    struct swn_behind *behind;     /* NULL until something is written behind */
    struct swn_populate *populate; /* NULL until a tensor is filled for which there are no pages yet */
    struct swn_order *order;
    struct swn_trace *trace;
    struct swn_record *record; /* NULL unless SWAPNET_PROFILE is set */
    struct swn_control *control;
    const struct swn_half *half;
    _Atomic int running;
    _Atomic int retired;     /* all has come home and nothing leaves any more, see skeleton/core/retire.h */
    _Atomic int want_hook;   /* first spill: the operator hook is to be installed by whoever holds no lock */
    _Atomic int want_client; /* a forked child that the daemon does not know yet */
    _Atomic int hook_state;  /* 0 none, 1 being installed, 2 installed, 3 refused */
    pid_t pid;
    uint64_t arena_bytes;

    /* config.budget_bytes is the limit in force. goal_bytes is what it was last set to: the same, unless the limit is
     * on its way down to it (skeleton/budget/budget.c). */
    uint64_t goal_bytes;
    uint64_t promised_bytes;       /* the limit from which it is on its way: more than that is too much in any case */
    uint64_t goal_since_ns;        /* when the goal was set */
    uint64_t bound_ns;             /* when the limit came to be the goal */
    uint64_t goal_seq;             /* the last operator that had begun by then */
    uint64_t in_flight_ns;         /* when the last of these ended, and of the reads that were under way */
    struct swn_budgeter *budgeter; /* made by the first change of the budget */
    struct swn_client *client;     /* where a daemon rules, or is to rule */
    _Atomic size_t slices_least;   /* smaller weights come whole within the goal */
    uint64_t cap_bytes;            /* the user's budget, which no lease exceeds; 0: none */
    double urgency;

    struct swn_node *nodes;
    size_t node_count, node_room, node_live;
    uint32_t *free_nodes;
    size_t free_count;

    struct swn_thread_state *threads;
    unsigned thread_count;
    struct swn_op *open_ops;
    uint64_t seq;    /* outermost operators so far */
    uint64_t visits; /* weights read so far */

    size_t guest_bytes;     /* of files that the program mapped */
    size_t node_home_bytes; /* HOME ranges that are nodes */
    size_t other_peak;      /* most of everything that is not a weight, in this pass */
    size_t other_before;    /* and in those before it, fading */
    size_t other_peak_ever; /* and since there are weights */
    _Atomic long long small_bytes;
    size_t peak_resident, over_budget_peak;
    int plan_dirty, planned;
    int settling;    /* passes until activations are where they will be, see skeleton/activations/activation_plan.c */
    int plots_rough; /* pages of theirs are new, and small */
    unsigned plots_smoothed;       /* so often these were made huge */
    size_t unplotted_other;        /* what they took at most before they had plots; 0: plot_extra is known */
    size_t plot_extra;             /* how much more the plots take */
    uint64_t plots_refused;        /* the budget in which that is better had by weights; 0: none */
    int pressed;                   /* the budget has been full */
    size_t window_goal, lent_from; /* lent_from: the window without what was lent to it, or 0 */
    uint64_t plan_visit;
    uint64_t plan_since_ns; /* since when there has been a plan in force for the budget that this one is for */
    size_t planned_other;
    uint64_t spill_retry; /* allocation number before which a full disk is not asked again */
    uint64_t allocs;

    /* Bytes of memory that came without pages, each of which is filled once, or zeroed; of pages let go; and of tensors
     * that got their planned places. */
    uint64_t filled, dropped, placed;
    uint64_t slices, rows, swap_ins, window_hits, window_misses, stall_ns, read_errors, plans, untracked, live_bytes,
        demand_peak;
    uint64_t live_recent;      /* most live bytes of late */
    struct swn_draft in_force; /* the plan, once there is one */
    int plan_short;            /* its passes are short of the disk, see scheduler/planner/plan.h */
    struct swn_drift drift;
    struct swn_fetch *fork_paused;
    int forked;
    uint64_t deferred; /* bytes registered instead of read or copied */
    struct {           /* see skeleton/load/expected_read.c */
        const struct source *source;
        size_t after;
        pthread_t thread;
        struct swn_range *range;
        uint32_t id;
        size_t bytes;
    } expected;
    struct swn_pace disk;
    uint64_t written_bytes, written_ns; /* by program threads that needed room */
    uint64_t read_done_ns;              /* when the last read was done */
    /* Of copies: bytes read, bytes that they decoded to, and the time that took, per encoding for the latter two. */
    _Atomic uint64_t encoded_bytes, decoded_bytes[SWN_ENCODINGS], decode_ns[SWN_ENCODINGS];
    /* Reads of single rows, which say nothing of how fast weights come: bytes, and the time in which operators, so many
     * now, waited for them. */
    uint64_t row_bytes, row_ns, rows_since_ns;
    unsigned row_waiters;
    _Atomic int looked_at_disk;
    int said_pool, said_over, said_full, said_oversize, said_read, said_store, said_copy, said_closed, said_small;
};

/* Where the address space is limited, tensors get this part of what is left of it: the pool will want that and more,
 * and the math libraries have yet to map their buffers (OpenBLAS tries for ever when it cannot). */
#define SWN_SPACE_PART 4

/* What a disk gives, until something has been read. */
#define SWN_FIRST_BYTES_PER_NS 1.6

extern struct swn_engine swn_engine_one;
extern const struct swn_io *swn_engine_io; /* the table the engine is started with; tests put another in its place */

/* A tensor that is this many operators old when it is read is taken for a weight; residual connections are younger. */
#define SWN_AGED_OPS 64

/* Whether r is a weight of the order. */
static inline int swn_is_weight(const struct swn_range *r)
{
    return r->node >= 0;
}

/* Whether an operator reads a range through this argument that is not home. */
static inline int swn_reads_streamed(const struct swn_arg *arg)
{
    return arg->range && arg->reading && atomic_load(&arg->range->state) == SWN_STREAMED;
}

static inline size_t swn_weight_bytes(const struct swn_range *r)
{
    return swn_round_up(r->len, SWN_PAGE);
}

uint64_t swn_now_ns(void);
void swn_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* skeleton/core/engine.c */
size_t swn_engine_resident(struct swn_engine *e);
size_t swn_engine_mapped_bytes(void); /* the process's address space in use; 0: /proc does not tell */
void swn_engine_note_peak(struct swn_engine *e);
/* The end of a tensor that is no weight any more. */
void swn_engine_drop(struct swn_engine *e, struct swn_range *r);
/* Ends the program: a weight's bytes are not what was stored. */
void swn_engine_corrupt(const struct swn_extent_file *file, uint32_t block, uint64_t off) __attribute__((noreturn));

/* skeleton/core/fetch_setup.c */
/* Reads the profile of the disk with the spill file, if there is one. */
void swn_queue_look_up(struct swn_engine *e);
int swn_queue_start(struct swn_engine *e); /* 0 or -errno */

/* skeleton/core/residency_policy.c */
int swn_policy_pool(struct swn_engine *e);
/* Says once if what is written to the store directory stays in memory. Any lock may be held. */
void swn_policy_look_at_disk(struct swn_engine *e);
/* Bytes that this process has written to spill files. */
uint64_t swn_policy_written(const struct swn_engine *e);
/* pages: as for swn_residency_home. */
int swn_policy_home(struct swn_engine *e, struct swn_range *r, void *pages);
void swn_policy_recall(struct swn_engine *e, struct swn_range *r);
int swn_policy_share(struct swn_engine *e, struct swn_range *r);
int swn_policy_bring_home(struct swn_engine *e, struct swn_range *r, void *pages);
int swn_policy_spill(struct swn_engine *e, struct swn_range *r);
/* What follows from a spill of `size` bytes that ended with err. */
void swn_policy_spilled(struct swn_engine *e, size_t size, int err);
/* Frames that have bytes of nobody else go: r has other bytes now, or is gone. */
void swn_policy_drop_frames(struct swn_engine *e, const struct swn_range *r);
void swn_policy_settle(struct swn_engine *e, struct swn_range *r);
size_t swn_policy_gather(struct swn_engine *e, uint32_t *ids, size_t most);
void swn_policy_plan(struct swn_engine *e, struct swn_thread_state *t);
size_t swn_policy_other(struct swn_engine *e);
size_t swn_policy_other_held(struct swn_engine *e);
/* Most of what is held for it of late. */
size_t swn_policy_other_peak(const struct swn_engine *e);
size_t swn_policy_other_needed(const struct swn_engine *e);
size_t swn_policy_minimum(struct swn_engine *e);
/* The disk as its last reads were. */
struct swn_disk_model swn_policy_disk(struct swn_engine *e);
int swn_policy_draft(struct swn_engine *e, struct swn_thread_state *t, struct swn_draft *out);
void swn_policy_drop_draft(struct swn_draft *d);
int swn_policy_make_plan(struct swn_draft *d);
/* Puts it into force; then it is e->in_force, and *d empty. -EAGAIN: a weight that it knows is gone, -EBUSY: part of it
 * could not be carried out now, and it is to be tried again. */
int swn_policy_adopt(struct swn_engine *e, struct swn_draft *d);

/* skeleton/core/replan.c */
/* A thread has begun another pass. With several threads this is not everybody's. */
void swn_policy_passed(struct swn_engine *e);
/* The plan in force is right for the machine as it is now, and a disk of this speed. */
void swn_policy_drift_begin(struct swn_engine *e, double bytes_per_ns);
/* Whether passes under the draft's plan are short of the disk. Those that were are for a little longer, so that slices
 * of small weights do not come and go with every plan. */
int swn_policy_short_of_disk(const struct swn_engine *e, const struct swn_draft *d);
/* Whether what is planned in the draft, for the machine as it is now, is worth putting into force. If so, or if there
 * will be another draft that is, the plan is dirty. */
int swn_policy_outdated(struct swn_engine *e, const struct swn_draft *d);

/* skeleton/core/eviction.c */
int swn_policy_try_room(struct swn_engine *e, size_t bytes, const struct swn_range *spare);
int swn_policy_offer_room(struct swn_engine *e, size_t bytes);
/* What that would cost, in ns: 0 where so much fits, the time to write what would have to leave, if it must be, and to
 * read it again; UINT64_MAX: it cannot be had. Nothing leaves. */
int swn_policy_make_room(struct swn_engine *e, size_t bytes, const struct swn_range *spare);
/* Weights that were to stay have left for a tensor with which everything else would take `other`. */
void swn_policy_note_shortage(struct swn_engine *e, size_t other);
/* Whether `bytes` more fit once pages that nobody uses have gone. */
int swn_policy_fits_free(struct swn_engine *e, size_t bytes);
int swn_policy_give(struct swn_engine *e, int desperate);
size_t swn_policy_first_window(struct swn_engine *e);
/* So many bytes of frames are for what comes and goes: whole ones, at least one. */
void swn_policy_resize_window(struct swn_engine *e, size_t bytes);
/* What it has beyond that goes as soon as nobody uses it. */
void swn_policy_window(struct swn_engine *e);
void swn_policy_lend_room(struct swn_engine *e, size_t bytes);

/* skeleton/budget/budget.c */
void swn_budget_fork_child(struct swn_engine *e);
uint64_t swn_budget_in_flight_ns(const struct swn_engine *e);

/* swn_order glue, skeleton/core/weights.c */
struct swn_node *swn_node_of(struct swn_engine *e, uint32_t id);
int swn_node_add(struct swn_engine *e, struct swn_range *r);
void swn_node_remove(struct swn_engine *e, struct swn_range *r);

/* skeleton/core/prefetch.c */
extern unsigned swn_swapin_wait_ms; /* longest wait of an operator for a read, then its mapping serves */
/* Sees to it that r's bytes in these chunks are in frames, or come. Where there is no place for one, the mapping
 * serves. May release the lock. */
void swn_swapin_claim(struct swn_engine *e, const struct swn_range *r, const struct swn_chunks *chunks,
                      struct swn_thread_state *t);
/* Waits until what is being read into the frames of these chunks is there. Releases the lock meanwhile. */
void swn_swapin_await(struct swn_engine *e, const struct swn_chunks *chunks, struct swn_thread_state *t);
/* Whether a frame can go: no operator holds its chunk, and nothing is being read into it. */
int swn_swapin_may_go(const struct swn_engine *e, const struct swn_frame *f);
/* Lets such a frame go. */
void swn_swapin_evict(struct swn_engine *e, struct swn_frame *f);
/* Frees the frames of these chunks that have bytes of nobody any more. */
void swn_swapin_reap(struct swn_engine *e, const struct swn_chunks *chunks);
/* Takes back the reads into it that have not begun. 1: none is left. */
int swn_swapin_cancel(struct swn_engine *e, struct swn_frame *f);
/* Takes back one read ahead that has not begun, and its frame is free. 0: there is none. */
int swn_swapin_cancel_one(struct swn_engine *e);
/* Fetches what the learned order says this thread will want next, as far as its share of the window goes. */
void swn_swapin_ahead(struct swn_engine *e, struct swn_thread_state *t);

/* skeleton/core/op_window.c */
void swn_engine_op_begin(struct swn_op *op);
void swn_engine_op_end(struct swn_op *op);
void swn_window_fork_child(struct swn_engine *e);
void swn_window_thread_exit(void);
/* This thread's, or NULL: it has run no operator yet. */
struct swn_thread_state *swn_window_self(void);
/* The next weight that it reads does not follow the one that it was seen reading last. */
void swn_window_lost(struct swn_thread_state *t);
/* The same, made if need be; NULL without memory for it. */
struct swn_thread_state *swn_window_thread(struct swn_engine *e);
/* The chunks in which bytes [from, upto) of arg's range lie are held for the operator, and no others any more. */
void swn_window_hold(struct swn_engine *e, struct swn_arg *arg, size_t from, size_t upto);
void swn_window_release(struct swn_engine *e, struct swn_arg *arg);
/* Brings what arg holds into memory, at its own address. May release the lock. */
void swn_window_lend(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t);
/* Before there is a plan, a weight that does not come in slices after all is held and lent whole. 0: it is too large.
 */
int swn_window_whole(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t);
void swn_window_end_arg(struct swn_engine *e, struct swn_arg *arg);
/* Lets go of the pages that r's last reader read through its mapping. */
void swn_window_forget(struct swn_engine *e, struct swn_range *r);

/* skeleton/activations/activation_plan.c */
struct swn_place {
    struct swn_plot *plot;
    size_t at;
};
/* t begins another pass. */
void swn_places_passed(struct swn_engine *e, struct swn_thread_state *t);
/* Forgets all plans of the thread, whose model is gone. */
void swn_places_drop(struct swn_engine *e, struct swn_thread_state *t);
/* Gives up all plots, and makes none while the budget is what it is now. */
void swn_places_refuse(struct swn_engine *e);
/* Whether the next tensor of t (or NULL), of n bytes, has a planned place and nobody is there. */
int swn_places_find(struct swn_engine *e, struct swn_thread_state *t, size_t n, struct swn_place *out);
/* t has allocated r; r is going to be freed. */
void swn_places_born(struct swn_thread_state *t, struct swn_range *r);
void swn_places_died(struct swn_range *r);
/* skeleton/tiling/slice.c: what is declared in skeleton/abi/abi.h, too, is called without the lock */
size_t swn_slice_offer(struct swn_op *op, unsigned arg, const struct swn_rows *rows);
int swn_slice_wanted(struct swn_op *op, unsigned arg, uint64_t shape);
size_t swn_slice_least(void);
/* The budget is another one. */
void swn_slice_set_least(struct swn_engine *e);
/* The plan, or without one the window, has r's operator take it in slices; or not. */
void swn_slice_set(struct swn_engine *e, struct swn_range *r, int sliced);
size_t swn_slice_list(struct swn_op *op, unsigned arg, struct swn_slices *slices, size_t most);
size_t swn_slice_refused(struct swn_op *op, unsigned arg, uint64_t shape, size_t tried, int right);
const void *swn_slice_lend(struct swn_op *op, unsigned arg, size_t off, size_t bytes);
/* The operator of t needs what arg has from `off` on next, as far as its tensor goes. */
void swn_slice_next(struct swn_thread_state *t, const struct swn_arg *arg, size_t off);
/* The operator is done with a `sliced` argument. */
void swn_slice_end(struct swn_engine *e, struct swn_op *op, struct swn_arg *arg);
int swn_slice_copy_room(size_t bytes);

/* skeleton/tiling/trial_memory.c: as in skeleton/abi/abi.h, without the lock */
void *swn_trial_map(size_t bytes, size_t period);
void swn_trial_unmap(void *at, size_t bytes, size_t period);
void swn_trial_fold(size_t bytes, size_t period);
int swn_trial_room(size_t bytes);
/* This thread has allocated a tensor of so many bytes, or freed one (negative). */
/* Memory for a tensor of n bytes of a thread that tries out something, or NULL: it gets its own as usual. */
void *swn_trial_alloc(size_t n);
/* 1: it was such a tensor's. */
int swn_trial_free(void *p);
void swn_trial_fork_child(struct swn_engine *e);

/* skeleton/tiling/row_gather.c: the host's half, see skeleton/abi/abi.h */
int swn_rows_copy(struct swn_op *op, unsigned arg, uintptr_t first, size_t row_bytes, size_t count, const int64_t *rows,
                  size_t n, void *out);
void swn_rows_begin(struct swn_engine *e, struct swn_arg *arg);
/* Lets go of what was read through the mapping. */
void swn_rows_end(struct swn_engine *e, struct swn_arg *arg);
/* Frees what is kept for the rows of a thread that is not looking any up, or of all such threads. Returns the bytes of
 * its buffer. */
size_t swn_rows_forget(struct swn_thread_state *t);
size_t swn_rows_trim(struct swn_engine *e);
void swn_rows_fork_child(struct swn_engine *e);

#endif
