/* skeleton/engine/frame_use.h - what the runtime knows of a frame: for which thread it was read, and when it was used.
 *
 * It lies in the frame's own descriptor, is zero when the frame is taken, and is guarded by the engine's lock.
 */
#ifndef SWN_SKELETON_ENGINE_FRAME_USE_H
#define SWN_SKELETON_ENGINE_FRAME_USE_H

#include "blocks/memory/frame_pool.h"

struct swn_frame_use {
    const struct swn_walks *cursor; /* of the thread that it was read for, or NULL */
    uint64_t wanted;                /* the number of the walk that wanted it; 0: its operator has been */
    uint32_t next;                  /* the place of its next read in the announced order, from 1 on; 0: it has none */
    int is_repeated;                /* the announced order, as it was told, has that read more than once */
    uint64_t start_ns;              /* when its reads began */
    uint64_t spilled_before;        /* bytes that had been spilled by then */
    uint64_t last_op, last_access;  /* its last use, in operators and in weights read */
};

/* How often a thread has walked along the order, to see what it reads next. */
struct swn_walks {
    uint64_t count;
    int starved;      /* the last walk ended because there was no frame */
    uint64_t settled; /* the state in which the last walk came round and found nothing missing; 0: it did not */
};

static inline struct swn_frame_use *swn_frame_use(const struct swn_frame *f)
{
    return (struct swn_frame_use *)(uintptr_t)f->use;
}

/* Whether the operator that f was read for is still to come: its thread has come across f when it last looked ahead, or
 * has had it read since, or the announced order has it. So that a look ahead need not visit all frames to forget what
 * earlier ones wanted, each has a number. */
static inline int swn_frame_is_wanted(const struct swn_frame *f)
{
    const struct swn_frame_use *use = swn_frame_use(f);
    return use->wanted && (use->next || !use->cursor || use->wanted == use->cursor->count + 1);
}

/* f is for that thread from now on. */
static inline void swn_frame_want(struct swn_frame *f, const struct swn_walks *cursor, int wanted)
{
    struct swn_frame_use *use = swn_frame_use(f);
    use->cursor = cursor;
    use->wanted = wanted ? (cursor ? cursor->count : 0) + 1 : 0;
}

#endif
