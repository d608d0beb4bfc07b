/* skeleton/core/reentry.h - the library's own calls of PyTorch allocate memory, too, which must not be served like the
 * program's.
 *
 * Counts, per thread, how deep the calling thread is in such calls.
 */
#ifndef SWN_SKELETON_CORE_REENTRY_H
#define SWN_SKELETON_CORE_REENTRY_H

extern __thread int swn_reentry_depth;

/* Calls `what` unless the calling thread is in such a call already. */
void swn_reentry_guard(void (*what)(void));

/* The last step of an allocation: installs the operator hook if it is wanted by now. No lock held. */
void swn_engine_settle(void);

#endif
