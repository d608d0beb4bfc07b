/* shim/hooks/next_symbol.c - see next_symbol.h. */
#define _GNU_SOURCE
#include "shim/hooks/next_symbol.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>

void *swn_next_symbol(const char *name, struct swn_next_symbol *cache)
{
    if (!__atomic_load_n(&cache->asked, __ATOMIC_ACQUIRE)) {
        void *f = dlsym(RTLD_NEXT, name);
        __atomic_store_n(&cache->found, f, __ATOMIC_RELAXED);
        __atomic_store_n(&cache->asked, 1, __ATOMIC_RELEASE);
    }
    return __atomic_load_n(&cache->found, __ATOMIC_RELAXED);
}

struct library {
    uintptr_t code;
    const char *name;
};

static int is_there(struct dl_phdr_info *info, size_t size, void *out)
{
    struct library *library = out;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && library->code - (info->dlpi_addr + p->p_vaddr) < p->p_memsz) {
            library->name = info->dlpi_name;
            return 1;
        }
    }
    return 0;
}

#ifdef DLFO_STRUCT_HAS_EH_DBASE /* glibc 2.35: takes no lock at all */
typedef int (*find_object_fn)(void *, struct dl_find_object *);
static find_object_fn find_object;

/* By name, so that the library needs no newer C library than the program. */
__attribute__((constructor)) static void look_up_find_object(void)
{
    *(void **)&find_object = dlsym(RTLD_DEFAULT, "_dl_find_object");
}

static int found_without_lock(struct library *library)
{
    struct dl_find_object found;
    if (!find_object)
        return 0;
    if (!find_object((void *)library->code, &found) && found.dlfo_link_map)
        library->name = found.dlfo_link_map->l_name;
    return 1;
}
#else
static int found_without_lock(struct library *library)
{
    (void)library;
    return 0;
}
#endif

const char *swn_library_of(const void *p)
{
    struct library library = {.code = (uintptr_t)p, .name = ""};
    if (!found_without_lock(&library))
        dl_iterate_phdr(is_there, &library); /* the lock of this one is held by dlopen and dlclose for moments only */
    return library.name;
}
