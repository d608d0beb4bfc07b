/* skeleton/load/mapped_before.c - files that the program maps for itself: np.load(mmap_mode='c'), or a buffer of the
 * mmap module. A model may be made of them before swapnet's engine exists, so the list of mappings is read once, when
 * it starts.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/text_file.h"
#include "skeleton/load/mapped_file.h"

#define MAPS_MOST ((size_t)8 << 20)

/* Whether somebody has the file open, or mapped, for writing: the kernel grants no lease on it then. Bytes that were
 * fetched would not follow what is written, as those of a private mapping do. Not to be had by all users, and then
 * taken for granted to be so. */
static int may_change(int fd)
{
    /* A writer that comes just now makes the kernel send the lease's signal: one that nobody takes amiss, not SIGIO. */
    if (fcntl(fd, F_SETSIG, SIGURG) || fcntl(fd, F_SETLEASE, F_RDLCK))
        return 1;
    fcntl(fd, F_SETLEASE, F_UNLCK);
    return 0;
}

/* A mapping takes two descriptors more, and the program must not run out of them. */
static int is_high(int fd)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) || (rlim_t)fd > limit.rlim_cur / 8;
}

void swn_mapped_file_of_program(void *addr, size_t len, int fd, off_t off)
{
    char path[64];
    if (!swn_engine_running() || len < SWN_MAPPED_LEAST || is_high(fd))
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd); /* a description of its own, which no other thread writes by */
    int own = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (own < 0)
        return;
    if (!may_change(own))
        swn_mapped_file_begin(addr, len, own, off);
    close(own);
}

/* One line of /proc/self/maps. */
struct line {
    uintptr_t lo, hi;
    uint64_t off, ino;
    unsigned major, minor;
    const char *path;
};

/* Whether the line is of a file that is mapped privately, to read and write. *code: the last file that is mapped to
 * run, behind which its data follow. */
static int parse(const char *text, struct line *l, uint64_t *code)
{
    char mode[5];
    int path = 0;
    if (sscanf(text, "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &l->lo, &l->hi, mode, &l->off,
               &l->major, &l->minor, &l->ino, &path) != 7)
        return 0;
    if (mode[2] == 'x')
        *code = l->ino;
    l->path = text + path;
    return !strcmp(mode, "rw-p") && l->ino && l->ino != *code && *l->path == '/' && l->hi - l->lo >= SWN_MAPPED_LEAST;
}

/* By its name: the descriptor may be closed. Where another file has the name by now, the mapping is left alone. */
static void take(const struct line *l)
{
    struct stat st;
    int fd = open(l->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_ino == l->ino && major(st.st_dev) == l->major &&
        minor(st.st_dev) == l->minor)
        swn_mapped_file_of_program((void *)l->lo, l->hi - l->lo, fd, (off_t)l->off);
    close(fd);
}

void swn_mapped_file_look_before(void)
{
    char *text, *next;
    size_t len;
    uint64_t code = 0;
    if (swn_textfile_read("/proc/self/maps", MAPS_MOST, &text, &len))
        return;
    for (char *at = text; at && *at; at = next) {
        struct line l;
        next = strchr(at, '\n');
        if (next)
            *next++ = 0;
        if (parse(at, &l, &code))
            take(&l);
    }
    free(text);
}
