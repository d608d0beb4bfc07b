/* shim/hooks/next_symbol.c - see next_symbol.h. */
#define _GNU_SOURCE
#include "shim/hooks/next_symbol.h"

#include <dlfcn.h>
#include <stddef.h>

void *swn_real_lookup(const char *name, void **cache)
{
    void *f = __atomic_load_n(cache, __ATOMIC_ACQUIRE);
    if (!f) {
        f = dlsym(RTLD_NEXT, name);
        __atomic_store_n(cache, f, __ATOMIC_RELEASE);
    }
    return f;
}
