/* skeleton/observe/profile_record.h - the record that SWAPNET_PROFILE writes at exit: the times of each weight's
 * computing, reading and dropping, and of each pass. Everything but swn_record_save is called with the engine lock
 * held, and only while the engine has a record.
 */
#ifndef SWN_SKELETON_OBSERVE_PROFILE_RECORD_H
#define SWN_SKELETON_OBSERVE_PROFILE_RECORD_H

#include "skeleton/engine/engine_internal.h"

struct swn_record;

/* 0 or -ENOMEM. */
int swn_record_create(struct swn_record **out);

/* From the read of weight `weight` to the read of the next one: ns without waiting, op_ns of these until its operator
 * ended, and the counters of its thread for that time. */
void swn_record_computed(struct swn_record *r, const struct swn_weight *weight, double ns, double op_ns,
                         const struct swn_thread_state *t);
void swn_record_read(struct swn_record *r, const struct swn_weight *weight, size_t bytes, double ns);
void swn_record_released(struct swn_record *r, const struct swn_weight *weight, double ns);
/* ns is without the idle_ns between the operators. Where no weights are read, and there is room, the disk is made busy
 * for some of the passes, and others go unwatched; after some the caller waits a moment for the disk, a fifth of a
 * second at most. Returns this wait, in ns. */
uint64_t swn_record_pass(struct swn_engine *e, double ns, double idle_ns);
/* A tensor has been made: e->counters.allocs of them by now. 1: operators went by unwatched, so the thread's next
 * operator does not follow its last one. */
int swn_record_alloc(struct swn_engine *e);

/* In a forked child. */
void swn_record_fork_child(struct swn_record *r);

/* A weight is about to be forgotten. Python frees its models before the process ends, so the record of all weights is
 * written now, unless nothing has been computed since the last time. */
void swn_record_leaving(struct swn_engine *e);

/* Writes weights in learned order, then all others, to config.profile_path. 0 or -errno. No lock held. */
int swn_record_save(struct swn_engine *e);

#endif
