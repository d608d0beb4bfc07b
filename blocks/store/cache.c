/* blocks/store/cache.c - the store of a checkpoint file: its name, finding it, building it. */
#define _GNU_SOURCE
#include "blocks/store/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/atomic_file.h"
#include "base/paths.h"
#include "blocks/store/store_internal.h"
#include "base/file_io.h"
#include "base/errmsg.h"

void swn_cache_path(const char *dir, const struct swn_identity *source, char *out, size_t size)
{
    const uint64_t fields[] = {source->dev, source->ino, source->size, (uint64_t)source->mtime_ns,
                               (uint64_t)source->ctime_ns};
    XXH128_hash_t hash = XXH3_128bits(fields, sizeof fields);
    snprintf(out, size, "%s/%016llx%016llx" SWN_CACHE_SUFFIX, dir, (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
}

int swn_cache_check_dir(const struct swn_io *io, const char *dir, char why[SWN_ERRMSG])
{
    struct stat st;
    int fd = io->open(io->ctx, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return swn_errmsg(why, fd, "cache directory %s: %s", dir, strerror(-fd));
    int rc = io->fstat(io->ctx, fd, &st);
    io->close(io->ctx, fd);
    if (rc < 0)
        return swn_errmsg(why, rc, "cache directory %s: %s", dir, strerror(-rc));
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return swn_errmsg(why, -EPERM, "cache directory %s belongs to another user: set SWAPNET_STORE to your own",
                          dir);
    if (st.st_mode & 022 && st.st_mode & S_ISVTX) /* a directory like /tmp, meant for all users */
        return swn_errmsg(why, -EPERM, "cache directory %s is shared with others: set SWAPNET_STORE to one of your own",
                          dir);
    if (st.st_mode & 022)
        return swn_errmsg(why, -EPERM, "cache directory %s can be written by others: chmod go-w %s", dir, dir);
    return 0;
}

/* The file system sets the times, as it does for checkpoints; a store on a read-only one is used all the same. */
static void mark_used(struct swn_store *s, const struct swn_io *io)
{
    uint64_t directory = s->identity.directory;
    if (futimens(s->file.fd, NULL) == 0 && swn_identity_stat(io, s->file.fd, &s->identity) == 0)
        s->identity.directory = directory;
}

int swn_cache_find(struct swn_store **out, const struct swn_io *io, const char *dir, int fd, char why[SWN_ERRMSG])
{
    char path[PATH_MAX];
    struct swn_identity source;
    struct swn_store *s;
    struct stat st;
    int rc = swn_identity_stat(io, fd, &source);
    if (rc)
        return swn_errmsg(why, rc, "%s", strerror(-rc));
    rc = swn_cache_check_dir(io, dir, why);
    if (rc)
        return rc;
    swn_cache_path(dir, &source, path, sizeof path);
    rc = swn_store_open(&s, io, path, why);
    if (rc)
        return rc;
    rc = io->fstat(io->ctx, s->file.fd, &st);
    if (rc)
        rc = swn_errmsg(why, rc, "%s: %s", path, strerror(-rc));
    else if (st.st_uid != geteuid() && st.st_uid != 0)
        rc = swn_errmsg(why, -EPERM, "%s: belongs to another user", path);
    else if (s->source_count != 1 || !swn_identity_same_file(&s->sources[0].identity, &source))
        rc = swn_errmsg(why, -ENOENT, "%s: the store is of another file", path);
    else if (s->extent_count && !s->extents[0].sums)
        rc = swn_errmsg(why, -ENOTSUP, "%s: a store without checksums of its parts; it is built anew", path);
    if (rc) {
        swn_store_close(s, io);
        return rc;
    }
    *out = s;
    return 0;
}

/* Equal stat fields make it likely that the file is the same. But some file systems keep times in whole seconds, and
 * images can be made with chosen times. Then only the table of contents, or the contents themselves, can tell. */
int swn_cache_agrees(struct swn_store *s, const struct swn_io *io, int fd, char why[SWN_ERRMSG])
{
    struct swn_identity now;
    int rc = swn_checkpoint_identity(io, fd, &now, why);
    if (!rc && now.directory != s->sources[0].identity.directory)
        rc = swn_errmsg(why, -ENOENT, "%s: the store is of other bytes", s->path);
    /* Even a zip's directory may be equal: its checksums may be missing, or wrong. */
    if (!rc)
        rc = swn_cache_sample(s, io, fd, why);
    if (!rc)
        mark_used(s, io);
    return rc;
}

int swn_cache_open(struct swn_store **out, const struct swn_io *io, const char *dir, int fd, char why[SWN_ERRMSG])
{
    struct swn_store *s;
    int rc = swn_cache_find(&s, io, dir, fd, why);
    if (rc)
        return rc;
    rc = swn_cache_agrees(s, io, fd, why);
    if (rc)
        swn_store_close(s, io);
    else
        *out = s;
    return rc;
}

int swn_cache_need(const struct swn_checkpoint *c, const struct swn_store_opts *opts, uint64_t *bytes,
                   char why[SWN_ERRMSG])
{
    static const struct swn_store_opts defaults;
    struct swn_layout l;
    int rc = swn_layout_make(&l, c, opts ? opts : &defaults, why);
    if (!rc)
        rc = swn_layout_place(&l, why);
    *bytes = l.header.total_bytes;
    swn_layout_free(&l);
    return rc;
}

/* Builds that run at the same time make room before any of their stores is there: whichever ends last makes it again.
 */
static void keep_to_cap(const struct swn_store *s, const struct swn_io *io, const char *dir,
                        const struct swn_cache_limits *limits)
{
    char unused[SWN_ERRMSG];
    swn_cache_trim(io, dir, limits, s->total_bytes, strrchr(s->path, '/') + 1, unused);
}

int swn_cache_build(struct swn_store **out, const struct swn_io *io, const char *dir,
                    const struct swn_cache_limits *limits, const struct swn_checkpoint *c,
                    const struct swn_store_opts *opts, char why[SWN_ERRMSG])
{
    char path[PATH_MAX];
    uint64_t bytes;
    struct swn_store_opts own = opts ? *opts : (struct swn_store_opts){0};
    if (c->file_count != 1)
        return swn_errmsg(why, -EINVAL, "a store in the cache is of one file: build one for each shard");
    int rc = swn_make_dirs(dir);
    if (rc)
        return swn_errmsg(why, rc, "cache directory %s: %s", dir, strerror(-rc));
    rc = swn_cache_check_dir(io, dir, why);
    if (!rc)
        rc = swn_cache_need(c, opts, &bytes, why);
    if (rc)
        return rc;
    swn_cache_path(dir, &c->files[0].identity, path, sizeof path);
    if (limits->cache_limit_bytes)
        rc = swn_cache_trim(io, dir, limits, bytes, strrchr(path, '/') + 1, why);
    uint64_t spare = swn_cache_spare(io, dir, limits, bytes, strrchr(path, '/') + 1);
    own.copies = spare ? own.copies : SWN_COPIES_NONE;
    own.copies_most = own.copies_most && own.copies_most < spare ? own.copies_most : spare;
    if (!rc)
        rc = swn_store_build(c, io, path, &own, why);
    /* The cap leaves room that the disk does not have: what nobody opens any more goes, however large the cache may be.
     */
    if ((rc == -ENOSPC || rc == -EDQUOT) && swn_cache_drop_stale(io, dir, limits))
        rc = swn_store_build(c, io, path, &own, why);
    /* Another process may have removed the store already, to make room for its own. */
    if (!rc)
        rc = swn_store_open(out, io, path, why);
    if (!rc && limits->cache_limit_bytes)
        keep_to_cap(*out, io, dir, limits);
    return rc;
}
