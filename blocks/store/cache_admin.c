/* blocks/store/cache_admin.c - lists, removes and limits the stores of a cache. */
#define _GNU_SOURCE
#include "blocks/store/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/paths.h"
#include "base/file_io.h"
#include "base/errmsg.h"

#define CAP_FILE "cap"
#define HASH_DIGITS 32

static int is_store_name(const char *name)
{
    return strspn(name, "0123456789abcdef") == HASH_DIGITS && !strcmp(name + HASH_DIGITS, SWN_CACHE_SUFFIX);
}

static int join(char out[PATH_MAX], const char *dir, const char *name)
{
    return snprintf(out, PATH_MAX, "%s/%s", dir, name) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* ---- listing ---- */

static int look_at(struct swn_cache_entry *e, const struct swn_io *io, const char *path)
{
    struct stat st;
    int fd = swn_open_regular(io, path, O_NOFOLLOW, NULL);
    if (fd < 0)
        return fd;
    int rc = io->fstat(io->ctx, fd, &st);
    io->close(io->ctx, fd);
    if (rc)
        return rc;
    e->bytes = (uint64_t)st.st_size;
    e->used_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return 0;
}

static int is_stale(const struct swn_store_source *s, const struct swn_io *io)
{
    struct swn_identity now;
    int fd = swn_open_regular(io, s->path, 0, NULL);
    if (fd < 0) /* -EMFILE or -EACCES say nothing of the checkpoint */
        return fd == -ENOENT || fd == -ENOTDIR || fd == -EINVAL || fd == -ELOOP;
    int rc = swn_identity_stat(io, fd, &now);
    io->close(io->ctx, fd);
    return rc || !swn_identity_same_file(&now, &s->identity);
}

static void add_details(struct swn_cache_entry *e, const struct swn_io *io, const char *path)
{
    struct swn_store *s;
    char why[SWN_ERRMSG];
    if (swn_store_open(&s, io, path, why))
        return;
    if (s->source_count) {
        e->source = strdup(s->sources[0].path);
        e->stale = is_stale(&s->sources[0], io);
    }
    swn_store_close(s, io);
}

static int by_use(const void *a, const void *b)
{
    const struct swn_cache_entry *x = a, *y = b;
    return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

static int add_entry(struct swn_cache_entry **list, size_t *count, size_t *room, const struct swn_cache_entry *e)
{
    if (*count == *room) {
        size_t more = *room ? 2 * *room : 64;
        struct swn_cache_entry *grown = realloc(*list, more * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        *list = grown;
        *room = more;
    }
    (*list)[(*count)++] = *e;
    return 0;
}

int swn_cache_list(struct swn_cache_entry **out, size_t *count, const struct swn_io *io, const char *dir, int details,
                   char why[SWN_ERRMSG])
{
    size_t room = 0;
    int rc = 0;
    *out = NULL;
    *count = 0;
    DIR *d = opendir(dir);
    if (!d)
        return errno == ENOENT ? 0 : swn_errmsg(why, -errno, "cache directory %s: %s", dir, strerror(errno));
    for (struct dirent *f; !rc && (f = readdir(d));) {
        char path[PATH_MAX];
        struct swn_cache_entry e = {0};
        if (!is_store_name(f->d_name) || join(path, dir, f->d_name) || look_at(&e, io, path))
            continue; /* a foreign file, or one that is gone by now */
        strcpy(e.name, f->d_name);
        if (details)
            add_details(&e, io, path);
        rc = add_entry(out, count, &room, &e);
        if (rc)
            free(e.source);
    }
    closedir(d);
    if (rc) {
        swn_cache_list_free(*out, *count);
        *out = NULL;
        *count = 0;
        return swn_errmsg(why, rc, "cache directory %s: no memory", dir);
    }
    if (*count)
        qsort(*out, *count, sizeof **out, by_use);
    return 0;
}

void swn_cache_list_free(struct swn_cache_entry *entries, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(entries[i].source);
    free(entries);
}

/* ---- removing ---- */

static const char *const suffixes[] = {SWN_ORDER_SUFFIX, SWN_TABLE_SUFFIX};
#define SUFFIXES (sizeof suffixes / sizeof *suffixes)

int swn_cache_remove(const struct swn_io *io, const char *dir, const char *name, char why[SWN_ERRMSG])
{
    char path[PATH_MAX], beside[PATH_MAX + 16];
    if (!is_store_name(name))
        return swn_errmsg(why, -EINVAL, "'%s' is not the name of a store in the cache", name);
    int rc = join(path, dir, name);
    if (!rc)
        rc = io->unlink(io->ctx, path);
    for (size_t i = 0; i < SUFFIXES && !rc; i++) {
        snprintf(beside, sizeof beside, "%s%s", path, suffixes[i]);
        io->unlink(io->ctx, beside); /* if there is one */
    }
    return rc ? swn_errmsg(why, rc, "%s/%s: %s", dir, name, strerror(-rc)) : 0;
}

/* Whether `name` is a file that lies beside a store; `store` becomes the store's name. */
static int is_beside(const char *name, char store[HASH_DIGITS + sizeof SWN_CACHE_SUFFIX])
{
    size_t len = strnlen(name, HASH_DIGITS + strlen(SWN_CACHE_SUFFIX));
    memcpy(store, name, len);
    store[len] = 0;
    if (!is_store_name(store))
        return 0;
    for (size_t i = 0; i < SUFFIXES; i++)
        if (!strcmp(name + strlen(store), suffixes[i]))
            return 1;
    return 0;
}

/* Removes the files that lay beside removed stores. */
static void remove_orphans(const struct swn_io *io, const char *dir)
{
    DIR *d = opendir(dir);
    if (!d)
        return;
    for (struct dirent *f; (f = readdir(d));) {
        char store[HASH_DIGITS + sizeof SWN_CACHE_SUFFIX], path[PATH_MAX];
        if (is_beside(f->d_name, store) && !join(path, dir, store) && access(path, F_OK) && errno == ENOENT &&
            !join(path, dir, f->d_name))
            io->unlink(io->ctx, path);
    }
    closedir(d);
}

static int is_kept(const struct swn_cache_limits *limits, const char *name)
{
    for (size_t i = 0; i < limits->keep_count; i++)
        if (!strcmp(limits->keep[i], name))
            return 1;
    return 0;
}

/* Whether removing all removable stores would suffice. */
static int check_cap(const struct swn_cache_limits *limits, const char *dir, uint64_t needed_bytes, uint64_t kept_bytes,
                     char why[SWN_ERRMSG])
{
    uint64_t most = limits->cache_limit_bytes, beside = kept_bytes + limits->reserved_bytes;
    if (needed_bytes <= most && beside <= most - needed_bytes)
        return 0;
    char others[64] = "";
    if (beside)
        snprintf(others, sizeof others, " beside %" PRIu64 " for others in use", beside);
    return swn_errmsg(why, -EFBIG,
                      "the store needs %" PRIu64 " bytes%s, more than the cache in %s may take (%" PRIu64
                      "): raise it with 'swapnetctl cache cap'",
                      needed_bytes, others, dir, most);
}

int swn_cache_trim(const struct swn_io *io, const char *dir, const struct swn_cache_limits *limits,
                   uint64_t needed_bytes, const char *replaced, char why[SWN_ERRMSG])
{
    struct swn_cache_entry *entries;
    size_t count;
    uint64_t sum = needed_bytes + limits->reserved_bytes + swn_atomic_file_clean(io, dir), kept = 0;
    int rc = swn_cache_list(&entries, &count, io, dir, 0, why);
    if (rc)
        return rc;
    for (size_t i = 0; i < count; i++) {
        if (replaced && !strcmp(entries[i].name, replaced))
            entries[i].bytes = 0;
        sum += entries[i].bytes;
        kept += is_kept(limits, entries[i].name) ? entries[i].bytes : 0;
    }
    rc = check_cap(limits, dir, needed_bytes, kept, why);
    for (size_t i = 0; i < count && sum > limits->cache_limit_bytes && !rc; i++) {
        if (!entries[i].bytes || is_kept(limits, entries[i].name))
            continue;
        rc = swn_cache_remove(io, dir, entries[i].name, why);
        if (rc == -ENOENT) /* another process removed it */
            rc = 0;
        sum -= entries[i].bytes;
    }
    swn_cache_list_free(entries, count);
    if (!rc)
        remove_orphans(io, dir);
    return rc;
}

size_t swn_cache_drop_stale(const struct swn_io *io, const char *dir, const struct swn_cache_limits *limits)
{
    struct swn_cache_entry *entries;
    size_t count, dropped = 0;
    char why[SWN_ERRMSG];
    if (swn_cache_list(&entries, &count, io, dir, 1, why))
        return 0;
    for (size_t i = 0; i < count; i++)
        if (entries[i].stale && !is_kept(limits, entries[i].name))
            dropped += swn_cache_remove(io, dir, entries[i].name, why) == 0;
    swn_cache_list_free(entries, count);
    return dropped;
}

uint64_t swn_cache_spare(const struct swn_io *io, const char *dir, const struct swn_cache_limits *limits,
                         uint64_t needed_bytes, const char *replaced)
{
    struct swn_cache_entry *entries;
    struct statvfs v;
    char why[SWN_ERRMSG];
    size_t count;
    uint64_t taken = needed_bytes + limits->reserved_bytes;
    if (statvfs(dir, &v) || swn_cache_list(&entries, &count, io, dir, 0, why))
        return 0;
    for (size_t i = 0; i < count; i++)
        taken += strcmp(entries[i].name, replaced) ? entries[i].bytes : 0;
    swn_cache_list_free(entries, count);
    uint64_t room = (uint64_t)v.f_bavail * v.f_frsize, needed = needed_bytes + limits->reserved_bytes;
    room = room > needed ? (room - needed) / 2 : 0;
    if (!limits->cache_limit_bytes)
        return room;
    uint64_t left = limits->cache_limit_bytes > taken ? limits->cache_limit_bytes - taken : 0;
    return left < room ? left : room;
}

/* ---- the cap ---- */

static uint64_t default_cap(const char *dir)
{
    struct statvfs v;
    if (statvfs(dir, &v))
        return SWN_CACHE_CAP_BYTES;
    uint64_t fifth = (uint64_t)v.f_blocks * v.f_frsize / 5;
    return fifth < SWN_CACHE_CAP_BYTES ? fifth : SWN_CACHE_CAP_BYTES;
}

int swn_cache_cap(const struct swn_io *io, const char *dir, uint64_t *cache_limit_bytes, char why[SWN_ERRMSG])
{
    char path[PATH_MAX], text[64] = "", *end;
    int rc = join(path, dir, CAP_FILE);
    if (rc)
        return swn_errmsg(why, rc, "cache directory %s: %s", dir, strerror(-rc));
    int fd = swn_open_regular(io, path, O_NOFOLLOW, why);
    if (fd == -ENOENT) {
        *cache_limit_bytes = default_cap(dir);
        return 0;
    }
    if (fd < 0)
        return fd;
    ssize_t n = io->pread(io->ctx, fd, text, sizeof text - 1, 0);
    io->close(io->ctx, fd);
    if (n < 0)
        return swn_errmsg(why, (int)n, "%s: %s", path, strerror((int)-n));
    errno = 0;
    *cache_limit_bytes = strtoull(text, &end, 10);
    if (errno || text[0] < '0' || text[0] > '9' || *end != '\n' || end + 1 != text + n)
        return swn_errmsg(why, -EINVAL, "%s: not a number of bytes: set it anew with 'swapnetctl cache cap SIZE'",
                          path);
    return 0;
}

int swn_cache_set_cap(const struct swn_io *io, const char *dir, uint64_t cache_limit_bytes, char why[SWN_ERRMSG])
{
    char path[PATH_MAX], text[64];
    struct swn_atomic_file f;
    int rc = swn_make_dirs(dir);
    if (rc || (rc = join(path, dir, CAP_FILE)))
        return swn_errmsg(why, rc, "cache directory %s: %s", dir, strerror(-rc));
    rc = swn_cache_check_dir(io, dir, why);
    if (!rc)
        rc = swn_atomic_file_open(&f, io, path, 0600, why);
    if (rc)
        return rc;
    int len = snprintf(text, sizeof text, "%" PRIu64 "\n", cache_limit_bytes);
    ssize_t n = io->pwrite(io->ctx, f.file.fd, text, (size_t)len, 0);
    if (n != len) {
        rc = n < 0 ? (int)n : -EIO;
        swn_atomic_file_abandon(&f, io);
        return swn_errmsg(why, rc, "%s: %s", path, strerror(-rc));
    }
    return swn_atomic_file_commit(&f, io, why);
}
