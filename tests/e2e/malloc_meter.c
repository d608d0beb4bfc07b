/* malloc_meter.c - a preload that counts calls of malloc, calloc, realloc and operator new from the libraries it is
 * told to watch, and changes nothing else. Memory that swapnet takes for PyTorch's tensors (posix_memalign) is not
 * counted.
 */
#define _GNU_SOURCE
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

#define MOST 4
static struct {
    uintptr_t lo, hi;
    _Atomic long calls;
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

long malloc_meter_count(int number)
{
    return atomic_load(&watched[number].calls);
}

static void count(const void *caller)
{
    for (int i = 0; i < atomic_load(&count_watched); i++)
        if ((uintptr_t)caller >= watched[i].lo && (uintptr_t)caller < watched[i].hi)
            atomic_fetch_add(&watched[i].calls, 1);
}

void *malloc(size_t n)
{
    count(__builtin_return_address(0));
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    count(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    count(__builtin_return_address(0));
    return __libc_realloc(p, n);
}

void *operator_new(size_t n) __asm__("_Znwm");
void *operator_new(size_t n)
{
    count(__builtin_return_address(0));
    void *p = __libc_malloc(n);
    if (!p)
        abort();
    return p;
}
