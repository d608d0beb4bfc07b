/* skeleton/load/compressed_read.h - reads a weight from its compressed extent in the store, where that is faster.
 *
 * Only reads into frames use it: a weight's own address, and single rows, use the plain extent, which always exists. A
 * copy is read into the end of the frame in which it is decoded, front to back as it arrives, so decoding needs no
 * memory besides the frame. Each chunk is checked the first time it is decoded; a copy that cannot be read, or is not
 * what was stored, is not used again.
 *
 * A copy pays if decoding takes less than reading the bytes that it saves. Decoding and reading mostly overlap, but the
 * computing program needs the processor.
 */
#ifndef SWN_SKELETON_LOAD_COMPRESSED_READ_H
#define SWN_SKELETON_LOAD_COMPRESSED_READ_H

#include "skeleton/engine/engine_internal.h"

struct source;

/* A store was opened: decides which of its copies will be read. Without memory for the decision, none. No lock held. */
void swn_compressed_read_open(struct source *s);
void swn_compressed_read_forget(struct source *s);

/* Decides anew for one weight, now that the speeds of the disk and of decoding are measured. Returns the part of its
 * bytes that a read saves: 0 unless its copy is read. Engine lock held. */
double swn_compressed_read_choose(struct swn_engine *e, const struct swn_range *lead, double disk_bytes_per_ns);

/* p->job is to read p: makes it read the copy instead, if there is one that pays. Engine lock held. */
void swn_compressed_read_prepare(struct swn_part *p);
/* The job failed. 1: it read a copy, and now reads the plain bytes; 0: there is no other way. No lock held. */
int swn_compressed_read_retry(struct swn_engine *e, struct swn_part *p, int err);

void swn_compressed_read_stats(struct swn_stats *out);

#endif
