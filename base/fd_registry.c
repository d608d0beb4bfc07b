/* base/fd_registry.c - see fd_registry.h. */
#define _GNU_SOURCE
#include "base/fd_registry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define CHUNK 256
#define CHUNKS 4096 /* a million numbers; descriptors above are not registered */

#define LOST ((ino_t)-1)

/* The library never uses a number twice at once, so an entry has one writer at a time; but any thread may find that the
 * descriptor is lost. */
struct id {
    _Atomic dev_t dev;
    _Atomic ino_t ino; /* 0: not ours; LOST: it was ours, and the library never uses that number again */
    /* A page of the file, mapped without access, or NULL. It keeps the inode of an unnamed file in use after the
     * program has closed the descriptor; otherwise the next new file would get the same inode. */
    void *_Atomic pin;
};

static struct id *_Atomic chunks[CHUNKS];

/* By system call, as other preloads may interpose fstat: libfaketime's takes a lock that libfaketime destroys before
 * the library exits. The kernel's struct stat is the C library's where pointers have 64 bits. */
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

/* By system call: the interposed close refuses the library's numbers (shim/hooks/hook_close.c). */
static int shut(int fd)
{
#ifdef __SANITIZE_THREAD__ /* which must know that the number may be another file's from here on; no hook is there */
    return close(fd);
#else
    return (int)syscall(SYS_close, fd);
#endif
}

static int is_taken(int fd)
{
    const struct id *id = entry(fd, 0);
    return id && atomic_load_explicit(&id->ino, memory_order_relaxed);
}

/* By system calls, as the shim interposes these functions, too. */
static void pin(struct id *id, int fd)
{
    void *page = (void *)syscall(SYS_mmap, NULL, PAGE, PROT_NONE, MAP_PRIVATE, fd, (off_t)0);
    atomic_store(&id->pin, page == MAP_FAILED ? NULL : page);
}

static void unpin(struct id *id)
{
    void *page = atomic_exchange(&id->pin, NULL);
    if (page)
        syscall(SYS_munmap, page, PAGE);
}

static int matches(const struct id *id, int fd, ino_t ino)
{
    struct stat st;
    return !look(fd, &st) && st.st_ino == ino && st.st_dev == atomic_load_explicit(&id->dev, memory_order_relaxed);
}

int swn_fd_registry(int fd)
{
    struct stat st;
    /* The file must not have the number of a standard stream: a program that closes 0 expects that its next open
     * returns 0. */
    while (fd >= 0 && (fd <= STDERR_FILENO || is_taken(fd))) {
        int next = fcntl(fd, F_DUPFD_CLOEXEC, fd < STDERR_FILENO ? STDERR_FILENO + 1 : fd + 1);
        if (next < 0)
            break; /* no numbers left: a thread that lost the old number may then reach this file */
        shut(fd);
        fd = next;
    }
    struct id *id = entry(fd, 1);
    if (id && !look(fd, &st)) {
        atomic_store_explicit(&id->dev, st.st_dev, memory_order_relaxed);
        /* Last: a thread that sees the inode must see its device. */
        atomic_store_explicit(&id->ino, st.st_ino, memory_order_release);
        if (S_ISREG(st.st_mode))
            pin(id, fd);
    }
    return fd;
}

int swn_fd_is_ours(int fd)
{
    struct id *id = entry(fd, 0);
    ino_t ino = id ? atomic_load(&id->ino) : 0;
    if (!ino || (ino != LOST && matches(id, fd, ino)))
        return 1;
    if (atomic_compare_exchange_strong(&id->ino, &ino, LOST))
        unpin(id);
    return 0;
}

/* Changes nothing: after vfork the descriptors are the child's, but the memory is the parent's. */
static int is_ours(int fd)
{
    const struct id *id = entry(fd, 0);
    ino_t ino = id ? atomic_load(&id->ino) : 0;
    return ino && ino != LOST && matches(id, fd, ino);
}

int swn_fd_registry_first(int from, int to)
{
    if (to >= CHUNK * CHUNKS)
        to = CHUNK * CHUNKS - 1;
    for (int fd = from < 0 ? 0 : from; fd <= to; fd++) {
        if (!atomic_load(&chunks[fd / CHUNK]))
            fd |= CHUNK - 1;
        else if (is_ours(fd))
            return fd;
    }
    return -1;
}

int swn_fd_registry_close(int fd)
{
    struct id *id = entry(fd, 0);
    int ours = swn_fd_is_ours(fd);
    /* The entry goes first: another thread may get the number the moment it is closed. */
    if (id) {
        atomic_store(&id->ino, 0);
        unpin(id);
    }
    if (!ours)
        return -EBADF;
    return shut(fd) ? -errno : 0;
}
