/* skeleton/engine/frame_use.h - what the runtime knows of a frame: for which thread it was read, and when it was used.
 *
 * It lies in the frame's own descriptor, is zero when the frame is taken, and is guarded by the engine's lock.
 */
#ifndef SWN_SKELETON_ENGINE_FRAME_USE_H
#define SWN_SKELETON_ENGINE_FRAME_USE_H

#include "blocks/memory/frame_pool.h"

struct swn_frame_use {
    const void *cursor;            /* the one that it was read for */
    int wanted;                    /* the operator that it was read for is still to come */
    uint32_t next;                 /* the place of its next read in the announced order, from 1 on; 0: it has none */
    int is_repeated;               /* the announced order, as it was told, has that read more than once */
    uint64_t start_ns;             /* when its reads began */
    uint64_t spilled_before;       /* bytes that had been spilled by then */
    uint64_t last_op, last_access; /* its last use, in operators and in weights read */
};

static inline struct swn_frame_use *swn_frame_use(const struct swn_frame *f)
{
    return (struct swn_frame_use *)(uintptr_t)f->use;
}

#endif
