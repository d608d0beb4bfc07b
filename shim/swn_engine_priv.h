/* swn_engine_priv.h - what the engine's files share. Everything in it is guarded by `lock` unless it says otherwise.
 *
 * Lock rank: engine lock before the fetch queue's own. Never held while calling out (into PyTorch, or waiting for a
 * fetch other than through `changed`).
 */
#ifndef SWN_ENGINE_PRIV_H
#define SWN_ENGINE_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "swn_arena.h"
#include "swn_awake.h"
#include "swn_control.h"
#include "swn_encoding.h"
#include "swn_engine.h"
#include "swn_fetch.h"
#include "swn_order.h"
#include "swn_pace.h"
#include "swn_plan.h"
#include "swn_pool.h"
#include "swn_reads.h"
#include "swn_residency.h"
#include "swn_spill.h"
#include "swn_trace.h"

/* A weight in the learned order. Its id is index + 1 in the low 20 bits and a generation above. */
struct swn_node {
    struct swn_range *range;
    uint32_t id;
    uint32_t then;             /* what was read next, the last time */
    int joined;                /* by the same operator */
    double compute_ns, own_ns; /* as in struct swn_plan_node */
    uint32_t allocs;           /* of its pass, made when the next node is read */
    size_t other_need;         /* most of everything that is not a weight, from its operator to the next node's */
};
#define SWN_NODE_BITS 20
#define SWN_NODE_MOST ((size_t)1 << SWN_NODE_BITS)

/* How far the machine is from what the plan in force was made for, see swn_policy_drift.c. */
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
    uint64_t goal; /* the budget for weights, the window and other */
    struct swn_plan_disk disk;
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
    struct swn_load_run *checking;   /* the checksum that goes along with it, see swn_load_check.c; NULL: none yet */
    struct swn_places *places;       /* of its activations; NULL before its first pass has ended */
    struct swn_row_reading *reading; /* kept for the next rows that it looks up, see swn_rows.c; or NULL */
    struct swn_row *rows;            /* likewise, in the order of their addresses */
    int looking_up;                  /* it is using these */
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
    _Atomic int want_hook;   /* first spill: the operator hook is to be installed by whoever holds no lock */
    _Atomic int want_client; /* a forked child that the daemon does not know yet */
    _Atomic int hook_state;  /* 0 none, 1 being installed, 2 installed, 3 refused */
    pid_t pid;
    uint64_t arena_bytes;

    /* config.budget_bytes is the limit in force. goal_bytes is what it was last set to: the same, unless the limit is
     * on its way down to it (swn_budget.c). */
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
    size_t kept_bytes;      /* pool memory behind the window */
    size_t node_home_bytes; /* HOME ranges that are nodes */
    size_t other_peak;      /* most of everything that is not a weight, in this pass */
    size_t other_before;    /* and in those before it, fading */
    size_t other_peak_ever; /* and since there are weights */
    size_t other_step;      /* and since the last weight was read */
    size_t lodged_bytes;    /* HOME ranges that hold frames */
    size_t lodged_plotted;  /* those in plots */
    _Atomic long long small_bytes;
    size_t peak_resident, over_budget_peak;
    int plan_dirty, planned;
    int settling;                  /* passes until activations are where they will be, see swn_places.c */
    int plots_rough;               /* pages of theirs are new, and small */
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
    uint64_t slices, stripes, stripes_refused, rows, swap_ins, window_hits, window_misses, stall_ns, read_errors, plans,
        untracked, live_bytes, demand_peak;
    uint64_t live_recent;      /* most live bytes of late */
    struct swn_draft in_force; /* the plan, once there is one */
    int plan_short;            /* its passes are short of the disk, see swn_plan.h */
    struct swn_drift drift;
    struct swn_fetch *fork_paused;
    int forked;
    uint64_t deferred; /* bytes registered instead of read or copied */
    struct {           /* see swn_load_expect.c */
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
    int said_pool, said_over, said_full, said_oversize, said_read, said_store, said_copy, said_closed;
};

/* What a disk gives, until something has been read. */
#define SWN_FIRST_BYTES_PER_NS 1.6

extern struct swn_engine swn_engine_one;
extern const struct swn_io *swn_engine_io; /* the table the engine is started with; tests put another in its place */

/* A tensor that is this many operators old when it is read is taken for a weight; residual connections are younger. */
#define SWN_AGED_OPS 64

/* Whether r is, or is a piece of, a weight of the order. */
static inline int swn_is_weight(const struct swn_range *r)
{
    return r->lead->node >= 0;
}

/* Whether an operator reads a range through this argument that is not home. */
static inline int swn_reads_streamed(const struct swn_arg *arg)
{
    return arg->range && arg->reading && atomic_load(&arg->range->state) == SWN_STREAMED;
}

/* The file that a frame is, or was, filled from. */
static inline struct swn_extent_file *swn_frame_file(const struct swn_frame *f)
{
    return (struct swn_extent_file *)((char *)(uintptr_t)f->job.file - offsetof(struct swn_extent_file, fetch));
}

static inline size_t swn_weight_bytes(const struct swn_range *lead)
{
    size_t bytes = 0;
    for (const struct swn_range *r = lead; r; r = r->rest)
        bytes += swn_round_up(r->len, SWN_PAGE);
    return bytes;
}

/* The same without what its last page has beyond its end. */
static inline size_t swn_weight_len(const struct swn_range *lead)
{
    size_t bytes = 0;
    for (const struct swn_range *r = lead; r; r = r->rest)
        bytes += r->len;
    return bytes;
}

uint64_t swn_now_ns(void);
void swn_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* swn_engine.c */
size_t swn_engine_resident(struct swn_engine *e);
void swn_engine_note_peak(struct swn_engine *e);
/* The end of a tensor that is no weight any more, and of all of its pieces. */
void swn_engine_drop(struct swn_engine *e, struct swn_range *lead);
/* Ends the program: a weight's bytes are not what was stored. */
void swn_engine_corrupt(const struct swn_extent_file *file, uint32_t block, uint64_t off) __attribute__((noreturn));

/* swn_queue.c */
/* Reads the profile of the disk with the spill file, if there is one. */
void swn_queue_look_up(struct swn_engine *e);
int swn_queue_start(struct swn_engine *e); /* 0 or -errno */

/* swn_policy.c */
int swn_policy_pool(struct swn_engine *e);
/* Says once if what is written to the store directory stays in memory. Any lock may be held. */
void swn_policy_look_at_disk(struct swn_engine *e);
/* Bytes that this process has written to spill files. */
uint64_t swn_policy_written(const struct swn_engine *e);
int swn_policy_home(struct swn_engine *e, struct swn_range *r, int discard);
void swn_policy_recall(struct swn_engine *e, struct swn_range *r);
int swn_policy_share(struct swn_engine *e, struct swn_range *r);
int swn_policy_bring_home(struct swn_engine *e, struct swn_range *r, int discard);
int swn_policy_spill(struct swn_engine *e, struct swn_range *r);
/* What follows from a spill of `size` bytes that ended with err. */
void swn_policy_spilled(struct swn_engine *e, size_t size, int err);
void swn_policy_drop_frame(struct swn_engine *e, struct swn_range *r);
void swn_policy_evict(void *engine, struct swn_frame *f);
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
struct swn_plan_disk swn_policy_disk(struct swn_engine *e);
int swn_policy_draft(struct swn_engine *e, struct swn_thread_state *t, struct swn_draft *out);
void swn_policy_drop_draft(struct swn_draft *d);
int swn_policy_make_plan(struct swn_draft *d);
/* Puts it into force; then it is e->in_force, and *d empty. -EAGAIN: a weight that it knows is gone, -EBUSY: part of it
 * could not be carried out now, and it is to be tried again. */
int swn_policy_adopt(struct swn_engine *e, struct swn_draft *d);

/* swn_cut.c */
int swn_cut_in_use(const struct swn_range *r);
/* Before there is a plan: half the budget for the head of a weight that is larger than all of it. */
void swn_cut_oversize(struct swn_engine *e, struct swn_range *r);
/* Before there is a plan: a weight that does not fit the window is lent in slices from the start. `arg` is the only one
 * that uses it, and has not touched it yet. Where it is cut into others, it is cut anew. 1: so it is now. */
int swn_cut_early(struct swn_engine *e, struct swn_arg *arg);
/* Cuts the weight as the plan says, and tells its pieces what becomes of them. 0, or -EBUSY when it is in use: it stays
 * whole until the plan is tried again. One in slices may keep cuts that are in nobody's plan, see swn_cut_again. */
int swn_cut_apply(struct swn_engine *e, struct swn_range *lead, const struct swn_plan_node *node);
/* When the plan came, pieces of a weight that is to come whole again were in use, or partly in memory. Now that an
 * operator is done with it, those that have left are joined. */
void swn_cut_rejoin(struct swn_engine *e, struct swn_range *lead);
/* While there is a plan: for this operator, which is the only one that uses the weight and has not touched it yet,
 * slices are whole units of so many bytes, where that can be had; for the next one they are as planned again. */
void swn_cut_once(struct swn_engine *e, const struct swn_op *op, struct swn_arg *arg, size_t unit);
/* When the plan came, of two pieces that are to be one slice one was at its own address, or stays, and the other did
 * not, or was in use. Now that its operator, t's, is about to ask for slices they are made alike. */
void swn_cut_again(struct swn_engine *e, const struct swn_op *op, struct swn_arg *arg, struct swn_thread_state *t);
/* r, of which the operator is about to take a slice, is to stay, has not come yet, and there is no room for it any
 * more: the budget has become smaller, and the plan for that has not come yet. It comes through the window, in slices.
 */
void swn_cut_unkept(struct swn_engine *e, const struct swn_op *op, const struct swn_arg *arg, struct swn_range *r);

/* swn_policy_drift.c */
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

/* swn_policy_room.c */
int swn_policy_try_room(struct swn_engine *e, size_t bytes, const struct swn_range *spare);
int swn_policy_offer_room(struct swn_engine *e, size_t bytes);
/* What that would cost, in ns: 0 where so much fits, the time to write what would have to leave, if it must be, and to
 * read it again; UINT64_MAX: it cannot be had. Nothing leaves. */
uint64_t swn_policy_room_ns(struct swn_engine *e, size_t bytes);
int swn_policy_make_room(struct swn_engine *e, size_t bytes, const struct swn_range *spare);
/* Weights that were to stay have left for a tensor with which everything else would take `other`. */
void swn_policy_note_shortage(struct swn_engine *e, size_t other);
/* Whether `bytes` more fit once pages that nobody uses have gone. */
int swn_policy_fits_free(struct swn_engine *e, size_t bytes);
int swn_policy_give(struct swn_engine *e, int desperate);
/* A kept weight is read anew from now on. */
void swn_policy_unkeep(struct swn_engine *e, struct swn_range *r);
size_t swn_policy_first_window(struct swn_engine *e);
/* 0, -ENOMEM: there is no room; -EBUSY: what is in the way is in use, and it happens later (swn_policy_window); or
 * -EBADF: it cannot have another size. */
int swn_policy_resize_window(struct swn_engine *e, size_t bytes);
void swn_policy_window(struct swn_engine *e);
void swn_policy_lend_room(struct swn_engine *e, size_t bytes);
int swn_policy_widen(struct swn_engine *e, size_t size);

/* swn_budget.c */
void swn_budget_fork_child(struct swn_engine *e);
uint64_t swn_budget_in_flight_ns(const struct swn_engine *e);

/* swn_order glue, swn_nodes.c */
struct swn_node *swn_node_of(struct swn_engine *e, uint32_t id);
int swn_node_add(struct swn_engine *e, struct swn_range *r);
void swn_node_remove(struct swn_engine *e, struct swn_range *r);

/* swn_swapin.c */
extern unsigned swn_swapin_wait_ms; /* longest wait of an operator for a read, then its mapping serves */
/* Takes hold of the frame of a streamed weight: the one that is there or on its way, or, if `fresh`, a new one. It is
 * arg->frame then, unless the mapping has to serve. */
void swn_swapin_claim(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t, int fresh);
/* Waits until the claimed frame is filled. 0, or -1 when it will not be: the claim is given up. */
int swn_swapin_await(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t);
/* Gives a claimed frame back. */
void swn_swapin_release(struct swn_engine *e, struct swn_frame *f);
/* Frees a frame that no range has and nobody claims or fills. */
void swn_swapin_free(struct swn_engine *e, struct swn_frame *f);
/* 1: its read had not begun and will not, and the frame can go: it is for the caller to drop. */
int swn_swapin_cancel(struct swn_engine *e, struct swn_frame *f);
/* Fetches what the learned order says this thread will want next, as far as its share of the window goes. */
void swn_swapin_ahead(struct swn_engine *e, struct swn_thread_state *t);

/* swn_window.c */
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
/* Lends a claimed argument's bytes to the operator: by pointer or at its own address. */
void swn_window_lend(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t);
void swn_window_end_arg(struct swn_engine *e, struct swn_arg *arg);
/* Lets go of the pages that r's last reader read through its mapping. */
void swn_window_forget(struct swn_engine *e, struct swn_range *r);

/* swn_lodge.c */
/* Another weight is about to be read: what the steps of `last` needed beside weights is known, if there is one. */
void swn_lodge_step(struct swn_engine *e, struct swn_node *last);
/* Bytes that the plan leaves for activations, and that nobody needs from the node's operator to the next one's. */
size_t swn_lodge_room(const struct swn_engine *e, const struct swn_node *node);
/* What is to be read ahead into warm pages. */
struct swn_lodging {
    struct swn_thread_state *t;
    size_t room;     /* so many bytes may be lodged */
    uint32_t allocs; /* it will have been used when so many allocations of this pass, or of the next, have been made */
    int next_pass;
};
/* A frame in warm pages, or NULL. */
struct swn_frame *swn_lodge(struct swn_engine *e, size_t size, const struct swn_lodging *want);
/* Lets the frame go that `home` lodges. 0: it is in use, or still being filled. */
int swn_lodge_expel(struct swn_engine *e, struct swn_range *home);
/* Gives such a frame back, and its pages are warm again. */
void swn_lodge_end(struct swn_engine *e, struct swn_frame *f);
/* Lets one of them go that nobody is using. 0: there is none. */
int swn_lodge_evict(struct swn_engine *e);
/* Before `len` bytes are allocated: lets go of what is lodged where they need its place. May release the lock while it
 * waits for reads that are under way. */
void swn_lodge_vacate(struct swn_engine *e, size_t len);
void swn_lodge_fork_child(struct swn_engine *e);

/* swn_places.c */
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
/* How many allocations the pass under way has made. */
uint32_t swn_places_clock(const struct swn_thread_state *t);
/* Warm memory that no tensor of t's pass needs until it, or the next one, has made so many allocations; or NULL. */
struct swn_range *swn_places_gap(struct swn_engine *e, struct swn_thread_state *t, size_t size, uint32_t until,
                                 int next_pass);

/* swn_slice.c: what is declared in swn_aten.h, too, is called without the lock */
size_t swn_slice_offer(struct swn_op *op, unsigned arg, const struct swn_rows *rows);
int swn_slice_wanted(struct swn_op *op, unsigned arg, uint64_t shape);
size_t swn_slice_least(void);
/* The budget is another one. */
void swn_slice_set_least(struct swn_engine *e);
/* The length of the slices in which a piece is lent. What of a weight is kept lies in one piece, and is lent in the
 * same slices as the rest: wherever a plan cuts, these are the same then, and need not be tried again. */
size_t swn_slice_bytes(const struct swn_range *r);
size_t swn_slice_list(struct swn_op *op, unsigned arg, struct swn_slices *slices, size_t most);
size_t swn_slice_refused(struct swn_op *op, unsigned arg, uint64_t shape, size_t tried, int right);
const void *swn_slice_lend(struct swn_op *op, unsigned arg, size_t off, size_t bytes);
/* The operator of t needs r next, a slice of arg, and those behind it as far as arg's tensor goes. NULL: no more. */
void swn_slice_next(struct swn_thread_state *t, const struct swn_arg *arg, const struct swn_range *r);
/* The operator is done with a `sliced` argument. */
void swn_slice_end(struct swn_engine *e, struct swn_op *op, struct swn_arg *arg);
int swn_slice_copy_room(size_t bytes);

/* swn_trial.c: as in swn_aten.h, without the lock */
void *swn_trial_map(size_t bytes, size_t period);
void swn_trial_unmap(void *at, size_t bytes, size_t period);
void swn_trial_fold(size_t bytes, size_t period);
int swn_trial_room(size_t bytes);
size_t swn_trial_meter(int begins);
/* This thread has allocated a tensor of so many bytes, or freed one (negative). */
void swn_trial_count(long long bytes);
/* Memory for a tensor of n bytes of a thread that tries out something, or NULL: it gets its own as usual. */
void *swn_trial_alloc(size_t n);
/* 1: it was such a tensor's. */
int swn_trial_free(void *p);
void swn_trial_fork_child(struct swn_engine *e);

/* swn_striped.c: as in swn_aten.h, without the lock */
uint64_t swn_stripes_room(size_t bytes);
void swn_stripes_count(size_t stripes, int refused);

/* swn_rows.c: the host's half, see swn_aten.h */
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

/* hook_threads.c: 1 while a second thread of the program (not a compute pool's) is alive */
int swn_threads_many(void);

#endif
