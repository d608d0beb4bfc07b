/* blocks/memory/spill_file.h - the spill file: where the bytes of a range go before its pages may leave.
 *
 * One unlinked file per process in the store directory. Extents are laid out one behind the other at multiples of 4096;
 * a dropped extent is punched out of the file, so the disk space comes back although the offset stays its owner's,
 * which may write there again. Not thread-safe, but for swn_spill_write_at and swn_spill_punch. Errors are -errno.
 */
#ifndef SWN_BLOCKS_MEMORY_SPILL_FILE_H
#define SWN_BLOCKS_MEMORY_SPILL_FILE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "blocks/memory/fetch_queue.h"
#include "base/io.h"

/* A file with extents that ranges are mapped and fetched from: a spill file, or (as part of something larger) a block
 * store, which is immutable: its extents are never dropped. */
struct swn_extent_file {
    struct swn_io_file fetch; /* descriptors, owned by the file */
    int immutable;
    size_t refs; /* ranges that name it, and fetches under way */
    const struct swn_io *io;
    uint64_t tail;
    uint64_t live_bytes;
    uint64_t written_bytes;
    struct swn_hole *dropped;  /* extents that swn_spill_punch will punch out */
    struct swn_hole *punching; /* those that it is at */
    pthread_mutex_t dropped_lock;
    pthread_cond_t punched;
    int defer;      /* see swn_spill_defer */
    char dir[4096]; /* for messages */
};

/* Makes the directory when it is missing (mode 0700) and an unlinked file in it. Refuses a directory that is not ours
 * to write. *out is owned by the caller. */
int swn_spill_open(struct swn_extent_file **out, const struct swn_io *io, const char *dir);
void swn_spill_close(struct swn_extent_file *f);
/* 0: the program has closed a descriptor of it. Its mappings go on; nothing can be read, written or mapped. */
int swn_spill_is_ours(const struct swn_extent_file *f);

/* An offset at which `bytes` (a multiple of 4096) fit and nothing else is. Takes no disk space. */
uint64_t swn_spill_lay_out(struct swn_extent_file *f, uint64_t bytes);
/* Writes `size` bytes (a multiple of 4096) from page-aligned memory to where that is laid out, and is not written or
 * has been dropped. On error nothing is kept. The bytes are out of the page cache when it returns. */
int swn_spill_write(struct swn_extent_file *f, const void *buf, size_t size, uint64_t off);
/* The same in two steps, the second of which any thread may make: where `size` bytes are to be, and writing them there.
 * If the write fails, the caller drops the place. */
uint64_t swn_spill_place(struct swn_extent_file *f, size_t size);
int swn_spill_write_at(struct swn_extent_file *f, const void *buf, size_t size, uint64_t off);
/* Room for `size` bytes (a multiple of 4096), which are zeros until they are written. */
int swn_spill_reserve(struct swn_extent_file *f, size_t size, uint64_t *off);
/* The caller promises that no mapping of the extent is left, in any process. */
void swn_spill_drop(struct swn_extent_file *f, uint64_t off, size_t size);
/* From now on dropped extents wait for a thread that has the time: a hole takes the file system 0.5 to 2 ms, and a
 * model that is loaded over its initial weights drops hundreds. A file that is out of room does not wait. */
void swn_spill_defer(struct swn_extent_file *f);
/* Punches one stretch of dropped extents out of the file. 1: there may be more; 0: there was none. */
int swn_spill_punch(struct swn_extent_file *f);
/* Gives back page-cache pages of an extent that no mapping holds any more. */
void swn_spill_uncache(struct swn_extent_file *f, uint64_t off, size_t size);

#endif
