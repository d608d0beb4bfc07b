/* base/process.c - see base/process.h. */
#define _GNU_SOURCE
#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The file has some 1,500 bytes; the fields that are needed here are in the first half. */
#define STATUS_MOST 4096

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* Reads the beginning of a file as text. Returns its length or -errno. */
static ssize_t read_text(int directory, const char *name, char *text, size_t size)
{
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, text, size - 1);
    int err = errno;
    close(fd);
    text[n < 0 ? 0 : n] = '\0';
    return n < 0 ? -err : n;
}

/* Reads the first line of a file. 0 or -errno. */
static int read_line(int directory, const char *name, char *text, size_t size)
{
    ssize_t n = read_text(directory, name, text, size);
    if (n < 0)
        return (int)n;
    text[strcspn(text, "\n")] = '\0';
    return 0;
}

/* Field 22 of /proc/PID/stat. The name, field 2, may contain anything, also parentheses. A zombie's memory is gone,
 * unless its first thread alone has ended: field 20 is the number of threads, that one included. */
int swn_process_start(pid_t pid, uint64_t *start)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    ssize_t n = read_text(AT_FDCWD, path, text, sizeof text);
    if (n <= 0)
        return n < 0 ? (int)n : -ESRCH;
    char *at = strrchr(text, ')'), state;
    unsigned long long ticks;
    int threads;
    if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d %llu", &state,
                      &threads, &ticks) != 3)
        return -EPROTO;
    if (state == 'X' || (state == 'Z' && threads <= 1))
        return -ESRCH;
    *start = ticks;
    return 0;
}

uint64_t swn_process_ticks(void)
{
    struct timespec now;
    uint64_t rate = (uint64_t)sysconf(_SC_CLK_TCK);
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * rate + (uint64_t)now.tv_nsec * rate / 1000000000;
}

void swn_boot_id(char out[SWN_BOOT_ID])
{
    if (read_line(AT_FDCWD, "/proc/sys/kernel/random/boot_id", out, SWN_BOOT_ID))
        out[0] = '\0';
}

int swn_process_lives(pid_t pid, uint64_t start)
{
    uint64_t now;
    int err = swn_process_start(pid, &now);
    return err == -ENOENT || err == -ESRCH ? 0 : err ? err : now == start;
}

/* Resident pages, and those among them that are of files or shared memory. */
static int resident_pages(pid_t pid, unsigned long long *all, unsigned long long *shared)
{
    char path[64] = "/proc/self/statm", text[128]; /* also where /proc is of another namespace of processes */
    if (pid)
        snprintf(path, sizeof path, "/proc/%ld/statm", (long)pid);
    int err = read_line(AT_FDCWD, path, text, sizeof text);
    return err ? err : sscanf(text, "%*u %llu %llu", all, shared) == 2 ? 0 : -EPROTO;
}

int swn_process_resident(pid_t pid, uint64_t *bytes)
{
    unsigned long long all, shared;
    int err = resident_pages(pid, &all, &shared);
    if (!err)
        *bytes = all * (uint64_t)sysconf(_SC_PAGESIZE);
    return err;
}

int swn_process_anonymous(pid_t pid, uint64_t *bytes)
{
    unsigned long long all, shared;
    int err = resident_pages(pid, &all, &shared);
    if (!err)
        *bytes = (all > shared ? all - shared : 0) * (uint64_t)sysconf(_SC_PAGESIZE);
    return err;
}

/* The first number behind "Key:" in /proc/PID/status, or the one after it. */
static int status_number(const char *text, const char *key, int second, unsigned long long *out)
{
    const char *at = strstr(text, key);
    return at && sscanf(at + strlen(key), second ? "%*u %llu" : "%llu", out) == 1 ? 0 : -ENODATA;
}

static int read_status(pid_t pid, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
    ssize_t n = read_text(AT_FDCWD, path, text, size);
    return n < 0 ? (int)n : 0;
}

int swn_process_own_memory(pid_t pid, uint64_t *bytes)
{
    char text[STATUS_MOST];
    unsigned long long anonymous, shared;
    int err = read_status(pid, text, sizeof text);
    if (!err)
        err = status_number(text, "\nRssAnon:", 0, &anonymous);
    if (!err)
        err = status_number(text, "\nRssShmem:", 0, &shared);
    if (!err)
        *bytes = (uint64_t)(anonymous + shared) << 10;
    return err;
}

/* Field 9 of /proc/PID/stat has the flag until the process calls exec. */
static int has_called_exec(pid_t pid)
{
    enum { FORKED_NO_EXEC = 0x40 };
    char path[64], text[1024];
    unsigned flags;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    const char *at = read_text(AT_FDCWD, path, text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
    return at && sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 && !(flags & FORKED_NO_EXEC);
}

int swn_process_programs(pid_t pid, pid_t *list, int most)
{
    char path[64], text[STATUS_MOST], *at = text, *end;
    int n = 0;
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", (long)pid, (long)pid);
    ssize_t rc = read_text(AT_FDCWD, path, text, sizeof text);
    if (rc < 0)
        return (int)rc;
    /* A number that was cut has no space behind it. */
    for (long child; n < most && (child = strtol(at, &end, 10)) > 0 && *end == ' '; at = end)
        if (has_called_exec((pid_t)child))
            list[n++] = (pid_t)child;
    return n;
}

int swn_process_user(pid_t pid, uid_t *uid)
{
    char text[STATUS_MOST];
    unsigned long long effective;
    int err = read_status(pid, text, sizeof text);
    if (!err)
        err = status_number(text, "\nUid:", 1, &effective);
    if (!err)
        *uid = (uid_t)effective;
    return err;
}

int swn_process_has_thread(pid_t pid, const char *name)
{
    char path[64], comm[32];
    snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    DIR *tasks = opendir(path);
    if (!tasks)
        return -errno;
    int found = 0, seen = 0;
    for (struct dirent *e; found <= 0 && (e = readdir(tasks));) {
        snprintf(path, sizeof path, "%.20s/comm", e->d_name);
        if (e->d_name[0] == '.')
            continue;
        if (++seen > SWN_THREADS_LOOKED_AT) {
            found = -E2BIG;
            break;
        }
        int err = read_line(dirfd(tasks), path, comm, sizeof comm);
        if (!err)
            found = !strcmp(comm, name) ? 1 : found;
        else if (err != -ENOENT && err != -ESRCH) /* ENOENT, ESRCH: the thread ended meanwhile */
            found = err;
    }
    closedir(tasks);
    return found;
}

int swn_process_watch(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    return fd < 0 ? -errno : fd;
}
