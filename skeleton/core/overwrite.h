/* skeleton/core/overwrite.h - a tensor that is on the disk is overwritten from end to end: its kernel makes the new
 * bytes in memory beside it, which is then moved to its address.
 *
 * So the old bytes need not be read back, and stay until all new ones are there: another thread that reads the tensor
 * finds old bytes or new ones, and if the kernel fails nothing has happened.
 */
#ifndef SWN_SKELETON_CORE_OVERWRITE_H
#define SWN_SKELETON_CORE_OVERWRITE_H

#include <stddef.h>

#include "skeleton/abi/abi.h"

struct swn_engine;
struct swn_range;

/* Whether an argument that overwrites r, which is streamed, may stay so until its kernel asks for memory. Engine lock
 * held. */
int swn_afresh_waits(const struct swn_engine *e, const struct swn_arg *arg, const struct swn_range *r);

/* Runtime services, see skeleton/abi/abi.h. */
void *swn_afresh_begin(struct swn_op *op, unsigned arg);
void swn_afresh_end(struct swn_op *op, unsigned arg, int made);

/* In a child: the kernel of another thread never ends. */
void swn_afresh_fork_child(struct swn_op *op);

#endif
