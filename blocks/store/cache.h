/* blocks/store/cache.h - maintenance of the cache of stores; finding and building stores is in blocks/store/store.h.
 *
 * A cache is a directory with files "<hash>.swnstore" (mode 0600), each the store of one checkpoint file, and "cap", a
 * text file with the size that all stores together may have. A directory that other users can write to is refused: a
 * store that another user puts there could change what programs compute. Several processes may use one cache at the
 * same time; a store that is removed while it is open stays readable for the process that has it open.
 *
 * Thread-safe. Errors are -errno with a text.
 */
#ifndef SWN_BLOCKS_STORE_CACHE_H
#define SWN_BLOCKS_STORE_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "blocks/store/store.h"

#define SWN_CACHE_SUFFIX ".swnstore"
/* The cap of a cache without a file "cap": this, or a fifth of its file system if that is less. */
#define SWN_CACHE_CAP_BYTES (UINT64_C(32) << 30)

struct swn_cache_entry {
    char name[64];   /* of the file, in the cache directory */
    uint64_t bytes;  /* of the file */
    int64_t used_ns; /* when it was used last: nanoseconds since 1970 */
    char *source;    /* path of the checkpoint from which it was built; NULL: not a readable store */
    int stale;       /* the bytes at that path have changed, or are gone: the store is useless */
};

/* The stores in `dir`, least recently used first; none when there is no directory. With `details`, opens each store for
 * `source` and `stale`. *out is freed by swn_cache_list_free. */
int swn_cache_list(struct swn_cache_entry **out, size_t *count, const struct swn_io *io, const char *dir, int details,
                   char why[SWN_ERRMSG]);
void swn_cache_list_free(struct swn_cache_entry *entries, size_t count);

/* Removes one store by the name that swn_cache_list gives. -ENOENT: no such store. -EINVAL: not a name of a store. */
int swn_cache_remove(const struct swn_io *io, const char *dir, const char *name, char why[SWN_ERRMSG]);

/* Removes least recently used stores until the rest, without `replaced`, and `needed_bytes` fit the cap, if there is a
 * cap; stores that other processes are building count, too. `replaced`: name of a store that the needed bytes replace,
 * or NULL. -EFBIG: needed_bytes does not fit beside the stores to be kept, and nothing is removed. */
int swn_cache_trim(const struct swn_io *io, const char *dir, const struct swn_cache_limits *limits,
                   uint64_t needed_bytes, const char *replaced, char why[SWN_ERRMSG]);

/* Removes the stores, those to be kept aside, whose checkpoint is gone or has changed: nobody opens them any more. How
 * many that were. */
size_t swn_cache_drop_stale(const struct swn_io *io, const char *dir, const struct swn_cache_limits *limits);

/* The bytes that optional files may take, beside `needed_bytes`: the rest of the cap without removing any store
 * (`replaced` is replaced), and at most half of the free disk space, as the spill file lies there, too. */
uint64_t swn_cache_spare(const struct swn_io *io, const char *dir, const struct swn_cache_limits *limits,
                         uint64_t needed_bytes, const char *replaced);

/* The cap in force: the one in the directory, else the default. 0 means none. */
int swn_cache_cap(const struct swn_io *io, const char *dir, uint64_t *cache_limit_bytes, char why[SWN_ERRMSG]);
/* Sets the cap; makes a missing directory. Stores beyond the cap stay until the next swn_cache_trim. */
int swn_cache_set_cap(const struct swn_io *io, const char *dir, uint64_t cache_limit_bytes, char why[SWN_ERRMSG]);

/* 0: the directory is trusted: only this user and root can write to it and to its files. -ENOENT: it does not exist.
 * -EPERM: it is not trusted. */
int swn_cache_check_dir(const struct swn_io *io, const char *dir, char why[SWN_ERRMSG]);

#endif
