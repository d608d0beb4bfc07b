#include "base/process_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FADES 16
#define GROWTH ((uint64_t)8 << 20)
#define LIBRARIES ((uint64_t)64 << 20)

/* 1 when the text has the line "KEY:   123 kB". */
static int take(const char *text, const char *key, uint64_t *bytes)
{
    unsigned long long kib;
    const char *line = strstr(text, key);
    if (!line || sscanf(line + strlen(key), " %llu kB", &kib) != 1)
        return 0;
    *bytes = kib * 1024;
    return 1;
}

int swn_process_memory_read(struct swn_process_memory_rss *out, const char *root)
{
    char path[PATH_MAX], text[8192];
    if (snprintf(path, sizeof path, "%s/proc/self/status", root) >= (int)sizeof path)
        return -ENAMETOOLONG;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, text, sizeof text - 1);
    int err = n < 0 ? -errno : 0;
    close(fd);
    text[n < 0 ? 0 : n] = '\0';
    if (err)
        return err;
    return take(text, "\nRssAnon:", &out->anon) && take(text, "\nRssFile:", &out->file) ? 0 : -ENODATA;
}

uint64_t swn_process_memory_budget(struct swn_process_memory *w, const struct swn_process_memory_rss *rss,
                                   uint64_t ours, uint64_t floor)
{
    uint64_t file = rss->file < w->least_file + LIBRARIES ? rss->file : w->least_file + LIBRARIES;
    uint64_t now = (rss->anon > ours ? rss->anon - ours : 0) + file;
    uint64_t faded = w->outside - w->outside / FADES;
    w->outside = now > faded ? now : faded;
    w->outside = w->outside > w->least ? w->outside : w->least;
    uint64_t taken = w->outside + GROWTH, left = w->limit > taken ? w->limit - taken : 0;
    return left > floor ? left : floor;
}
