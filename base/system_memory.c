/* base/system_memory.c - see base/system_memory.h. */
#define _GNU_SOURCE
#include "base/system_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Percent of time. Below it the kernel only reclaims clean pages; from here on programs slow down. */
#define PRESSURE_MOST 10.0
#define LEAST_EASE 0.25

static int read_file(char *buf, size_t size, const char *root, const char *path)
{
    char whole[PATH_MAX];
    if (snprintf(whole, sizeof whole, "%s%s", root, path) >= (int)sizeof whole)
        return -ENAMETOOLONG;
    int fd = open(whole, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, buf, size - 1);
    int err = n < 0 ? -errno : 0;
    close(fd);
    buf[n < 0 ? 0 : n] = '\0';
    return err;
}

static int read_number(uint64_t *out, const char *root, const char *directory, const char *name)
{
    char path[PATH_MAX], text[64], *end;
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path ||
        read_file(text, sizeof text, root, path))
        return -ENOENT;
    if (!strncmp(text, "max", 3)) {
        *out = UINT64_MAX;
        return 0;
    }
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (end == text || errno)
        return -EINVAL;
    if (*out >= (uint64_t)1 << 62) /* version 1 writes "none" as a very large number */
        *out = UINT64_MAX;
    return 0;
}

/* Page cache that was used at most once: the kernel reclaims it as soon as memory is wanted, but counts it as used. */
static uint64_t inactive_file(const char *root, const char *directory)
{
    char path[PATH_MAX], text[8192];
    unsigned long long bytes;
    if (snprintf(path, sizeof path, "%s/memory.stat", directory) >= (int)sizeof path ||
        read_file(text, sizeof text, root, path))
        return 0;
    const char *line = strstr(text, "total_inactive_file "); /* version 1, including all groups below */
    line = line ? line : strstr(text, "inactive_file ");
    return line && sscanf(strchr(line, ' '), " %llu", &bytes) == 1 ? bytes : 0;
}

/* Version 2 has a second limit, memory.high, above which the kernel reclaims and slows the group down. The library
 * keeps to it, too. Version 1 has no file of that name. */
static int read_limit(uint64_t *out, const char *root, const char *directory, const char *limit)
{
    uint64_t high;
    int err = read_number(out, root, directory, limit);
    if (!read_number(&high, root, directory, "memory.high") && (err || high < *out)) {
        *out = high;
        err = 0;
    }
    return err;
}

/* The tightest limit from the process's cgroup up to the root: the one with the least memory left. */
static void tightest(struct swn_memory *m, const char *root, const char *mount, const char *group, const char *limit,
                     const char *usage)
{
    char path[PATH_MAX];
    size_t base = strlen(mount);
    if (snprintf(path, sizeof path, "%s%s", mount, group) >= (int)sizeof path)
        return;
    for (;;) {
        uint64_t most, now;
        if (!read_limit(&most, root, path, limit) && most != UINT64_MAX && !read_number(&now, root, path, usage)) {
            uint64_t idle = inactive_file(root, path);
            now -= idle < now ? idle : now;
            if (m->cgroup_limit == UINT64_MAX ||
                (most > now ? most - now : 0) <
                    (m->cgroup_limit > m->cgroup_usage ? m->cgroup_limit - m->cgroup_usage : 0)) {
                m->cgroup_limit = most;
                m->cgroup_usage = now;
            }
        }
        char *slash = strrchr(path + base, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

/* Lines of /proc/self/cgroup: "0::/group" of version 2, "4:memory:/group" of version 1. */
static void read_cgroup(struct swn_memory *m, const char *root)
{
    char text[8192], *save = NULL;
    if (read_file(text, sizeof text, root, "/proc/self/cgroup"))
        return;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *kinds = strchr(line, ':'), *group = kinds ? strchr(kinds + 1, ':') : NULL;
        if (!group || group[1] != '/' || strstr(group, "/.."))
            continue;
        *group++ = '\0';
        if (!strcmp(group, "/"))
            group = "";
        if (!kinds[1])
            tightest(m, root, "/sys/fs/cgroup", group, "memory.max", "memory.current");
        else if (!strcmp(kinds + 1, "memory"))
            tightest(m, root, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes");
    }
}

int swn_memory_read(struct swn_memory *out, const char *root)
{
    char text[8192];
    unsigned long long kib;
    *out = (struct swn_memory){.cgroup_limit = UINT64_MAX, .pressure = -1};
    int err = read_file(text, sizeof text, root, "/proc/meminfo");
    if (err)
        return err;
    const char *line = strstr(text, "MemAvailable:");
    if (!line || sscanf(line, "MemAvailable: %llu kB", &kib) != 1)
        return -ENODATA;
    out->available = kib * 1024;
    read_cgroup(out, root);
    unsigned whole, hundredths; /* %lf goes by the program's locale */
    if (!read_file(text, sizeof text, root, "/proc/pressure/memory") && (line = strstr(text, "some ")) &&
        sscanf(line, "some avg10=%u.%2u", &whole, &hundredths) == 2 && whole <= 100)
        out->pressure = whole + hundredths / 100.0;
    return 0;
}

/* PRESSURE_MOST of one second, or, for a process without privileges, of two seconds, as the kernel demands. */
static const char *const triggers[] = {"some 100000 1000000", "some 200000 2000000"};

static int open_trigger(const char *root, const char *directory, const char *name)
{
    char path[PATH_MAX];
    int rc = -ENOENT;
    if (snprintf(path, sizeof path, "%s%s/%s", root, directory, name) >= (int)sizeof path)
        return -ENAMETOOLONG;
    for (size_t i = 0; i < sizeof triggers / sizeof *triggers; i++) {
        int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
            return -errno;
        if (write(fd, triggers[i], strlen(triggers[i]) + 1) >= 0)
            return fd;
        rc = -errno;
        close(fd);
    }
    return rc;
}

int swn_pressure_open(const char *root)
{
    return open_trigger(root, "/proc/pressure", "memory");
}

int swn_pressure_open_own(const char *root)
{
    char text[8192], path[PATH_MAX];
    char *group = read_file(text, sizeof text, root, "/proc/self/cgroup") ? NULL : strstr(text, "0::/"), *end;
    if (group && (group == text || group[-1] == '\n') && (end = strchr(group, '\n')) &&
        !memmem(group, (size_t)(end - group), "/..", 3)) {
        *end = 0;
        if (group[4] && snprintf(path, sizeof path, "/sys/fs/cgroup%s", group + 3) < (int)sizeof path) {
            int fd = open_trigger(root, path, "memory.pressure");
            if (fd >= 0)
                return fd;
        }
    }
    return swn_pressure_open(root);
}

uint64_t swn_follow_total(struct swn_follow *f, const struct swn_memory *m, uint64_t ours)
{
    uint64_t left = m->available;
    if (m->cgroup_limit != UINT64_MAX) {
        uint64_t room = m->cgroup_limit > m->cgroup_usage ? m->cgroup_limit - m->cgroup_usage : 0;
        left = room < left ? room : left;
    }
    f->ease = m->pressure > PRESSURE_MOST ? f->ease * 0.9 : f->ease + 0.02;
    f->ease = f->ease > 1 ? 1 : f->ease < LEAST_EASE ? LEAST_EASE : f->ease;
    return (uint64_t)(f->share * f->ease * ((double)ours + (double)left));
}
