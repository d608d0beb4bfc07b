/* alloc_meter.c - a preload that counts PyTorch's CPU tensor bytes and changes nothing else.
 *
 * It wraps c10::alloc_cpu and c10::free_cpu, as swapnet does, so that "tensor bytes" means the same in a plain run. The
 * program reads the counters with ctypes. Sizes come from malloc_usable_size, which is what the process really holds.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

void *c10_alloc_cpu(size_t nbytes) __asm__("_ZN3c109alloc_cpuEm");
void c10_free_cpu(void *data) __asm__("_ZN3c108free_cpuEPv");

static _Atomic long live_bytes, peak_bytes;

long alloc_meter_peak(void)
{
    return atomic_load(&peak_bytes);
}

void alloc_meter_reset_peak(void)
{
    atomic_store(&peak_bytes, atomic_load(&live_bytes));
}

/* libc10 is loaded by Python with local scope, where RTLD_NEXT does not look: the caller's own library and what it
 * depends on is asked instead. */
static void *real_symbol(const void *caller, const char *name)
{
    Dl_info info;
    void *library = dladdr(caller, &info) ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *symbol = library ? dlsym(library, name) : NULL;
    if (!symbol) {
        fprintf(stderr, "alloc_meter: no %s behind %s\n", name, library ? info.dli_fname : "the caller");
        abort();
    }
    return symbol;
}

void *c10_alloc_cpu(size_t nbytes)
{
    static void *(*real)(size_t);
    if (!real)
        real = (void *(*)(size_t))real_symbol(__builtin_return_address(0), "_ZN3c109alloc_cpuEm");
    void *data = real(nbytes);
    long size = (long)malloc_usable_size(data);
    long live = atomic_fetch_add(&live_bytes, size) + size;
    long peak = atomic_load(&peak_bytes);
    while (live > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, live))
        ;
    return data;
}

void c10_free_cpu(void *data)
{
    static void (*real)(void *);
    if (!real)
        real = (void (*)(void *))real_symbol(__builtin_return_address(0), "_ZN3c108free_cpuEPv");
    atomic_fetch_sub(&live_bytes, (long)malloc_usable_size(data));
    real(data);
}
