/* skeleton/core/engine.c - starts and ends the engine of the process, and fills in the runtime services for the torch
 * backend. */
#define _GNU_SOURCE
#include "skeleton/engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "skeleton/core/write_behind.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/core/expected_read.h"
#include "skeleton/core/overwrite.h"
#include "skeleton/engine/reclaim.h"
#include "skeleton/engine/subsystem.h"
#include "base/io_record_locks.h"
#include "base/fd_registry.h"
#include "skeleton/core/prefault.h"
#include "blocks/memory/reserve.h"
#include "base/size.h"
#include "scheduler/protocol/stats_json.h"
#include "base/thread.h"
#include "base/errmsg.h"
#include "skeleton/core/fetch_setup.h"
#include "skeleton/core/op_window.h"
#include "skeleton/core/plan.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/engine/section.h"

#define ARENA_BYTES ((size_t)64 << 30)

static size_t arena_bytes(void)
{
    struct rlimit lim;
    if (getrlimit(RLIMIT_AS, &lim) || lim.rlim_cur == RLIM_INFINITY)
        return ARENA_BYTES;
    size_t used = swn_engine_mapped_bytes(), left = lim.rlim_cur > used ? lim.rlim_cur - used : 0;
    size_t part = left / SWN_SPACE_PART;
    return part < ARENA_BYTES ? part / SWN_GRANULE * SWN_GRANULE : ARENA_BYTES;
}

static void absolute(char *path, size_t size)
{
    char cwd[PATH_MAX], whole[2 * PATH_MAX];
    if (!path[0] || path[0] == '/' || !getcwd(cwd, sizeof cwd))
        return;
    snprintf(whole, sizeof whole, "%s/%s", cwd, path);
    if (strlen(whole) < size)
        strcpy(path, whole);
}

/* Whether memory of this process can come and go at all: 0, or -ENOTSUP with a text. */
static int refuse_surroundings(char *why, size_t why_size)
{
    long page = sysconf(_SC_PAGESIZE);

    if (page != (long)SWN_PAGE) {
        /* Extents lie at multiples of 4096, and could not be mapped; entries of the page map would belong to other
         * pages. */
        snprintf(why, why_size, "this kernel has pages of %ld bytes; swapnet works where they have %zu", page,
                 SWN_PAGE);
        return -ENOTSUP;
    }
    if (swn_reserve_all_locked()) {
        snprintf(why, why_size, "the program has locked its memory (mlockall), and what is locked cannot leave it");
        return -ENOTSUP;
    }
    return 0;
}

static void configure(struct swn_engine *e, const struct swn_config *config)
{
    e->config = *config;
    e->budget.limit = config->budget_bytes;
    if (config->daemon_path[0]) /* until the daemon gives a lease, invariant 12 */
        e->budget.limit = swn_budget_unasked(config->budget_bytes);
    e->budget.target = e->budget.limit;
    e->budget.user_cap = config->budget_bytes;
    e->budget.urgency = config->urgency > 0 ? config->urgency : 1;
    absolute(e->config.store_dir, sizeof e->config.store_dir);
    absolute(e->config.stats_path, sizeof e->config.stats_path);
    absolute(e->config.trace_path, sizeof e->config.trace_path);
    absolute(e->config.profile_path, sizeof e->config.profile_path);
    if (strcmp(e->config.disk_path, "off") != 0)
        absolute(e->config.disk_path, sizeof e->config.disk_path);
}

int swn_engine_start(const struct swn_config *config, char *why, size_t why_size)
{
    static struct swn_io io;
    struct swn_engine *e = &swn_engine_one;
    int err = refuse_surroundings(why, why_size);
    if (err)
        return err;
    configure(e, config);
    swn_keep_locks(&io, swn_engine_io);
    e->io = &io;
    swn_engine_init_sync(e);
    err = swn_open_spill(e);
    if (err) {
        snprintf(why, why_size,
                 "cannot write to the store directory %s: %s; set SWAPNET_STORE to a directory on a disk with room",
                 e->config.store_dir, strerror(-err));
        return err;
    }
    swn_queue_look_up(e);
    err = swn_arena_create(&e->arena, arena_bytes(), sizeof(struct swn_tensor));
    if (!err)
        err = swn_access_order_create(&e->weights.order);
    if (err) {
        snprintf(why, why_size, "cannot reserve address space for tensors: %s; raise ulimit -v", strerror(-err));
        return err;
    }
    err = swn_residency_init(&e->res, e->io, e->arena);
    if (err) {
        if (err == -EBADMSG)
            snprintf(why, why_size,
                     "/proc/self/pagemap does not tell which pages have been written; stores into "
                     "weights would be lost");
        else
            snprintf(why, why_size, "cannot use /proc/self/pagemap: %s; it is needed to see which weights were written",
                     strerror(-err));
        return err;
    }
    e->res.spill = e->writes.spill;
    e->life.pid = getpid();
    if (e->config.trace_path[0] && (err = swn_trace_open(&e->trace, e->config.trace_path))) {
        swn_say("cannot write the trace file %s: %s; going on without", e->config.trace_path, strerror(-err));
        e->trace = NULL;
    }
    SWN_EACH_SUBSYSTEM (s, start)
        s->start(e);
    SWN_EACH_SUBSYSTEM (s, budget_changed)
        s->budget_changed(e);
    atomic_store(&e->life.running, 1);
    return 0;
}

void swn_engine_set_torch(const struct swn_torch_backend *backend)
{
    swn_engine_one.torch = backend;
}

void swn_engine_services(struct swn_runtime_services *out)
{
    struct swn_engine *e = &swn_engine_one;
    *out = (struct swn_runtime_services){.abi = SWN_ATEN_ABI,
                                         .lo = swn_arena_lo(e->arena),
                                         .hi = swn_arena_hi(e->arena),
                                         .mapped = swn_mapped_bounds,
                                         .count_flops = e->features.record != NULL,
                                         .op_begin = swn_engine_op_begin,
                                         .op_end = swn_engine_op_end,
                                         .afresh_begin = swn_afresh_begin,
                                         .afresh_end = swn_afresh_end};
    SWN_EACH_SUBSYSTEM (s, services)
        s->services(e, out);
}

/* The hook costs every operator some time, so it is installed when the first range leaves, not before. */
void swn_engine_install_hook(void)
{
    struct swn_engine *e = &swn_engine_one;
    if (!atomic_load_explicit(&e->life.want_hook, memory_order_relaxed))
        return;
    int none = 0;
    if (!e->torch || !atomic_compare_exchange_strong(&e->life.hook_state, &none, 1))
        return;
    const char *refused = e->torch->enable();
    if (refused)
        swn_say("cannot watch PyTorch's operators: %s; weights stay where they are and the budget is not kept",
                refused);
    atomic_store(&e->life.hook_state, refused ? 3 : 2);
    atomic_store(&e->life.want_hook, 0);
}

void swn_engine_after_alloc(void)
{
    SWN_EACH_SUBSYSTEM (s, unlocked)
        s->unlocked();
    swn_engine_install_hook();
}

/* At exit. Nothing is taken down: other threads may still compute. Where a signal handler calls exit, and has
 * interrupted a section, the locks that are wanted here may be this thread's own: nothing is written then. */
void swn_engine_exit(void)
{
    struct swn_engine *e = &swn_engine_one;
    if (!swn_engine_running() || e->life.pid != getpid() || swn_section_interrupted())
        return;
    if (e->config.stats_path[0] && !e->life.forked) {
        struct swn_stats stats;
        swn_engine_stats(&stats);
        int err = swn_stats_write_file(&stats, e->config.stats_path);
        if (err)
            swn_say("cannot write the statistics file %s: %s", e->config.stats_path, strerror(-err));
    }
    SWN_EACH_SUBSYSTEM (s, exit)
        s->exit(e);
    swn_lock(&e->lock);
    struct swn_trace *trace = e->trace;
    e->trace = NULL;
    swn_unlock(&e->lock);
    swn_trace_close(trace);
}
