/* skeleton/observe/profile_record.h - what SWAPNET_PROFILE writes at exit: per weight how long it computes, comes and
 * goes, per pass how long it takes. Everything but swn_record_save is called with the engine lock held, and only while
 * the engine has a record.
 */
#ifndef SWN_SKELETON_OBSERVE_PROFILE_RECORD_H
#define SWN_SKELETON_OBSERVE_PROFILE_RECORD_H

#include "skeleton/core/engine_internal.h"

struct swn_record;

/* 0 or -ENOMEM. */
int swn_record_create(struct swn_record **out);

/* From the read of weight `weight` to the next one's: ns without waiting, op_ns of them until its operator was done,
 * and what its thread has counted meanwhile. */
void swn_record_computed(struct swn_record *r, const struct swn_weight *weight, double ns, double op_ns,
                         const struct swn_thread_state *t);
void swn_record_read(struct swn_record *r, const struct swn_weight *weight, size_t bytes, double ns);
void swn_record_released(struct swn_record *r, const struct swn_weight *weight, double ns);
/* Without the idle_ns that came between its operators. Where no weights are read, and there is room for it, the disk is
 * made busy for some of the passes, and others go by unwatched; and after some the caller waits a moment for the disk,
 * a fifth of a second at most. Returns how long, in ns. */
uint64_t swn_record_pass(struct swn_engine *e, double ns, double idle_ns);
/* A tensor has been made: e->counters.allocs of them by now. 1: the thread's next operator is not the one after its
 * last one, as some went by unwatched. */
int swn_record_alloc(struct swn_engine *e);

/* In a forked child. */
void swn_record_fork_child(struct swn_record *r);

/* A weight is about to be forgotten. Python frees its models before the process ends, so what is known of all of them
 * is written down now, unless nothing has been computed since the last time. */
void swn_record_leaving(struct swn_engine *e);

/* Weights in learned order, those outside it behind, to config.profile_path. 0 or -errno. No lock held. */
int swn_record_save(struct swn_engine *e);

#endif
