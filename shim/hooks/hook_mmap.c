/* mmap and munmap, for files that PyTorch maps to take tensors from. All other calls go straight to the kernel:
 * allocators call mmap, and looking up the next definition there could call the allocator again. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "skeleton/engine/engine.h"
#include "skeleton/load/mapped_file.h"
#include "shim/hooks/next_symbol.h"

#define EXPORT __attribute__((visibility("default")))

static int torch_maps_tensors(const void *caller, int prot, int flags, int fd)
{
    if (fd < 0 || prot != (PROT_READ | PROT_WRITE) ||
        (flags & (MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS)) != MAP_PRIVATE || !swn_engine_running())
        return 0;
    return strstr(swn_library_of(caller), "libtorch_cpu") != NULL;
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
    void *at = (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);
    if (at != MAP_FAILED && torch_maps_tensors(caller, prot, flags, fd)) {
        int saved = errno;
        swn_mapped_file_begin(at, len, fd, off);
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

EXPORT int munmap(void *addr, size_t len)
{
    swn_mapped_file_end(addr, len);
    return (int)syscall(SYS_munmap, addr, len);
}
