/* skeleton/core/fetch_setup.h - the fetch queue, set up for the disk with the store directory.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_CORE_FETCH_SETUP_H
#define SWN_SKELETON_CORE_FETCH_SETUP_H

#include "skeleton/engine/engine_internal.h"

/* Reads the profile of the disk with the spill file, if there is one. */
void swn_queue_look_up(struct swn_engine *e);
int swn_queue_start(struct swn_engine *e); /* 0 or -errno */

#endif
