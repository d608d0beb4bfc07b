/* skeleton/engine/subsystem.h - the interface through which the core calls the features above it, without knowing them.
 *
 * A feature (loading, devices, tiling, activation plans, observation, budgets) has a table of each kind that concerns
 * it; skeleton/runtime lists the tables, in the order in which they are called, before the engine starts. A NULL member
 * is a step in which the feature has no part. Tables live as long as the process, and are constant.
 *
 * Unless a member says otherwise the engine's lock is held when it is called, and is still held when it returns.
 */
#ifndef SWN_SKELETON_ENGINE_SUBSYSTEM_H
#define SWN_SKELETON_ENGINE_SUBSYSTEM_H

#include <stddef.h>
#include <stdint.h>

struct swn_arg;
struct swn_engine;
struct swn_extent_file;
struct swn_runtime_services;
struct swn_weight;
struct swn_op;
struct swn_part;
struct swn_activation_region;
struct swn_range;
struct swn_stats;
struct swn_thread_state;

/* A feature's life, and its part in common steps. */
struct swn_subsystem {
    /* The engine is complete, and no thread of it runs yet. No lock. */
    void (*start)(struct swn_engine *e);
    /* Fills in the feature's members of the host table. No lock. */
    void (*services)(struct swn_engine *e, struct swn_runtime_services *out);
    /* After an allocation and before an operator; no lock. For work that may take a while. */
    void (*unlocked)(void);
    /* In the child of a fork, which has one thread. The parent's threads, and locks that they held, are lost. */
    void (*fork_child)(struct swn_engine *e);
    void (*stats)(struct swn_engine *e, struct swn_stats *out);
    /* The process ends; no lock. Threads of the program may still compute. */
    void (*exit)(struct swn_engine *e);
    /* e->budget.target has changed. */
    void (*budget_changed)(struct swn_engine *e);
    /* Memory that the feature holds, which counts, and which it frees when another part of the engine needs it. */
    const struct swn_reclaimer *memory;
    const struct swn_op_filter *op;
};

struct swn_reclaimer {
    /* Bytes that count as resident. Needs no lock. */
    size_t (*bytes)(void);
    /* Frees memory that no operator uses now, at once. Returns the bytes. */
    size_t (*trim)(struct swn_engine *e);
    /* Asks for `bytes`. 1: the feature holds some, and frees them soon; e->changed is signalled then. 0: there are
     * none, or none were freed for a while. Does not wait. */
    int (*ask)(struct swn_engine *e, size_t bytes);
    /* `bytes` are about to be allocated: waits until enough memory has been freed for them, as long as some is freed.
     * May release the lock. */
    void (*make_way)(struct swn_engine *e, size_t bytes);
};

/* A feature's part in an operator as a whole, besides reading weights. */
struct swn_op_filter {
    /* The operator is about to begin; no lock. */
    void (*before)(struct swn_op *op);
    /* The first step under the lock, which it may release. */
    void (*make_way)(struct swn_engine *e, const struct swn_op *op);
    /* The operator is listed as open; none of its arguments has been looked at. */
    void (*begin)(struct swn_engine *e, struct swn_op *op);
};

/* The source of the bytes of weights that the program has not written: skeleton/load. */
struct swn_weight_source {
    /* 0: the bytes that were read for a part of a frame are the stored ones, and p->checked is set; or this part alone
     * does not show it. No lock. */
    int (*check)(struct swn_part *p, const void *bytes);
    /* Called before r's bytes are used: reads and checks the tensor, unless that was done before, and ends the program
     * if the bytes are not the stored ones. Bytes that cannot be read stay unchecked. */
    void (*verify)(struct swn_engine *e, const struct swn_range *r);
    /* p->job is to read p: makes it read the compressed bytes instead, if p has such bytes and that pays. */
    void (*prepare)(struct swn_part *p);
    /* The job failed. 1: it read compressed bytes, and now reads the plain ones; 0: there is no other way. No lock. */
    int (*retry)(struct swn_engine *e, struct swn_part *p, int err);
    /* The part of r's bytes that compression saves in a read. */
    double (*saved)(struct swn_engine *e, const struct swn_range *r, double disk_bytes_per_ns);
    /* The source of a file's bytes, for messages, into out. */
    const char *(*name)(const struct swn_extent_file *f, char *out, size_t size);
    /* The range that is likely to be read after r while no order is learned, or NULL. */
    struct swn_range *(*successor)(struct swn_engine *e, const struct swn_range *r);
    /* A plan was made for the weights ids[n], in the order in which they are read, a cycle that began with `first`. */
    void (*learned)(struct swn_engine *e, const uint32_t *ids, size_t n, uint32_t first);
};

/* A planned address for a tensor. */
struct swn_activation_slot {
    struct swn_activation_region *region;
    size_t at;
};

/* Chooses places for tensors of a pass: skeleton/activations. */
struct swn_placement {
    /* Whether the next tensor of t (or NULL), of n bytes, has a planned place, and no tensor is there. */
    int (*find)(struct swn_engine *e, struct swn_thread_state *t, size_t n, struct swn_activation_slot *out);
    /* t has allocated r; r is going to be freed. */
    void (*on_alloc)(struct swn_thread_state *t, struct swn_range *r);
    void (*on_free)(struct swn_range *r);
    /* t begins another pass. */
    void (*passed)(struct swn_engine *e, struct swn_thread_state *t);
    /* Forgets all plans of the thread, whose model is gone. */
    void (*drop)(struct swn_engine *e, struct swn_thread_state *t);
    /* Makes no more plans while the budget stays the same. */
    void (*refuse)(struct swn_engine *e);
};

/* Weights that are not read whole: skeleton/tiling. */
struct swn_tiling {
    /* The operator begins or ends to read single rows of arg's weight. */
    void (*rows_begin)(struct swn_engine *e, struct swn_arg *arg);
    void (*rows_end)(struct swn_engine *e, struct swn_arg *arg);
    /* Frees the memory kept for the row look-ups of a thread that makes none now. Returns the bytes. */
    size_t (*rows_forget)(struct swn_thread_state *t);
    /* The operator of t needs the bytes from `off` on next, up to the end of arg's tensor. */
    void (*slice_next)(struct swn_thread_state *t, const struct swn_arg *arg, size_t off);
    /* The operator is done with a `sliced` argument. */
    void (*slice_end)(struct swn_engine *e, struct swn_op *op, struct swn_arg *arg);
    /* The operator is done with an argument of which it reads experts. */
    void (*experts_end)(struct swn_engine *e, struct swn_arg *arg);
    /* Sets whether r's operator takes it in slices, as the plan, or without one the ring, demands. */
    void (*slice_set)(struct swn_engine *e, struct swn_range *r, int sliced);
};

/* Records how long passes take: skeleton/observe. Called only while e->features.record is not NULL. */
struct swn_observer {
    /* A tensor has been made. 1: operators went by unwatched, so the thread's next operator does not follow its last
     * one. */
    int (*allocated)(struct swn_engine *e);
    /* The time from the read of a weight to the read of the next one: ns without waiting, op_ns of these until its
     * operator ended. */
    void (*computed)(struct swn_engine *e, const struct swn_weight *weight, double ns, double op_ns,
                     const struct swn_thread_state *t);
    /* A pass has taken ns, without the idle_ns between its operators. Returns how long the call made its caller wait,
     * in ns. */
    uint64_t (*passed)(struct swn_engine *e, double ns, double idle_ns);
    void (*read)(struct swn_engine *e, const struct swn_weight *weight, size_t bytes, double ns);
    void (*released)(struct swn_engine *e, const struct swn_weight *weight, double ns);
    /* A weight is about to be forgotten. */
    void (*leaving)(struct swn_engine *e);
};

/* All subsystems, in the order in which they are called; NULL at the end. Set once, before the engine starts. */
extern const struct swn_subsystem *const *swn_subsystems;

/* For each subsystem that has a part in `step`: a block, or a statement, in which `s` is the subsystem. */
#define SWN_EACH_SUBSYSTEM(s, step)                                                                                    \
    for (const struct swn_subsystem *s, *const *at_ = swn_subsystems; (s = *at_); at_++)                               \
        if (s->step)

#endif
