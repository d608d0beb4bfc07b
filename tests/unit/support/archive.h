/* tests/unit/support/archive.h - makes torch.save archives in memory, so that a test can then spoil one byte of them.
 */
#ifndef SWN_TESTS_UNIT_SUPPORT_ARCHIVE_H
#define SWN_TESTS_UNIT_SUPPORT_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>

#include "blocks/checkpoint/checkpoint.h"

#define ARCHIVE_ENTRIES 16

struct archive {
    unsigned char *p;
    size_t n, room;
    struct {
        const char *name;
        uint32_t bytes;
        size_t local, data, descriptor, central; /* where each begins */
    } e[ARCHIVE_ENTRIES];
    size_t count, directory, end; /* end: the end record */
};

void archive_begin(struct archive *a);
void archive_bytes(struct archive *a, const void *p, size_t n);
void archive_number(struct archive *a, uint64_t value, size_t bytes);
/* An entry as torch writes it: stored, padded to 64 bytes, with a descriptor. */
void archive_add(struct archive *a, const char *name, const void *data, size_t bytes);
/* The directory and the end record. archive_finish64: with the zip64 records in between. */
void archive_finish(struct archive *a);
void archive_finish64(struct archive *a);
void archive_set(struct archive *a, size_t at, uint64_t value, size_t bytes);
void archive_free(struct archive *a);
/* data.pkl, version and data/0, the first not finished: one float32 tensor "w" of two elements. */
void archive_small(struct archive *a);

/* Reads n bytes as a checkpoint called `path`; returns what swn_checkpoint_open does. A checkpoint goes to *c, which
 * may be NULL, and is closed with read_close. All of it through a table that fails its call number `fail_at` (0: never)
 * and, with `for_ever`, all later ones, with `err`; *calls counts them. */
struct reading {
    const void *bytes;
    size_t n, calls, fail_at;
    int for_ever, err, open_files;
    size_t short_reads; /* bytes per read at most; 0: no limit */
    struct swn_io io;
};
int read_bytes(struct reading *r, const void *p, size_t n, const char *path, struct swn_checkpoint **c,
               char why[SWN_ERRMSG]);

/* Reads n bytes with swn_checkpoint_open_places, from a file in memory; returns what it does. A checkpoint goes to *c,
 * which the caller closes with swn_io_sys. */
int read_places(const void *p, size_t n, struct swn_checkpoint **c, char why[SWN_ERRMSG]);

/* Fails the test unless the bytes are refused with -EINVAL, or `err`, and a text that holds `words`. */
void assert_refused(const void *p, size_t n, const char *path, int err, const char *words);

#endif
