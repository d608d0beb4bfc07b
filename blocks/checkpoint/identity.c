/* blocks/checkpoint/identity.c - whether a file's times will show the next write to it. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <time.h>

#include "blocks/checkpoint/builder.h"
#include "base/backing.h"
#include "base/errmsg.h"

#define SECOND_NS INT64_C(1000000000)

int swn_identity_settle(const struct swn_io *io, int fd, int wait_ms, struct swn_identity *out)
{
    struct timespec now, tick = {.tv_nsec = SECOND_NS / 1000};
    /* Times of a file in memory do not show a store through a shared mapping into a dirty page, and all pages of such a
     * file stay dirty. On a disk, reading past the page cache writes dirty pages back, and the next store faults. */
    if (swn_file_in_memory(io, fd))
        return -ENOTSUP;
    for (int ms = 0;; ms++) {
        int rc = swn_identity_stat(io, fd, out);
        if (rc)
            return rc;
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
        int64_t age = (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec - out->ctime_ns;
        /* Whole seconds mean a file system without parts of seconds, or one with a granularity of two seconds. */
        int64_t least = out->ctime_ns % SECOND_NS ? 0 : 2 * SECOND_NS;
        if (age > least)
            return 0;
        if (ms >= wait_ms || age < -SECOND_NS || least - age > (wait_ms - ms) * (SECOND_NS / 1000) + SECOND_NS / 100)
            return -ESTALE;
        nanosleep(&tick, NULL);
    }
}

int swn_identity_same_file(const struct swn_identity *a, const struct swn_identity *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size && a->mtime_ns == b->mtime_ns &&
           a->ctime_ns == b->ctime_ns;
}

static int open_settled(struct swn_checkpoint **out, const struct swn_io *io, int fd, const char *path, int wait_ms,
                        int records, char *why)
{
    struct swn_identity settled;
    /* Writes pages back that were dirtied through a shared mapping: from then on the next such store shows in the
     * times. Where fsync fails, the file is as good as before. */
    io->fsync(io->ctx, fd);
    int rc = swn_identity_settle(io, fd, wait_ms, &settled);
    if (rc == -ENOTSUP)
        return swn_errmsg(why, rc,
                          "%s: lies in memory, where its times do not tell when it changes: give --output STORE", path);
    if (rc == -ESTALE)
        return swn_errmsg(why, rc, "%s: its times lie in the future, or it is still being written; build again later",
                          path);
    if (rc)
        return swn_errmsg(why, rc, "%s: %s", path, strerror(-rc));
    rc = swn_ckpt_open_copy(out, io, fd, path, records, why);
    if (rc || swn_identity_same_file(&(*out)->files[0].identity, &settled))
        return rc;
    swn_checkpoint_close(*out, io);
    return swn_errmsg(why, -ESTALE, "%s: was written to while it was opened; build again", path);
}

int swn_checkpoint_open_settled(struct swn_checkpoint **out, const struct swn_io *io, int fd, const char *path,
                                int wait_ms, char why[SWN_ERRMSG])
{
    return open_settled(out, io, fd, path, wait_ms, 0, why);
}

int swn_checkpoint_open_places(struct swn_checkpoint **out, const struct swn_io *io, int fd, const char *path,
                               int wait_ms, char why[SWN_ERRMSG])
{
    return wait_ms < 0 ? swn_ckpt_open_copy(out, io, fd, path, 1, why)
                       : open_settled(out, io, fd, path, wait_ms, 1, why);
}
