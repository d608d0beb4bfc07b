/* skeleton/core/op_window.h - the steps between the begin of an operator and its end.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_CORE_OP_WINDOW_H
#define SWN_SKELETON_CORE_OP_WINDOW_H

#include "skeleton/engine/engine_internal.h"

void swn_engine_op_begin(struct swn_op *op);
void swn_engine_op_end(struct swn_op *op);
void swn_window_fork_child(struct swn_engine *e);
/* Holds the chunks of bytes [from, upto) of arg's range for the operator, and releases all other chunks of arg. */
void swn_window_hold(struct swn_engine *e, struct swn_arg *arg, size_t from, size_t upto);
void swn_window_release(struct swn_engine *e, struct swn_arg *arg);
/* Reads the chunks that arg holds into memory, at their own addresses. May release the lock. */
void swn_window_lend(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t);
/* Before there is a plan, holds and lends a weight whole that does not come in slices after all. 0: it is too large. */
int swn_window_whole(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t);
void swn_window_end_arg(struct swn_engine *e, struct swn_arg *arg);
/* Drops the pages that r's last reader read through the mapping. */
void swn_window_forget(struct swn_engine *e, struct swn_range *r);

#endif
