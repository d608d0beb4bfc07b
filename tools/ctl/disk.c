/* tools/ctl/disk.c - `swapnetctl profile --disk`: measures how the library should read the disk of the block stores. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/ctl/ctl.h"
#include "tools/ctl/disk.h"
#include "profiles/disk_profile.h"
#include "blocks/memory/fetch_queue.h"
#include "base/paths.h"
#include "profiles/probe_queue_depth.h"

int ctl_disk_dir(char *dir, size_t size)
{
    int rc = swn_store_dir(environ, dir, size);
    if (rc == -ENOTSUP) /* then spill files go to the default directory */
        rc = swn_default_store_dir(environ, dir, size);
    return rc;
}

struct swn_queue_depth ctl_disk_queue(const char *dir)
{
    char path[PATH_MAX + 64], why[SWN_PROFILE_WHY];
    const char *set = getenv("SWAPNET_DISK"), *named = set ? set : "";
    struct swn_queue_depth queue = {0};
    struct stat st = {0};
    int rc = !*named && stat(dir, &st) ? -errno : swn_disk_find(path, sizeof path, named, dir, st.st_dev);
    if (!rc)
        rc = swn_disk_queue(&queue, path, why);
    return rc ? (struct swn_queue_depth){0} : queue;
}

/* --- the report --- */

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The number of distinct values among n, which it sorts to the front. */
static size_t distinct(uint64_t *values, size_t n)
{
    size_t kept = 0;
    qsort(values, n, sizeof *values, compare);
    for (size_t i = 0; i < n; i++)
        if (!kept || values[kept - 1] != values[i])
            values[kept++] = values[i];
    return kept;
}

static void print_rates(FILE *out, const struct swn_queue_depth *q)
{
    uint64_t depth[SWN_READS_MOST], size[SWN_READS_MOST];
    size_t n = q->measured_count;
    for (size_t i = 0; i < n; i++) {
        depth[i] = q->measured[i].depth;
        size[i] = q->measured[i].request_bytes;
    }
    size_t rows = distinct(depth, n), columns = distinct(size, n);
    fprintf(out, "%12s", "MB/s");
    for (size_t s = 0; s < columns; s++)
        fprintf(out, " %6llu KiB", (unsigned long long)(size[s] >> 10));
    fprintf(out, "\n");
    for (size_t d = 0; d < rows; d++) {
        fprintf(out, "%9llu at once", (unsigned long long)depth[d]);
        for (size_t s = 0; s < columns; s++) {
            double rate = swn_queue_depth_rate(q, (unsigned)depth[d], size[s]);
            if (rate > 0)
                fprintf(out, " %10.0f", rate / 1e6);
            else
                fprintf(out, " %10s", "-");
        }
        fprintf(out, "\n");
    }
}

void ctl_disk_print(FILE *out, const struct swn_queue_depth *q)
{
    if (!q->depth)
        return;
    fprintf(out, "reads that the disk likes:\n");
    if (q->measured_count)
        print_rates(out, q);
    fprintf(out, "  %u of %llu KiB at once", q->depth, (unsigned long long)(q->request_bytes >> 10));
    double chosen = swn_queue_depth_rate(q, q->depth, q->request_bytes),
           usual = swn_queue_depth_rate(q, SWN_FETCH_DEPTH, SWN_FETCH_PIECE);
    if (chosen > 0 && usual > 0)
        fprintf(out, ": %.2f of what %u of %zu KiB give, which is what the library does unasked", chosen / usual,
                SWN_FETCH_DEPTH, SWN_FETCH_PIECE >> 10);
    fprintf(out, "\n");
}

/* --- the measurement --- */

static struct swn_profile *new_profile(dev_t dev)
{
    char disk[64], name[80];
    snprintf(name, sizeof name, "disk %s", swn_disk_name(disk, dev));
    struct swn_profile *p = swn_profile_new(SWN_PROFILE_DEVICE, name);
    if (p)
        p->source = strdup("measured by swapnetctl profile --disk");
    return p;
}

static int measure(struct swn_profile **out, const char *dir, dev_t *dev)
{
    struct stat st;
    struct swn_queue_depth queue;
    int rc = swn_probe_queue(&queue, &swn_io_sys, dir); /* also makes the directory */
    if (rc)
        return rc;
    rc = stat(dir, &st) ? -errno : 0;
    struct swn_profile *p = rc ? NULL : new_profile(st.st_dev);
    if (!p) {
        swn_queue_depth_free(&queue);
        return rc ? rc : -ENOMEM;
    }
    *dev = st.st_dev;
    p->queue = queue;
    p->c.alpha = 1 / swn_queue_depth_rate(&queue, queue.depth, queue.request_bytes);
    p->known = SWN_ALPHA;
    *out = p;
    return 0;
}

int ctl_disk_profile(const char *output)
{
    char dir[PATH_MAX], path[PATH_MAX + 64];
    struct swn_profile *p;
    dev_t dev;
    signal(SIGXFSZ, SIG_IGN); /* a write beyond RLIMIT_FSIZE fails, and the command says so */
    int rc = ctl_disk_dir(dir, sizeof dir);
    if (!rc)
        rc = measure(&p, dir, &dev);
    if (rc) {
        swn_cli_error("cannot measure the disk%s%s: %s", rc == -ENOENT ? "" : " below ", rc == -ENOENT ? "" : dir,
                      rc == -EOPNOTSUPP ? "it takes no direct reads (is it a disk?)" : strerror(-rc));
        return SWN_CLI_FAILURE;
    }
    ctl_disk_print(stdout, &p->queue);
    rc = output ? 0 : swn_disk_path(path, sizeof path, dir, dev);
    if (!rc)
        rc = swn_profile_save(p, output ? output : path);
    if (rc)
        swn_cli_error("cannot write %s: %s", output ? output : dir, strerror(-rc));
    else if (!output) {
        printf("written to ");
        swn_cli_print_name(stdout, path, 0);
        printf(", where the library looks for it\n");
    }
    swn_profile_free(p);
    return rc ? SWN_CLI_FAILURE : SWN_CLI_OK;
}
