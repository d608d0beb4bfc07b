#define _GNU_SOURCE
#include "swn_own.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHUNK 256
#define CHUNKS 4096 /* a million numbers; what lies above is not looked after */

/* No number is used by two of us at once, so an entry has one writer at a time. */
struct id {
    _Atomic dev_t dev;
    _Atomic ino_t ino; /* 0: not ours */
};

static struct id *_Atomic chunks[CHUNKS];

/* By system call, as other preloads stand before fstat: libfaketime's takes a lock that it removes before we exit. The
 * kernel's struct is the C library's where pointers have 64 bits. */
static int look(int fd, struct stat *st)
{
    return (int)syscall(SYS_fstat, fd, st);
}

static struct id *entry(int fd, int make)
{
    if (fd < 0 || fd >= CHUNK * CHUNKS)
        return NULL;
    struct id *_Atomic *slot = &chunks[fd / CHUNK], *chunk = atomic_load(slot);
    if (!chunk && make) {
        struct id *fresh = calloc(CHUNK, sizeof *fresh);
        if (fresh && atomic_compare_exchange_strong(slot, &chunk, fresh))
            chunk = fresh;
        else
            free(fresh);
    }
    return chunk ? &chunk[fd % CHUNK] : NULL;
}

/* By system call: what stands before close spares our numbers (hook_close.c). */
static int shut(int fd)
{
    return (int)syscall(SYS_close, fd);
}

static int is_taken(int fd)
{
    const struct id *id = entry(fd, 0);
    return id && atomic_load_explicit(&id->ino, memory_order_relaxed);
}

int swn_own(int fd)
{
    struct stat st;
    while (is_taken(fd)) {
        int next = fcntl(fd, F_DUPFD_CLOEXEC, fd + 1);
        if (next < 0)
            break; /* out of numbers: whoever lost this one finds this file there */
        shut(fd);
        fd = next;
    }
    struct id *id = entry(fd, 1);
    if (id && !look(fd, &st)) {
        atomic_store_explicit(&id->dev, st.st_dev, memory_order_relaxed);
        atomic_store_explicit(&id->ino, st.st_ino, memory_order_relaxed);
    }
    return fd;
}

int swn_owns(int fd)
{
    struct stat st;
    const struct id *id = entry(fd, 0);
    ino_t ino = id ? atomic_load_explicit(&id->ino, memory_order_relaxed) : 0;
    return !ino ||
           (!look(fd, &st) && st.st_ino == ino && st.st_dev == atomic_load_explicit(&id->dev, memory_order_relaxed));
}

int swn_own_first(int from, int to)
{
    if (to >= CHUNK * CHUNKS)
        to = CHUNK * CHUNKS - 1;
    for (int fd = from < 0 ? 0 : from; fd <= to; fd++) {
        if (!atomic_load(&chunks[fd / CHUNK]))
            fd |= CHUNK - 1;
        else if (is_taken(fd) && swn_owns(fd))
            return fd;
    }
    return -1;
}

int swn_own_close(int fd)
{
    struct id *id = entry(fd, 0);
    int ours = swn_owns(fd);
    /* First the entry: the number may be anybody's the moment it is closed. */
    if (id)
        atomic_store_explicit(&id->ino, 0, memory_order_relaxed);
    if (!ours)
        return -EBADF;
    return shut(fd) ? -errno : 0;
}
