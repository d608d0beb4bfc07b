/* blocks/checkpoint/checkpoint.c - opens checkpoints, detects their formats, and identifies their bytes. */
#include "blocks/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "blocks/checkpoint/builder.h"
#include "base/fd_registry.h"
#include "base/file_io.h"
#include "blocks/checkpoint/zip.h"

enum format { FORMAT_ZIP, FORMAT_SAFETENSORS };

/* An overlay has another device number each time it is mounted, as in every container that starts; inodes and times are
 * those of the files below. */
static uint64_t device_of(int fd, const struct stat *st)
{
    struct statfs fs;
    return major(st->st_dev) || fstatfs(fd, &fs) || fs.f_type != OVERLAYFS_SUPER_MAGIC ? st->st_dev : 0;
}

int swn_identity_stat(const struct swn_io *io, int fd, struct swn_identity *out)
{
    struct stat st;
    int rc = io->fstat(io->ctx, fd, &st);
    if (rc < 0)
        return rc;
    *out = (struct swn_identity){
        .dev = device_of(fd, &st),
        .ino = st.st_ino,
        .size = (uint64_t)st.st_size,
        .mtime_ns = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec,
        .ctime_ns = st.st_ctim.tv_sec * INT64_C(1000000000) + st.st_ctim.tv_nsec,
    };
    return 0;
}

static int stat_source(struct swn_ckpt_source *src, struct swn_identity *id, char *why)
{
    struct stat st;
    int rc = src->io->fstat(src->io->ctx, src->fd, &st);
    if (rc >= 0)
        rc = swn_identity_stat(src->io, src->fd, id);
    if (rc < 0)
        return swn_ckpt_fail(why, rc, "%s: %s", src->path, strerror(-rc));
    if (!S_ISREG(st.st_mode))
        return swn_ckpt_fail(why, -EINVAL, "%s: not a regular file", src->path);
    src->size = id->size;
    return 0;
}

static int ends_with(const char *path, const char *end)
{
    size_t len = strlen(path), n = strlen(end);
    return len >= n && !strcmp(path + len - n, end);
}

/* A pickle begins with its protocol; from 4 on the size of a frame comes next. */
#define FRAME_BYTES 9
#define HEAD_BYTES 32

/* Whether torch.save before 1.6 wrote the file: a pickle of a magic number, or before 0.1 a tar archive. 1, 0 or an
 * error. */
static int is_old_torch(const struct swn_ckpt_source *src, const unsigned char *head, char *why)
{
    static const unsigned char magic[] = {0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
    char tar[5];
    if (head[0] == 0x80 && !memcmp(head + 2 + (head[1] >= 4 ? FRAME_BYTES : 0), magic, sizeof(magic)))
        return 1;
    if (src->size < 512)
        return 0;
    int rc = swn_ckpt_read(src, tar, sizeof(tar), 257, why);
    return rc ? rc : !memcmp(tar, "ustar", sizeof(tar));
}

static int tell_format(const struct swn_ckpt_source *src, enum format *out, char *why)
{
    unsigned char head[HEAD_BYTES] = {0};
    size_t n = src->size < sizeof(head) ? (size_t)src->size : sizeof(head);
    int rc = swn_ckpt_read(src, head, n, 0, why);
    if (rc)
        return rc;
    if (swn_zip_begins(head)) {
        *out = FORMAT_ZIP;
        return 0;
    }
    if (n > 8 && head[8] == '{') {
        *out = FORMAT_SAFETENSORS;
        return 0;
    }
    rc = is_old_torch(src, head, why);
    if (rc < 0)
        return rc;
    if (rc)
        return swn_ckpt_fail(
            why, -ENOTSUP,
            "%s: written in the format of PyTorch before 1.6, which is not read; if you trust the file, "
            "convert it: torch.save(torch.load(OLD), NEW) with a current PyTorch",
            src->path);
    if (ends_with(src->path, ".safetensors")) {
        *out = FORMAT_SAFETENSORS; /* so that its reader's message names the format */
        return 0;
    }
    return swn_ckpt_fail(why, -EINVAL, "%s: %s", src->path,
                         n && head[0] == '{' ? "JSON; an index of shards must be called *.index.json and opened by path"
                                             : "neither a zip archive of torch.save nor a safetensors file");
}

int swn_checkpoint_identity(const struct swn_io *io, int fd, struct swn_identity *out, char why[SWN_ERRMSG])
{
    enum format format;
    struct swn_ckpt_source src = {.io = io, .fd = fd, .path = "the checkpoint"};
    int rc = stat_source(&src, out, why);
    if (!rc)
        rc = tell_format(&src, &format, why);
    if (rc)
        return rc;
    return format == FORMAT_ZIP ? swn_zip_hash(&src, &out->directory, why)
                                : swn_ckpt_hash_safetensors(&src, &out->directory, why);
}

int swn_ckpt_read_file(struct swn_ckpt_builder *b, const struct swn_io *io, int fd, const char *path,
                       char why[SWN_ERRMSG])
{
    enum format format;
    struct swn_identity id, now;
    struct swn_ckpt_source src = {.io = io, .fd = fd, .path = path};
    uint32_t file = (uint32_t)b->c.file_count;
    int rc = stat_source(&src, &id, why);
    if (rc) {
        io->close(io->ctx, fd);
        return rc;
    }
    rc = swn_ckpt_add_file(b, io, fd, path, &id, why);
    if (!rc)
        rc = tell_format(&src, &format, why);
    if (rc)
        return rc;
    uint64_t *directory = &b->c.files[file].identity.directory;
    rc = format == FORMAT_ZIP ? swn_ckpt_read_torch(b, &src, file, directory, why)
                              : swn_ckpt_read_safetensors(b, &src, file, directory, why);
    if (!rc)
        rc = stat_source(&src, &now, why);
    if (!rc && !swn_identity_same_file(&id, &now))
        rc = swn_ckpt_fail(why, -ESTALE, "%s: changed while it was read", path);
    return rc;
}

int swn_ckpt_open_fd(const struct swn_io *io, const char *path, char why[SWN_ERRMSG])
{
    return swn_open_regular(io, path, 0, why);
}

/* Takes `fd` over. */
static int open_single(struct swn_checkpoint **out, const struct swn_io *io, int fd, const char *path, int records,
                       char *why)
{
    struct swn_ckpt_builder *b;
    int rc = swn_ckpt_new(&b, 1, why);
    if (rc) {
        io->close(io->ctx, fd);
        return rc;
    }
    b->records = records;
    rc = swn_ckpt_read_file(b, io, fd, path, why);
    if (!rc)
        rc = swn_ckpt_finish(b, out, why);
    if (rc)
        swn_ckpt_drop(b, io);
    return rc;
}

int swn_checkpoint_open(struct swn_checkpoint **out, const struct swn_io *io, const char *path, char why[SWN_ERRMSG])
{
    int fd = swn_ckpt_open_fd(io, path, why);
    if (fd < 0)
        return fd;
    if (!swn_ckpt_is_index(path))
        return open_single(out, io, fd, path, 0, why);
    struct swn_identity id;
    struct swn_ckpt_source src = {.io = io, .fd = fd, .path = path};
    int rc = stat_source(&src, &id, why);
    if (!rc)
        rc = swn_ckpt_read_index(out, &src, why);
    io->close(io->ctx, fd);
    return rc;
}

int swn_ckpt_open_copy(struct swn_checkpoint **out, const struct swn_io *io, int fd, const char *path, int records,
                       char why[SWN_ERRMSG])
{
    int own = swn_fd_registry(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (own < 0)
        return swn_ckpt_fail(why, -errno, "%s: %s", path, strerror(errno));
    return open_single(out, io, own, path, records, why);
}

int swn_checkpoint_open_fd(struct swn_checkpoint **out, const struct swn_io *io, int fd, const char *path,
                           char why[SWN_ERRMSG])
{
    return swn_ckpt_open_copy(out, io, fd, path, 0, why);
}

void swn_checkpoint_close(struct swn_checkpoint *c, const struct swn_io *io)
{
    /* the checkpoint is the builder's first member */
    swn_ckpt_drop((struct swn_ckpt_builder *)c, io);
}
