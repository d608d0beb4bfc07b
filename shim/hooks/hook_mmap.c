/* mmap, mremap, munmap and madvise, for files that PyTorch, or Python, maps to take tensors from. All other calls go
 * straight to the kernel: allocators call mmap, and looking up the next definition there could call the allocator
 * again. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "skeleton/engine/engine.h"
#include "skeleton/load/mapped_file.h"
#include "shim/hooks/next_symbol.h"

/* Of Linux 5.18; newer than the C library's headers. */
#define DONTNEED_LOCKED 24
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4 /* of Linux 5.7 */
#endif
#define EXPORT __attribute__((visibility("default")))

static int may_have_tensors(int prot, int flags, int fd)
{
    return fd >= 0 && prot == (PROT_READ | PROT_WRITE) &&
           (flags & (MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS)) == MAP_PRIVATE && swn_engine_running();
}

/* Python's mmap module is a library of its own (mmap.cpython-311-x86_64-linux-gnu.so), or a part of the interpreter,
 * whose other mappings are of no file. The main executable has no name as a library. */
static int is_python(const char *library)
{
    char exe[PATH_MAX];
    ssize_t len = *library ? 0 : readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (len > 0) {
        exe[len] = 0;
        library = exe;
    }
    const char *slash = strrchr(library, '/'), *name = slash ? slash + 1 : library;
    return !strncmp(name, "mmap.", 5) || !strncmp(name, "libpython", 9) || !strncmp(name, "python", 6);
}

static void note_file(const void *caller, void *at, size_t len, int fd, off_t off)
{
    const char *library = swn_library_of(caller);
    if (strstr(library, "libtorch_cpu"))
        swn_mapped_file_begin(at, len, fd, off);
    else if (is_python(library))
        swn_mapped_file_of_program(at, len, fd, off);
}

/* safetensors maps a file once for its header, before PyTorch maps it for the tensors. The kernel's read-ahead around
 * that header took 8 MiB of weights. */
static int looks_at_a_file(int prot, int flags, int fd, off_t off)
{
    return fd >= 0 && !off && prot == PROT_READ && (flags & (MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS)) == MAP_PRIVATE;
}

static void *map(void *addr, size_t len, int prot, int flags, int fd, off_t off, const void *caller)
{
    if (looks_at_a_file(prot, flags, fd, off)) {
        int saved = errno;
        swn_mapped_file_looking(len, fd);
        errno = saved;
    }
    if (flags & MAP_FIXED) {
        int saved = errno;
        swn_mapped_file_end_kept(addr, len);
        errno = saved;
    }
    void *at = (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);
    if (at != MAP_FAILED && may_have_tensors(prot, flags, fd)) {
        int saved = errno;
        note_file(caller, at, len, fd, off);
        errno = saved;
    }
    return at;
}

EXPORT void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
    return map(addr, len, prot, flags, fd, off, __builtin_return_address(0));
}

EXPORT void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t off)
{
    return map(addr, len, prot, flags, fd, off, __builtin_return_address(0));
}

/* Where the engine has put weights over a mapping of a file, the kernel sees memory of no file: it would give zeros for
 * pages that are dropped, and allow what files do not. */
EXPORT int madvise(void *addr, size_t len, int advice)
{
    int err = 0;
    if (advice == MADV_DONTNEED || advice == DONTNEED_LOCKED) {
        int saved = errno;
        err = -swn_mapped_file_drop(addr, len);
        errno = saved;
    } else if ((advice == MADV_FREE || advice == MADV_WIPEONFORK) && swn_mapped_file_is_at(addr, len)) {
        err = EINVAL;
    }
    if (err) {
        errno = err;
        return -1;
    }
    return (int)syscall(SYS_madvise, addr, len, advice);
}

/* Other memory may lie at either address afterwards. */
EXPORT void *mremap(void *old, size_t old_len, size_t len, int flags, ...)
{
    void *to = NULL;
    int saved = errno;
    va_list args;
    va_start(args, flags);
    if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP))
        to = va_arg(args, void *);
    va_end(args);
    swn_mapped_file_end_kept(old, old_len);
    if (flags & MREMAP_FIXED)
        swn_mapped_file_end_kept(to, len);
    errno = saved;
    return (void *)syscall(SYS_mremap, old, old_len, len, flags, to);
}

EXPORT int munmap(void *addr, size_t len)
{
    swn_mapped_file_end(addr, len);
    return (int)syscall(SYS_munmap, addr, len);
}
