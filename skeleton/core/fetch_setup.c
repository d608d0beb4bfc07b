/* skeleton/core/fetch_setup.c - sets up the fetch queue by the settings, and by the profile of the disk with the store
 * directory.
 *
 * Files on other disks are read through the same queue: it is set up for the disk that weights are written to.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "profiles/disk_profile.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/core/fetch_setup.h"

/* Read once, at the start: later the program may have another root directory, or other rights. */
void swn_queue_look_up(struct swn_engine *e)
{
    char path[PATH_MAX + 64], why[SWN_PROFILE_WHY];
    const char *named = e->config.disk_path;
    struct stat st = {0};
    if (!named[0] && e->io->fstat(e->io->ctx, e->writes.spill->fetch.fd, &st))
        return;
    if (swn_disk_find(path, sizeof path, named, e->config.store_dir, st.st_dev))
        return;
    int rc = swn_disk_queue(&e->disk.preferred, path, why);
    if (rc && (named[0] || rc != -ENOENT))
        swn_say("cannot use the device profile %s: %s; the disk is read as without one", path, why);
    else if (!rc && e->config.verbose)
        swn_say("up to %u reads of %llu KiB at once, as %s says", e->disk.preferred.depth,
                (unsigned long long)(e->disk.preferred.request_bytes >> 10), path);
}

int swn_queue_start(struct swn_engine *e)
{
    struct swn_fetch_opts opts = {
        .io = e->io, .depth = e->disk.preferred.depth, .piece_bytes = e->disk.preferred.request_bytes};
    opts.best_path = e->config.fetch == SWN_CONFIG_BUFFERED ? SWN_FETCH_BUFFERED
                     : e->config.fetch == SWN_CONFIG_PREAD  ? SWN_FETCH_PREAD
                                                            : SWN_FETCH_URING;
    return swn_fetch_start(&e->fetch, &opts);
}
