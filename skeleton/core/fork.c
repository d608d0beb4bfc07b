/* skeleton/core/fork.c - before a fork the engine comes to rest, with its lock held; the child's engine has no threads,
 * no pool and no file of its own yet. */
#define _GNU_SOURCE
#include <unistd.h>

#include "blocks/memory/publish.h"
#include "base/fd_registry.h"
#include "base/thread.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/core/held_pages.h"
#include "skeleton/core/prefault.h"
#include "skeleton/engine/subsystem.h"
#include "skeleton/core/write_behind.h"
#include "skeleton/core/op_window.h"
#include "skeleton/core/plan.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/engine/section.h"

/* --- fork --- */

void swn_engine_prefork(void)
{
    struct swn_engine *e = &swn_engine_one;
    if (!swn_engine_running())
        return;
    /* Outside the lock: reads in flight end in fetch_done, which takes the lock. */
    struct swn_fetch *fetch = __atomic_load_n(&e->fetch, __ATOMIC_ACQUIRE);
    if (fetch)
        swn_fetch_pause(fetch);
    swn_lock(&e->lock);
    swn_write_behind_drain(e);
    swn_residency_tidy(&e->res); /* or frames that freed weights left mapped would be holes in the child */
    if (e->trace)
        swn_trace_flush(e->trace);
    struct swn_pages pages;
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next)
        if (r->shared)
            swn_unshare(e, r); /* later writes belong to the parent or the child alone */
        else if (atomic_load(&r->state) == SWN_FILE_BACKED &&
                 swn_residency_unmapped(&e->res, r) < swn_round_up(r->len, SWN_PAGE) &&
                 (!swn_fd_is_ours(r->file->fetch.fd) || swn_residency_scan(&e->res, r, &pages) || pages.private_pages))
            /* The child gets a fresh mapping for it: private copies must not be lost, nor what may be one as no page
             * map tells, and a file that the program has closed cannot be mapped again. */
            swn_make_resident(e, r, 0);
    e->res.fork_epoch++;
    e->life.fork_paused = fetch;
}

void swn_engine_postfork_parent(void)
{
    struct swn_engine *e = &swn_engine_one;
    if (!swn_engine_running())
        return;
    struct swn_fetch *fetch = e->life.fork_paused;
    swn_unlock(&e->lock);
    if (fetch)
        swn_fetch_resume(fetch);
}

void swn_engine_postfork_child(void)
{
    struct swn_engine *e = &swn_engine_one;
    if (!swn_engine_running())
        return;
    swn_section_fork_child();
    SWN_SECTION(); /* what is mapped here over a file's mapping is not the program's doing */
    swn_thread_fork_child();
    swn_engine_init_sync(e);
    SWN_EACH_SUBSYSTEM (s, fork_child)
        s->fork_child(e);
    swn_write_behind_fork_child(e);
    swn_prefault_fork_child(&e->prefault);
    swn_window_fork_child(e);
    swn_residency_child(&e->res);
    e->pool = NULL;
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next) {
        r->pins = r->receiving = swn_tensor_of(r)->readers = swn_tensor_of(r)->on_device = r->filling = 0;
    }
    swn_held_fork_child(e);
    if (e->fetch)
        swn_fetch_abandon(e->fetch);
    if (e->trace)
        swn_trace_abandon(e->trace);
    e->fetch = NULL;
    e->trace = NULL;
    /* The parent's spill file stays open: the child's ranges are mapped and fetched from it. The child makes its own
     * file on demand. */
    if (e->writes.spill) {
        e->writes.spill->next = e->writes.full;
        e->writes.full = e->writes.spill;
    }
    e->writes.spill = e->res.spill = NULL;
    e->writes.spilled_before = 0;
    e->disk.row_bytes = e->disk.row_ns = 0;
    e->disk.row_waiters = 0;
    e->plan.planned = 0;
    e->plan.dirty = 1;
    e->life.forked = 1; /* the statistics file is the parent's */
    e->life.pid = getpid();
}
