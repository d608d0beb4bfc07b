/* skeleton/engine/accounting.h - the resident bytes, and the nonweight bytes among them.
 *
 * Engine lock held, unless it says otherwise.
 */
#ifndef SWN_SKELETON_ENGINE_ACCOUNTING_H
#define SWN_SKELETON_ENGINE_ACCOUNTING_H

#include "skeleton/engine/engine_internal.h"

/* skeleton/core/engine.c */
size_t swn_engine_resident(struct swn_engine *e);
size_t swn_engine_mapped_bytes(void); /* the process's address space in use; 0: /proc is not readable */
void swn_engine_note_peak(struct swn_engine *e);
size_t swn_nonweight_bytes(struct swn_engine *e);
size_t swn_nonweight_held(struct swn_engine *e);
/* The most nonweight bytes that were held recently. */
size_t swn_nonweight_peak(const struct swn_engine *e);
size_t swn_nonweight_needed(const struct swn_engine *e);

/* Bytes of the expected tensor for which no room was made; see skeleton/core/expected_read.h. */
size_t swn_expected_read_bytes(const struct swn_engine *e);

/* Bytes of small tensors: they are malloc's, and the free of one from before the engine's start may be counted first.
 * No lock. */
static inline size_t swn_small_bytes(struct swn_engine *e)
{
    long long small = atomic_load(&e->nonweight.small_bytes);
    return small > 0 ? (size_t)small : 0;
}

#endif
