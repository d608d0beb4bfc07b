/* blocks/checkpoint/zip.h - the directory of a zip archive, exactly as PyTorch writes it.
 *
 * Two readers of one zip can see two different files: a forged header decides what each of them finds. So the archive
 * must say everything once: entries, each with its local header, its bytes and its data descriptor, tile the file from
 * the first byte to the central directory; behind that come the zip64 records, where needed, and the end record, with
 * no comment. Local headers must agree with the directory. So overlaps, prefixes, second directories and hidden entries
 * are refused.
 *
 * Accepted flags: 3 (descriptor behind the data: torch writes one for every entry that is not empty) and 11 (UTF-8).
 * Accepted methods: stored, and deflated, which is never inflated here. Accepted extra fields: zip64, and torch's
 * padding "FB". CRCs are compared with each other, not with the bytes: torch.save may leave them out
 * (torch.serialization.set_crc32_options), and torch.load never looks.
 *
 * Limits: 2^20 entries, 64 MiB of directory, names of 1024 bytes. Memory: the directory and 40 bytes an entry. Time:
 * one small read an entry.
 */
#ifndef SWN_BLOCKS_CHECKPOINT_ZIP_H
#define SWN_BLOCKS_CHECKPOINT_ZIP_H

#include "blocks/checkpoint/builder.h"

#define SWN_ZIP_MAX_ENTRIES (UINT64_C(1) << 20)
#define SWN_ZIP_MAX_DIRECTORY (UINT64_C(64) << 20)
#define SWN_ZIP_MAX_NAME 1024
#define SWN_ZIP_STORED 0

struct swn_zip_entry {
    const char *name; /* with the archive's own folder in front: "resnet/data/0" */
    uint64_t header_off, data_off, bytes, packed_bytes;
    uint32_t crc;
    uint16_t flags, method; /* SWN_ZIP_STORED, or one whose bytes are compressed */
};

struct swn_zip {
    struct swn_zip_entry *entries; /* by header_off */
    uint32_t *by_name;             /* indices, in the order swn_zip_find searches */
    size_t count, prefix;          /* prefix: length of the archive's folder, slash included */
    char *directory;               /* where the names lie */
    uint64_t hash;                 /* XXH3-64 of the central directory */
};

/* Whether a file with these first four bytes begins like a zip archive. */
int swn_zip_begins(const unsigned char head[4]);
/* Reads and checks the directory and every local header. On success the caller owns *z until swn_zip_close. */
int swn_zip_open(struct swn_zip *z, const struct swn_ckpt_source *src, char why[SWN_ERRMSG]);
void swn_zip_close(struct swn_zip *z);
/* The entry of that name behind the archive's folder ("data/0"), or NULL. */
const struct swn_zip_entry *swn_zip_find(const struct swn_zip *z, const char *name);
/* Computes only the hash; checks only what is needed to find the directory. */
int swn_zip_hash(const struct swn_ckpt_source *src, uint64_t *hash, char why[SWN_ERRMSG]);

#endif
