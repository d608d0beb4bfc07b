/* swn_spill.h - the spill file: where the bytes of a range go before its pages may leave.
 *
 * One unlinked file per process in the store directory. Extents are appended at multiples of 4096 and never rewritten;
 * a dropped extent is punched out of the file, so the disk space comes back although offsets do not. Not thread-safe.
 * Errors are -errno.
 */
#ifndef SWN_SPILL_H
#define SWN_SPILL_H

#include <stddef.h>
#include <stdint.h>

#include "swn_fetch.h"
#include "swn_io.h"

/* A file with extents that ranges are mapped and fetched from: a spill file, or (as part of something larger) a block
 * store, which is immutable: its extents are never dropped. */
struct swn_extent_file {
    struct swn_fetch_file fetch; /* descriptors, owned by the file */
    int immutable;
    size_t refs; /* ranges that name it, and fetches under way */
    const struct swn_io *io;
    uint64_t tail;
    uint64_t live_bytes;
    uint64_t written_bytes;
    char dir[4096]; /* for messages */
};

/* Makes the directory when it is missing (mode 0700) and an unlinked file in it. Refuses a directory that is not ours
 * to write. *out is owned by the caller. */
int swn_spill_open(struct swn_extent_file **out, const struct swn_io *io, const char *dir);
void swn_spill_close(struct swn_extent_file *f);

/* Writes `size` bytes (a multiple of 4096) from page-aligned memory; *off is where. On error nothing is kept. The bytes
 * are out of the page cache when it returns. */
int swn_spill_write(struct swn_extent_file *f, const void *buf, size_t size, uint64_t *off);
/* Room for `size` bytes (a multiple of 4096), zeros until somebody writes them. */
int swn_spill_reserve(struct swn_extent_file *f, size_t size, uint64_t *off);
/* The caller promises that no mapping of the extent is left, in any process. */
void swn_spill_drop(struct swn_extent_file *f, uint64_t off, size_t size);
/* Gives back page-cache pages of an extent that no mapping holds any more. */
void swn_spill_uncache(struct swn_extent_file *f, uint64_t off, size_t size);

#endif
