/* skeleton/engine/accounting.h - what is resident, and how much of it is no weight.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_ENGINE_ACCOUNTING_H
#define SWN_SKELETON_ENGINE_ACCOUNTING_H

#include "skeleton/engine/engine_internal.h"

/* skeleton/core/engine.c */
size_t swn_engine_resident(struct swn_engine *e);
size_t swn_engine_mapped_bytes(void); /* the process's address space in use; 0: /proc does not tell */
void swn_engine_note_peak(struct swn_engine *e);
size_t swn_nonweight_bytes(struct swn_engine *e);
size_t swn_nonweight_held(struct swn_engine *e);
/* The most nonweight bytes that were held recently. */
size_t swn_nonweight_peak(const struct swn_engine *e);
size_t swn_nonweight_needed(const struct swn_engine *e);

/* Bytes for which no room was made, of the tensor that is expected to be read into next; see
 * skeleton/core/expected_read.h. */
size_t swn_expected_read_bytes(const struct swn_engine *e);

/* What small tensors take: they are malloc's, and a free of one from before the engine may be counted first. No lock.
 */
static inline size_t swn_small_bytes(struct swn_engine *e)
{
    long long small = atomic_load(&e->nonweight.small_bytes);
    return small > 0 ? (size_t)small : 0;
}

#endif
