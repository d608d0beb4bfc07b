/* skeleton/core/fault.c - faults at addresses of tensors: those that are repaired, and those that end the program.
 * Async-signal-safe, as far as a path that ends the program has to be. */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "blocks/memory/transition.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/engine/subsystem.h"

#define FAULTS_IN_VAIN 10000 /* of one thread in a row, at one address: then the engine cannot repair it */

int swn_engine_trap(uintptr_t addr)
{
    static __thread uintptr_t last;
    static __thread unsigned in_vain;
    if (!swn_engine_running())
        return 0;
    if (addr != last)
        in_vain = 0;
    last = addr;
    int done = in_vain < FAULTS_IN_VAIN ? swn_residency_trap(&swn_engine_one.res, addr) : 0;
    in_vain = done == 2 ? 0 : in_vain + 1;
    return done != 0;
}

int swn_engine_mapped_unreadable(uintptr_t addr)
{
    struct swn_engine *e = &swn_engine_one;
    const struct swn_mapped_file *g = swn_engine_running() ? swn_arena_mapped_file(e->arena, addr) : NULL;
    if (!g)
        return 0;
    swn_say(
        "the program has mapped %s, which cannot be read at offset %llu any more: it was cut short, or the disk fails; "
        "ending the program, as its weights are gone",
        g->file->dir, (unsigned long long)(g->file_off + (addr - g->lo)));
    return 1;
}

int swn_engine_unreadable(uintptr_t addr)
{
    struct swn_engine *e = &swn_engine_one;
    if (!swn_engine_owns(addr))
        return 0;
    struct swn_range *r = swn_arena_find(e->arena, addr);
    char name[4200] = "its file";
    if (r && r->file)
        e->features.source->name(r->file, name, sizeof name);
    swn_say("block %u (offset %llu of %s) cannot be read from the disk; ending the program rather than computing with "
            "wrong weights",
            r ? r->id : 0, r ? (unsigned long long)r->extent : 0ull, name);
    return 1;
}

void swn_engine_corrupt(const struct swn_extent_file *file, uint32_t block, uint64_t off)
{
    struct swn_engine *e = &swn_engine_one;
    char name[4200];
    swn_say("block %u (offset %llu of %s) does not match its checksum; ending the program rather than computing with "
            "wrong weights. Remove that file: it is built again from the checkpoint",
            block, (unsigned long long)off, e->features.source->name(file, name, sizeof name));
    _exit(SWN_EXIT_UNREADABLE);
}

void swn_engine_unwritable(const struct swn_range *r, int err)
{
    char name[4200];
    swn_say(
        "what was stored in block %u (offset %llu of %s) cannot be written to the disk: %s; ending the program rather "
        "than computing with old bytes",
        r->id, (unsigned long long)r->extent, swn_engine_one.features.source->name(r->file, name, sizeof name),
        strerror(-err));
    _exit(SWN_EXIT_UNREADABLE);
}
