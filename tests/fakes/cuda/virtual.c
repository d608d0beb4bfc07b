/* The driver's virtual memory management of the stand-in, which the runtime hands out by name. Addresses without memory
 * can be read by nobody: not by the processor, nor by a kernel. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fakes/cuda/standin_priv.h"

#define NOWHERE (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

/* CUmemAllocationProp */
struct property {
    int type, exported, location, device;
};

static int known = 1;

EXPORT void standin_virtual(int is_known)
{
    known = is_known;
}

static int attribute(int *value, int which, int device)
{
    standin_begin();
    *value = which == 102 && known && standin_virtual_memory();
    standin_end(OK);
    return device < 0 || device >= STANDIN_DEVICES ? INVALID : OK;
}

static int granularity(size_t *bytes, const struct property *p, int recommended)
{
    (void)recommended;
    *bytes = STANDIN_GRANULE;
    return p->type == 1 && p->location == 1 && p->device >= 0 && p->device < STANDIN_DEVICES ? OK : INVALID;
}

static int reserve(uint64_t *at, size_t bytes, size_t alignment, uint64_t hint, unsigned long long flags)
{
    standin_begin();
    if (!bytes || bytes % STANDIN_GRANULE || alignment || hint || flags || standin_made_to_fail())
        return standin_end(INVALID);
    struct memory *m = calloc(1, sizeof *m);
    *m = (struct memory){.kind = STANDIN_RESERVED,
                         .bytes = bytes,
                         .base = mmap(NULL, bytes, PROT_NONE, NOWHERE, -1, 0),
                         .view = mmap(NULL, bytes, PROT_NONE, NOWHERE, -1, 0),
                         .mapped = calloc(bytes / STANDIN_GRANULE, 1),
                         .next = standin_memories};
    m->device = m->base;
    standin_memories = m;
    *at = (uintptr_t)m->base;
    return standin_end(OK);
}

static int unreserve(uint64_t at, size_t bytes)
{
    standin_begin();
    struct memory *m = standin_find((void *)at, 1);
    if (!m || !m->mapped || m->base != (char *)at || m->bytes != bytes)
        return standin_end(INVALID);
    for (size_t i = 0; i < bytes / STANDIN_GRANULE; i++)
        if (m->mapped[i])
            standin_broken("addresses with memory are given back", m->base);
    munmap(m->base, bytes);
    munmap(m->view, bytes);
    standin_forget(m);
    return standin_end(OK);
}

static struct memory *physical(unsigned long long handle)
{
    struct memory *m = standin_memories;
    while (m && (m->kind != STANDIN_PHYSICAL || m->base != (char *)(uintptr_t)handle))
        m = m->next;
    return m;
}

static int create(unsigned long long *handle, size_t bytes, const struct property *p, unsigned long long flags)
{
    standin_begin();
    if (!bytes || bytes % STANDIN_GRANULE || p->type != 1 || flags || standin_full(bytes) || standin_made_to_fail())
        return standin_end(NO_MEMORY);
    struct memory *m = calloc(1, sizeof *m);
    int fd = memfd_create("standin", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes)) {
        free(m);
        return standin_end(NO_MEMORY);
    }
    /* Nobody finds it by an address: it has none, and no bytes. `attached`: it is mapped. */
    *m = (struct memory){.kind = STANDIN_PHYSICAL, .base = (char *)(uintptr_t)(fd + 1), .next = standin_memories};
    m->device = m->base;
    *handle = (uintptr_t)m->base;
    standin_memories = m;
    standin_changed++;
    standin_count((long long)bytes);
    return standin_end(OK);
}

static int release(unsigned long long handle)
{
    standin_begin();
    struct memory *m = physical(handle);
    if (!m)
        return standin_end(INVALID);
    if (m->attached)
        standin_broken("mapped memory is released", m->base);
    int fd = (int)handle - 1;
    standin_count(-(long long)lseek(fd, 0, SEEK_END));
    close(fd);
    standin_forget(m);
    return standin_end(OK);
}

static int map(uint64_t at, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags)
{
    const char *ms = getenv("STANDIN_MAP_MS");
    if (ms)
        usleep((unsigned)atoi(ms) * 1000);
    standin_begin();
    struct memory *m = standin_find((void *)at, 1), *p = physical(handle);
    size_t first = m ? (at - (uintptr_t)m->base) / STANDIN_GRANULE : 0;
    if (!m || !m->mapped || !p || bytes % STANDIN_GRANULE || at % 4096 || offset || flags || p->attached ||
        standin_made_to_fail())
        return standin_end(INVALID);
    for (size_t i = 0; i < bytes / STANDIN_GRANULE; i++)
        if (m->mapped[first + i])
            return standin_end(INVALID);
    if (mmap(m->view + (at - (uintptr_t)m->base), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle - 1, 0) ==
        MAP_FAILED)
        return standin_end(NO_MEMORY);
    memset(m->mapped + first, 1, bytes / STANDIN_GRANULE);
    p->attached = 1;
    p->view = m->view + (at - (uintptr_t)m->base);
    return standin_end(OK);
}

/* What is mapped there, all of it and nothing else. */
static struct memory *mapping(const char *view, size_t bytes)
{
    struct memory *p = standin_memories;
    while (p && (p->kind != STANDIN_PHYSICAL || !p->attached || p->view != view))
        p = p->next;
    return p && (size_t)lseek((int)(intptr_t)p->base - 1, 0, SEEK_END) == bytes ? p : NULL;
}

static int unmap(uint64_t at, size_t bytes)
{
    standin_begin();
    struct memory *m = standin_find((void *)at, 1);
    size_t off = m ? (size_t)(at - (uintptr_t)m->base) : 0;
    struct memory *p = m ? mapping(m->view + off, bytes) : NULL;
    if (!m || !m->mapped || !p || off + bytes > m->bytes || standin_made_to_fail())
        return standin_end(INVALID);
    if (mmap(m->view + off, bytes, PROT_NONE, NOWHERE | MAP_FIXED, -1, 0) == MAP_FAILED)
        return standin_end(NO_MEMORY);
    memset(m->mapped + off / STANDIN_GRANULE, 0, bytes / STANDIN_GRANULE);
    p->attached = 0;
    return standin_end(OK);
}

static int set_access(uint64_t at, size_t bytes, const int *access, size_t n)
{
    standin_begin();
    struct memory *m = standin_find((void *)at, 1);
    if (!m || !m->mapped || n != 1 || access[0] != 1 || access[1] < 0 || access[1] >= STANDIN_DEVICES ||
        access[2] != 3 || standin_made_to_fail() ||
        mprotect(m->view + (at - (uintptr_t)m->base), bytes, PROT_READ | PROT_WRITE))
        return standin_end(INVALID);
    return standin_end(OK);
}

EXPORT int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *how)
{
    static const struct {
        const char *name;
        void *function;
    } all[] = {
        {"cuDeviceGetAttribute", (void *)attribute},
        {"cuMemGetAllocationGranularity", (void *)granularity},
        {"cuMemAddressReserve", (void *)reserve},
        {"cuMemAddressFree", (void *)unreserve},
        {"cuMemCreate", (void *)create},
        {"cuMemRelease", (void *)release},
        {"cuMemMap", (void *)map},
        {"cuMemUnmap", (void *)unmap},
        {"cuMemSetAccess", (void *)set_access},
    };
    *function = NULL;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!strcmp(all[i].name, name) && !flags)
            *function = all[i].function;
    *how = *function ? 0 : 1;
    return OK;
}
