/* profiles/disk_profile.c - see disk_profile.h. */
#define _GNU_SOURCE
#include "profiles/disk_profile.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/text_file.h"

#define MOST_TEXT ((size_t)64 << 10)

int swn_disk_path(char *out, size_t size, const char *dir, dev_t dev)
{
    int n = snprintf(out, size, "%s/disk-%u-%u.json", dir, major(dev), minor(dev));
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

int swn_disk_find(char *out, size_t size, const char *named, const char *dir, dev_t dev)
{
    if (!*named)
        return swn_disk_path(out, size, dir, dev);
    if (!strcmp(named, "off"))
        return -ENOENT;
    return (size_t)snprintf(out, size, "%s", named) < size ? 0 : -ENAMETOOLONG;
}

const char *swn_disk_name(char buf[64], dev_t dev)
{
    char path[64], target[PATH_MAX];
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u", major(dev), minor(dev));
    ssize_t n = readlink(path, target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
    const char *base = strrchr(target, '/');
    if (base && base[1])
        snprintf(buf, 64, "%.60s", base + 1);
    else
        snprintf(buf, 64, "%u:%u", major(dev), minor(dev));
    return buf;
}

static int say(char why[SWN_PROFILE_WHY], int rc, const char *text)
{
    snprintf(why, SWN_PROFILE_WHY, "%s", text);
    return rc;
}

int swn_disk_queue(struct swn_queue_depth *out, const char *path, char why[SWN_PROFILE_WHY])
{
    struct stat st;
    if (stat(path, &st))
        return say(why, -errno, strerror(errno));
    if (!S_ISREG(st.st_mode)) /* opening a fifo would block */
        return say(why, -EINVAL, "it is no regular file");
    char *text;
    size_t len;
    int rc = swn_textfile_read(path, MOST_TEXT, &text, &len);
    if (rc)
        return say(why, rc, strerror(-rc));
    struct swn_profile *p = NULL;
    rc = swn_profile_parse(&p, text, len, why);
    free(text);
    if (rc)
        return rc;
    if (p->queue.depth)
        *out = (struct swn_queue_depth){.depth = p->queue.depth, .request_bytes = p->queue.request_bytes};
    else
        rc = say(why, -ENODATA, "it does not say how the disk likes to be read (\"queue\")");
    swn_profile_free(p);
    return rc;
}
