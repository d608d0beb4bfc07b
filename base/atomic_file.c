/* base/atomic_file.c - see atomic_file.h. */
#define _GNU_SOURCE
#include "base/atomic_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/paths.h"
#include "base/file_io.h"
#include "base/errmsg.h"

#define PREFIX ".swapnet-"
#define SUFFIX ".tmp"

static int is_ours(const char *name)
{
    size_t len = strlen(name);
    return len > strlen(PREFIX SUFFIX) && !strncmp(name, PREFIX, strlen(PREFIX)) &&
           !strcmp(name + len - strlen(SUFFIX), SUFFIX);
}

/* Adds its bytes to those of its kind, and removes it where `remove` says so and its writer is dead. A lock that cannot
 * be had for another reason than a living writer proves nothing, and the file stays. */
static void look_at(const struct swn_io *io, const char *path, int remove, uint64_t *living, uint64_t *dead)
{
    struct stat st;
    int fd = swn_open_regular(io, path, O_NOFOLLOW, NULL);
    if (fd < 0)
        return;
    if (io->fstat(io->ctx, fd, &st) == 0 && st.st_uid == geteuid()) {
        int is_dead = flock(fd, LOCK_EX | LOCK_NB) == 0;
        *(is_dead ? dead : living) += (uint64_t)st.st_size;
        if (is_dead && remove)
            io->unlink(io->ctx, path);
    }
    io->close(io->ctx, fd);
}

static void look_at_all(const struct swn_io *io, const char *dir, int remove, uint64_t *living, uint64_t *dead)
{
    *living = *dead = 0;
    DIR *d = opendir(dir);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        char path[PATH_MAX];
        if (is_ours(e->d_name) && snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < (int)sizeof path)
            look_at(io, path, remove, living, dead);
    }
    closedir(d);
}

void swn_atomic_file_look(const struct swn_io *io, const char *dir, uint64_t *living, uint64_t *dead)
{
    look_at_all(io, dir, 0, living, dead);
}

uint64_t swn_atomic_file_clean(const struct swn_io *io, const char *dir)
{
    uint64_t living, dead;
    look_at_all(io, dir, 1, &living, &dead);
    return living;
}

/* Between the making of the file and its locking, another writer's cleanup may have removed it. */
static int lock_is_good(const struct swn_io *io, int fd)
{
    struct stat st;
    if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return 0;
    return io->fstat(io->ctx, fd, &st) != 0 || st.st_nlink > 0;
}

static int make_tmp(struct swn_atomic_file *f, const struct swn_io *io, mode_t mode)
{
    for (int tries = 0; tries < 16; tries++) {
        uint64_t random;
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
            return -EAGAIN;
        int n = snprintf(f->tmp, sizeof f->tmp, "%s/" PREFIX "%016" PRIx64 SUFFIX, f->dir, random);
        if (n >= (int)sizeof f->tmp)
            return -ENAMETOOLONG;
        int fd = io->open(io->ctx, f->tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (fd == -EEXIST)
            continue;
        if (fd < 0)
            return fd;
        if (lock_is_good(io, fd)) {
            f->file.fd = fd;
            return 0;
        }
        io->close(io->ctx, fd);
        io->unlink(io->ctx, f->tmp);
    }
    return -EBUSY;
}

static const char *kind_of(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFLNK:
        return "a symbolic link";
    case S_IFIFO:
        return "a FIFO";
    case S_IFSOCK:
        return "a socket";
    case S_IFDIR:
        return "a directory";
    default:
        return "a device";
    }
}

/* The rename at the end would put a file in the place of /dev/null, of a FIFO that a reader waits at, or of a link, and
 * leave what the link names as it was. */
static int check_place(const struct swn_io *io, const char *path, char why[SWN_ERRMSG])
{
    struct stat st;
    int fd = io->open(io->ctx, path, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0)
        return 0; /* mostly -ENOENT; else what is made beside it fails, and says why */
    int rc = io->fstat(io->ctx, fd, &st);
    io->close(io->ctx, fd);
    if (rc || S_ISREG(st.st_mode))
        return rc ? swn_errmsg(why, rc, "%s: %s", path, strerror(-rc)) : 0;
    return swn_errmsg(why, -EEXIST, "%s is %s, which a regular file does not replace: choose another name", path,
                      kind_of(st.st_mode));
}

int swn_atomic_file_open(struct swn_atomic_file *f, const struct swn_io *io, const char *path, mode_t mode,
                         char why[SWN_ERRMSG])
{
    memset(f, 0, sizeof *f);
    f->file.fd = f->file.direct_fd = -1;
    if (strlen(path) >= sizeof f->path)
        return swn_errmsg(why, -ENAMETOOLONG, "the path is too long");
    strcpy(f->path, path);
    int rc = check_place(io, path, why);
    if (rc)
        return rc;
    rc = swn_dir_of(path, f->dir, sizeof f->dir);
    if (!rc) {
        swn_atomic_file_clean(io, f->dir);
        rc = make_tmp(f, io, mode);
    }
    if (rc)
        return swn_errmsg(why, rc, "cannot make a file in %s: %s", f->dir, strerror(-rc));
    f->file.direct_fd = swn_open_direct(io, f->file.fd, O_RDWR);
    return 0;
}

static int close_both(struct swn_atomic_file *f, const struct swn_io *io)
{
    if (f->file.direct_fd >= 0)
        io->close(io->ctx, f->file.direct_fd);
    int rc = f->file.fd >= 0 ? io->close(io->ctx, f->file.fd) : 0;
    f->file.fd = f->file.direct_fd = -1;
    return rc;
}

void swn_atomic_file_abandon(struct swn_atomic_file *f, const struct swn_io *io)
{
    io->unlink(io->ctx, f->tmp); /* while the lock is held */
    close_both(f, io);
}

static int sync_dir(const struct swn_io *io, const char *dir)
{
    int fd = io->open(io->ctx, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return fd;
    int rc;
    do
        rc = io->fsync(io->ctx, fd);
    while (rc == -EINTR);
    io->close(io->ctx, fd);
    return rc == -EINVAL || rc == -EOPNOTSUPP ? 0 : rc; /* file systems that cannot sync a directory */
}

int swn_atomic_file_commit(struct swn_atomic_file *f, const struct swn_io *io, char why[SWN_ERRMSG])
{
    int rc = swn_write_settle(io, &f->file);
    if (!rc)
        rc = io->rename(io->ctx, f->tmp, f->path);
    if (rc) {
        swn_atomic_file_abandon(f, io);
        return swn_errmsg(why, rc, "cannot finish %s: %s", f->path, strerror(-rc));
    }
    close_both(f, io);
    rc = sync_dir(io, f->dir);
    if (rc)
        return swn_errmsg(why, rc, "%s is written, but its directory cannot be synced: %s", f->path, strerror(-rc));
    return 0;
}
