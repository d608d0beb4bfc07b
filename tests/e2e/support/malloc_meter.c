/* malloc_meter.c - a preload that counts by which libraries, of those it is told to watch, memory is asked for: malloc
 * and its kin, every operator new, mmap and munmap. It changes nothing else. Of swapnet's own calls of posix_memalign
 * each is a small tensor of PyTorch's, so these count apart.
 *
 * It has to come first of all preloads, or it does not see what swapnet maps.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);

enum { HEAP, MAPS, TENSORS, KINDS };

#define MOST 4
static struct {
    uintptr_t lo, hi;
    _Atomic long calls[KINDS];
} watched[MOST];
static _Atomic int count_watched;

static int find(struct dl_phdr_info *info, size_t size, void *part)
{
    (void)size;
    int n = atomic_load(&count_watched);
    if (n == MOST || !strstr(info->dlpi_name, part))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
            continue;
        watched[n].lo = info->dlpi_addr + p->p_vaddr;
        watched[n].hi = watched[n].lo + p->p_memsz;
        atomic_store(&count_watched, n + 1);
        return 1;
    }
    return 0;
}

/* A library whose path has this part is watched from now on, the first one as number 0. 1: there is one. */
int malloc_meter_watch(const char *part)
{
    return dl_iterate_phdr(find, (void *)(uintptr_t)part);
}

/* kind 0: heap, 1: mmap and munmap, 2: posix_memalign. */
long malloc_meter_count(int number, int kind)
{
    return atomic_load(&watched[number].calls[kind]);
}

static void count(const void *caller, int kind)
{
    for (int i = 0; i < atomic_load(&count_watched); i++)
        if ((uintptr_t)caller >= watched[i].lo && (uintptr_t)caller < watched[i].hi)
            atomic_fetch_add(&watched[i].calls[kind], 1);
}

#define COUNT(kind) count(__builtin_return_address(0), kind)

void *malloc(size_t n)
{
    COUNT(HEAP);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    COUNT(HEAP);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    COUNT(HEAP);
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t alignment, size_t n)
{
    COUNT(HEAP);
    return __libc_memalign(alignment, n);
}

int posix_memalign(void **out, size_t alignment, size_t n)
{
    COUNT(TENSORS);
    void *p = __libc_memalign(alignment, n);
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

static void *or_abort(void *p)
{
    if (!p)
        abort();
    return p;
}

#define NEW(name, symbol)                                                                                              \
    void *name(size_t n) __asm__(symbol);                                                                              \
    void *name(size_t n)                                                                                               \
    {                                                                                                                  \
        COUNT(HEAP);                                                                                                   \
        return or_abort(__libc_malloc(n ? n : 1));                                                                     \
    }
#define NEW_ALIGNED(name, symbol)                                                                                      \
    void *name(size_t n, size_t alignment) __asm__(symbol);                                                            \
    void *name(size_t n, size_t alignment)                                                                             \
    {                                                                                                                  \
        COUNT(HEAP);                                                                                                   \
        return or_abort(__libc_memalign(alignment, n ? n : 1));                                                        \
    }
#define NEW_OR_NULL(name, symbol)                                                                                      \
    void *name(size_t n, const void *nothrow) __asm__(symbol);                                                         \
    void *name(size_t n, const void *nothrow)                                                                          \
    {                                                                                                                  \
        (void)nothrow;                                                                                                 \
        COUNT(HEAP);                                                                                                   \
        return __libc_malloc(n ? n : 1);                                                                               \
    }
NEW(one, "_Znwm")
NEW(several, "_Znam")
NEW_ALIGNED(one_aligned, "_ZnwmSt11align_val_t")
NEW_ALIGNED(several_aligned, "_ZnamSt11align_val_t")
NEW_OR_NULL(one_or_null, "_ZnwmRKSt9nothrow_t")
NEW_OR_NULL(several_or_null, "_ZnamRKSt9nothrow_t")

/* What stands behind us has its own wrappers of these. */
static void *(*next_mmap)(void *, size_t, int, int, int, off_t);
static int (*next_munmap)(void *, size_t);

__attribute__((constructor)) static void look_behind(void)
{
    *(void **)&next_mmap = dlsym(RTLD_NEXT, "mmap");
    *(void **)&next_munmap = dlsym(RTLD_NEXT, "munmap");
}

void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
    COUNT(MAPS);
    return next_mmap ? next_mmap(addr, len, prot, flags, fd, off)
                     : (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);
}

int munmap(void *addr, size_t len)
{
    COUNT(MAPS);
    return next_munmap ? next_munmap(addr, len) : (int)syscall(SYS_munmap, addr, len);
}
