/* blocks/memory/spill_file.h - the spill file, to which the bytes of a range are written before its pages leave.
 *
 * An unlinked file in the store directory, and another one when it is full. Extents are laid out one behind the other
 * at multiples of 4096. Its owner may write an extent again until the owner drops it; then it is punched out of the
 * file, so its disk space is free again. Errors are -errno. Not thread-safe, but for swn_spill_write_at,
 * swn_spill_punch, swn_spill_drop, and the counters live_bytes and written_bytes.
 */
#ifndef SWN_BLOCKS_MEMORY_SPILL_FILE_H
#define SWN_BLOCKS_MEMORY_SPILL_FILE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "blocks/memory/fetch_queue.h"
#include "base/io.h"

/* A file with extents that are mapped and fetched: a spill file, or (as part of a larger struct) a block store, which
 * is immutable: its extents are never dropped. */
struct swn_extent_file {
    struct swn_io_file fetch; /* descriptors, owned by the file */
    int immutable;
    int no_holes; /* the file system keeps what is dropped: vfat, exFAT, NFS before 4.2 */
    size_t refs;  /* ranges and fetches that use the file */
    const struct swn_io *io;
    uint64_t tail;
    _Atomic uint64_t live_bytes;    /* any thread may drop an extent */
    _Atomic uint64_t written_bytes; /* and may write one */
    _Atomic uint64_t kept_bytes;    /* dropped, but on the disk */
    struct swn_hole *dropped;       /* extents that swn_spill_punch will punch out */
    unsigned punching;              /* threads that do */
    pthread_mutex_t dropped_lock;
    pthread_cond_t punched;
    _Atomic int defer; /* see swn_spill_defer */
    _Atomic int
        sync_err; /* not 0: an fsync has failed, and the kernel has told it once; it may concern any dirty page */
    _Atomic int too_large;        /* the file may not grow to where the next extents lie */
    struct swn_extent_file *next; /* its owner's */
    char dir[4096];               /* for messages */
};

/* Makes the directory when it is missing (mode 0700) and an unlinked file in it. Refuses a directory that this user may
 * not write to. The caller owns *out. */
int swn_spill_open(struct swn_extent_file **out, const struct swn_io *io, const char *dir);
void swn_spill_close(struct swn_extent_file *f);
/* 0: the program has closed a descriptor of the file. Its mappings remain; nothing can be read, written or mapped. */
int swn_spill_is_ours(const struct swn_extent_file *f);
/* 1: another file has to take its place, as no offset is used twice, and file systems and ulimit -f limit offsets; or
 * because dropped bytes that stay in it would fill the disk. What lies in the file stays readable. An empty file is not
 * full: what does not fit into it fits into none. */
int swn_spill_is_full(const struct swn_extent_file *f);
/* Whether the error says that there is no room: the disk's, or the user's. */
int swn_spill_is_crowded(int err);

/* An offset with `bytes` (a multiple of 4096) of unused space. Takes no disk space. */
uint64_t swn_spill_lay_out(struct swn_extent_file *f, uint64_t bytes);
/* Writes `size` bytes (a multiple of 4096) from page-aligned memory to a place that is laid out. On error the place is
 * dropped. The bytes are out of the page cache on return. */
int swn_spill_write(struct swn_extent_file *f, const void *buf, size_t size, uint64_t off);
/* The same where that has been written, and not been dropped since. */
int swn_spill_write_again(struct swn_extent_file *f, const void *buf, size_t size, uint64_t off);
/* The same in two steps, of which any thread may make the second: choosing a place for `size` bytes, and writing them
 * there. If the write fails, the caller drops the place. */
uint64_t swn_spill_place(struct swn_extent_file *f, size_t size);
int swn_spill_write_at(struct swn_extent_file *f, const void *buf, size_t size, uint64_t off);
/* Reserves room for `size` bytes (a multiple of 4096), which read as zeros until they are written. */
int swn_spill_reserve(struct swn_extent_file *f, size_t size, uint64_t *off);
/* The caller promises that no process maps the extent any more. */
void swn_spill_drop(struct swn_extent_file *f, uint64_t off, size_t size);
/* Nobody here uses an extent any more, but a child may have it mapped: its bytes stay on the disk until the file is
 * closed, here and there. */
void swn_spill_leave(struct swn_extent_file *f, size_t size);
/* From now on dropped extents wait for swn_spill_punch: a hole takes the file system 0.5 to 2 ms, and loading a model
 * over its initial weights drops hundreds. When the file is out of room, they do not wait. */
void swn_spill_defer(struct swn_extent_file *f);
/* The opposite, for a file that nothing is written to any more. */
void swn_spill_punch_all(struct swn_extent_file *f);
/* Punches one stretch of dropped extents out of the file. 1: there may be more; 0: there was none. */
int swn_spill_punch(struct swn_extent_file *f);
/* Puts the file's dirty pages on the disk, and drops those of an extent from the cache. After an error, of this call or
 * of an earlier one, the pages stay there. The file may have been closed by the program: its pages are dirty, and stay.
 */
int swn_spill_sync(struct swn_extent_file *f, uint64_t off, size_t size);
/* Drops page-cache pages of an extent that no mapping holds any more. */
void swn_spill_uncache(struct swn_extent_file *f, uint64_t off, size_t size);

#endif
