/* skeleton/core/op_window.h - what happens between the begin of an operator and its end.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_CORE_OP_WINDOW_H
#define SWN_SKELETON_CORE_OP_WINDOW_H

#include "skeleton/engine/engine_internal.h"

void swn_engine_op_begin(struct swn_op *op);
void swn_engine_op_end(struct swn_op *op);
void swn_window_fork_child(struct swn_engine *e);
/* The chunks in which bytes [from, upto) of arg's range lie are held for the operator, and no other chunks any more. */
void swn_window_hold(struct swn_engine *e, struct swn_arg *arg, size_t from, size_t upto);
void swn_window_release(struct swn_engine *e, struct swn_arg *arg);
/* Brings what arg holds into memory, at its own address. May release the lock. */
void swn_window_lend(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t);
/* Before there is a plan, a weight that does not come in slices after all is held and lent whole. 0: it is too large.
 */
int swn_window_whole(struct swn_engine *e, struct swn_arg *arg, struct swn_thread_state *t);
void swn_window_end_arg(struct swn_engine *e, struct swn_arg *arg);
/* Drops the pages that r's last reader read through its mapping. */
void swn_window_forget(struct swn_engine *e, struct swn_range *r);

#endif
