/* profiles/probe_mapping.h - the time of registering references and of releasing them: small tensors are mapped at
 * their own addresses and unmapped, by the functions that do it for weights (blocks/memory/residency.h). */
#ifndef SWN_PROFILES_PROBE_MAPPING_H
#define SWN_PROFILES_PROBE_MAPPING_H

#include <stddef.h>

#include "blocks/memory/residency.h"

#define SWN_PROBE_REFS ((size_t)128)

struct swn_probe_refs {
    struct swn_arena *arena;
    struct swn_pool *pool;
    struct swn_extent_file *file; /* borrowed */
    struct swn_residency res;
    struct swn_range *range[SWN_PROBE_REFS];
    struct swn_frame *frame[SWN_PROBE_REFS];
};

/* The tensors' bytes go into `file`. 0 or -errno; to be closed in either case. */
int swn_probe_refs_open(struct swn_probe_refs *p, const struct swn_io *io, struct swn_extent_file *file);
void swn_probe_refs_close(struct swn_probe_refs *p);

/* Registers n <= SWN_PROBE_REFS tensors and releases them; *in and *out are the times. 0 or -errno. */
int swn_probe_refs_time(struct swn_probe_refs *p, size_t n, double *in_s, double *out_s);

#endif
