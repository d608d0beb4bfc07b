#define _GNU_SOURCE
#include "skeleton/core/engine.h"

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
#include "skeleton/core/engine_internal.h"
#include "skeleton/budget/daemon_client.h"
#include "skeleton/device/pinned_cache.h"
#include "skeleton/device/device.h"
#include "skeleton/core/overwrite.h"
#include "skeleton/tiling/fill.h"
#include "skeleton/budget/memory_governor.h"
#include "skeleton/load/mapped_file.h"
#include "base/io_record_locks.h"
#include "skeleton/load/load.h"
#include "base/fd_registry.h"
#include "skeleton/core/prefault.h"
#include "skeleton/observe/profile_record.h"
#include "skeleton/device/host_register.h"
#include "blocks/memory/reserve.h"
#include "base/size.h"
#include "scheduler/protocol/stats_json.h"
#include "base/thread.h"
#include "base/errmsg.h"

#define ARENA_BYTES ((size_t)64 << 30)
#define FAULTS_IN_VAIN 10000 /* of one thread in a row, at one address: then it is not one that we can repair */

struct swn_engine swn_engine_one = {.lock = PTHREAD_MUTEX_INITIALIZER};
const struct swn_io *swn_engine_io = &swn_io_sys;

uint64_t swn_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* One write(2), so that lines of several processes do not mix; never stdio, whose locks a fork may have left taken. */
void swn_say(const char *format, ...)
{
    char line[1200] = "swapnet: ";
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line + 9, sizeof line - 10, format, args);
    va_end(args);
    swn_one_line(line); /* others chose the names of files */
    size_t len = n < 0 ? 9 : 9 + ((size_t)n < sizeof line - 11 ? (size_t)n : sizeof line - 11);
    line[len++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, len);
    (void)ignored;
}

size_t swn_engine_resident(struct swn_engine *e)
{
    long long small = atomic_load(&e->small_bytes);
    return e->res.home_bytes + swn_arena_warm_bytes(e->arena) + (e->pool ? swn_pool_bytes(e->pool) : 0) +
           (small > 0 ? (size_t)small : 0) + swn_devcopy_bytes() - swn_load_expected_bytes(e);
}

void swn_engine_note_peak(struct swn_engine *e)
{
    size_t now = swn_engine_resident(e), other = swn_policy_other(e), held = swn_policy_other_held(e);
    if (now > e->peak_resident)
        e->peak_resident = now;
    if (e->node_live && other > e->other_peak_ever)
        e->other_peak_ever = other;
    if (held > e->other_peak) {
        e->other_peak = held;
        /* The plan gave weights what activations turn out to need. */
        if (e->planned && !e->settling && held > e->planned_other + e->planned_other / 16 + SWN_GRANULE)
            e->plan_dirty = 1;
    }
}

static void init_sync(struct swn_engine *e)
{
    pthread_mutex_init(&e->lock, NULL);
    swn_cond_init(&e->changed);
}

static void fill_stats(void *user, struct swn_stats *out)
{
    (void)user;
    swn_engine_stats(out);
}

static void start_control(struct swn_engine *e)
{
    struct swn_control_opts opts = {.fill = fill_stats, .set = swn_client_set, .user = e};
    if (swn_control_start(&e->control, &opts))
        e->control = NULL; /* no directory for it: status does not list us, nothing else is lost */
}

size_t swn_engine_mapped_bytes(void)
{
    char text[32] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    return n > 0 ? strtoull(text, NULL, 10) * SWN_PAGE : 0;
}

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

int swn_engine_start(const struct swn_config *config, char *why, size_t why_size)
{
    struct swn_engine *e = &swn_engine_one;
    long page = sysconf(_SC_PAGESIZE);
    if (page != (long)SWN_PAGE) {
        /* Extents lie at multiples of ours, and could not be mapped; entries of the page map would be other pages'. */
        snprintf(why, why_size, "this kernel has pages of %ld bytes; swapnet works where they have %zu", page,
                 SWN_PAGE);
        return -ENOTSUP;
    }
    if (swn_reserve_all_locked()) {
        snprintf(why, why_size, "the program has locked its memory (mlockall), and what is locked cannot leave it");
        return -ENOTSUP;
    }
    e->config = *config;
    if (config->daemon_path[0]) /* until the daemon says otherwise, invariant 12 */
        e->config.budget_bytes = swn_budget_unasked(config->budget_bytes);
    e->goal_bytes = e->config.budget_bytes;
    e->cap_bytes = config->budget_bytes;
    e->urgency = config->urgency > 0 ? config->urgency : 1;
    static struct swn_io io;
    swn_keep_locks(&io, swn_engine_io);
    e->io = &io;
    absolute(e->config.store_dir, sizeof e->config.store_dir);
    absolute(e->config.stats_path, sizeof e->config.stats_path);
    absolute(e->config.trace_path, sizeof e->config.trace_path);
    absolute(e->config.profile_path, sizeof e->config.profile_path);
    if (strcmp(e->config.disk_path, "off") != 0)
        absolute(e->config.disk_path, sizeof e->config.disk_path);
    init_sync(e);
    int err = swn_spill_open(&e->spill, e->io, e->config.store_dir);
    if (err) {
        snprintf(why, why_size,
                 "cannot write to the store directory %s: %s; set SWAPNET_STORE to a directory on a disk with room",
                 e->config.store_dir, strerror(-err));
        return err;
    }
    swn_queue_look_up(e);
    e->arena_bytes = arena_bytes();
    err = swn_arena_create(&e->arena, e->arena_bytes);
    if (!err)
        err = swn_order_create(&e->order);
    if (err) {
        snprintf(why, why_size, "cannot reserve address space for tensors: %s; raise ulimit -v", strerror(-err));
        return err;
    }
    e->arena_bytes = swn_arena_hi(e->arena) - swn_arena_lo(e->arena);
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
    e->res.spill = e->spill;
    e->pid = getpid();
    if (e->config.trace_path[0] && (err = swn_trace_open(&e->trace, e->config.trace_path))) {
        swn_say("cannot write the trace file %s: %s; going on without", e->config.trace_path, strerror(-err));
        e->trace = NULL;
    }
    if (e->config.profile_path[0]) {
        if (swn_record_create(&e->record))
            swn_say("no memory for a profile; going on without");
        atomic_store(&e->want_hook, 1); /* also where everything fits */
    }
    swn_slice_set_least(e);
    start_control(e);
    atomic_store(&e->running, 1);
    return 0;
}

int swn_engine_running(void)
{
    return atomic_load_explicit(&swn_engine_one.running, memory_order_acquire);
}

void swn_engine_set_half(const struct swn_half *half)
{
    swn_engine_one.half = half;
}

void swn_engine_host(struct swn_host *out)
{
    struct swn_engine *e = &swn_engine_one;
    *out = (struct swn_host){.abi = SWN_ATEN_ABI,
                             .lo = swn_arena_lo(e->arena),
                             .hi = swn_arena_hi(e->arena),
                             .mapped = swn_guest_bounds,
                             .count_flops = e->record != NULL,
                             .op_begin = swn_engine_op_begin,
                             .op_end = swn_engine_op_end,
                             .slices_offer = swn_slice_offer,
                             .slices_wanted = swn_slice_wanted,
                             .slices_least = swn_slice_least,
                             .slices_list = swn_slice_list,
                             .slices_refused = swn_slice_refused,
                             .slice_lend = swn_slice_lend,
                             .trial_map = swn_trial_map,
                             .trial_unmap = swn_trial_unmap,
                             .trial_fold = swn_trial_fold,
                             .trial_room = swn_trial_room,
                             .copy_room = swn_slice_copy_room,
                             .rows_copy = swn_rows_copy,
                             .fill_begin = swn_fill_begin,
                             .fill_next = swn_fill_next,
                             .fill_end = swn_fill_end,
                             .afresh_begin = swn_afresh_begin,
                             .afresh_end = swn_afresh_end,
                             .device_way = swn_device_way,
                             .device_open = swn_device_open,
                             .device_streams = swn_device_streams,
                             .device_close = swn_device_close,
                             .device_swaps = swn_device_swaps,
                             .device_begin = swn_device_begin,
                             .device_end = swn_device_end,
                             .device_capturing = swn_device_capturing,
                             .device_held_up = swn_device_held_up,
                             .device_programs = swn_device_programs,
                             .device_kept = swn_device_kept,
                             .device_stays = swn_device_stays,
                             .device_pin = swn_device_pin,
                             .device_aside = swn_device_aside,
                             .device_watch = swn_device_watch,
                             .device_moved = swn_device_moved,
                             .device_given_up = swn_device_given_up,
                             .device_refused = swn_device_refused,
                             .device_lost = swn_device_lost};
    if (swn_device_start(&e->config))
        out->device_type = e->config.device == SWN_CONFIG_CUDA ? SWN_DEVICE_CUDA : SWN_DEVICE_PRIVATEUSEONE;
}

/* Of a tensor of n bytes at its planned place, or wherever there is one. */
static size_t fresh_bytes(const struct swn_engine *e, const struct swn_place *place, size_t n, enum swn_term term)
{
    return place ? swn_plot_fresh(place->plot, place->at, n) : swn_arena_fresh(e->arena, n, term);
}

static size_t kept_frames(const struct swn_engine *e)
{
    return e->pool ? swn_pool_kept(e->pool) : 0;
}

void *swn_engine_alloc(size_t n, int *strict)
{
    struct swn_engine *e = &swn_engine_one;
    *strict = 0;
    if (atomic_load(&e->retired))
        return NULL;
    pthread_mutex_lock(&e->lock);
    e->allocs++;
    swn_residency_tidy(&e->res);
    swn_load_expect_no_more(e, 0);
    int expected = swn_load_expected(e, n);
    int alone = n > e->config.budget_bytes && e->config.enforce && !expected; /* makes room for itself, below */
    if (!alone && !expected)
        swn_devcopy_vacate(e, swn_round_up(n, SWN_GRANULE));
    struct swn_thread_state *t = alone || expected ? NULL : swn_window_self();
    if (e->record && swn_record_alloc(e) && t)
        swn_window_lost(t);
    struct swn_place place;
    int placed = swn_places_find(e, t, n, &place);
    const struct swn_thread_state *self = swn_window_self();
    enum swn_term term = self && self->open ? SWN_SHORT_TERM : SWN_LONG_TERM;
    int counts = !alone && !expected;
    size_t need = counts ? fresh_bytes(e, placed ? &place : NULL, n, term) : 0;
    size_t kept = kept_frames(e), wanted = swn_policy_other_held(e);
    if (counts && !placed) /* a place is held already */
        wanted += swn_round_up(n, SWN_GRANULE);
    int over = swn_policy_make_room(e, need, NULL); /* also with need 0: small tensors may have grown meanwhile */
    if (!over && counts &&
        fresh_bytes(e, placed ? &place : NULL, n, term) > need) /* the warm pages were what had to go */
        over = swn_policy_make_room(e, swn_round_up(n, SWN_GRANULE), NULL);
    if (e->planned && kept_frames(e) < kept)
        swn_policy_note_shortage(e, wanted);
    if (over && e->config.strict) {
        *strict = 1;
        pthread_mutex_unlock(&e->lock);
        return NULL;
    }
    size_t fresh;
    struct swn_range *r = placed ? swn_plot_alloc(e->arena, place.plot, place.at, n, &fresh) : NULL;
    if (r) {
        e->placed += r->size;
        e->plots_rough |= fresh != 0;
    } else {
        r = swn_arena_alloc(e->arena, n, term, &fresh);
        if (r && fresh && !alone && !expected)
            swn_residency_fresh(&e->res, r);
    }
    if (r) {
        e->filled += alone ? 0 : fresh;
        swn_places_born(t, r);
        r->alloc_seq = r->last_use = e->seq;
        r->untouched = fresh != 0;
        e->res.home_bytes += r->size;
        e->live_bytes += swn_round_up(n, SWN_PAGE);
        if (e->live_bytes > e->demand_peak)
            e->demand_peak = e->live_bytes;
        if (e->live_bytes > e->live_recent)
            e->live_recent = e->live_bytes;
        if (expected)
            swn_load_expecting(e, r, fresh);
        if (alone && swn_policy_share(e, r))
            swn_policy_make_room(e, 0, r);
        swn_engine_note_peak(e);
    } else {
        e->untracked += n;
    }
    void *p = r ? (void *)r->addr : NULL;
    pthread_mutex_unlock(&e->lock);
    return p;
}

/* Activations die young and their pages are worth keeping for the next one; a weight's are not. */
static int worth_keeping_warm(struct swn_engine *e, const struct swn_range *r)
{
    /* Until something has had to leave, all that fits; the plan leaves room for the most that activations ever took. */
    size_t most = e->config.budget_bytes / (e->pressed ? 4 : 1), other = swn_policy_other(e) - r->size;
    if (e->planned && e->planned_other > other && e->planned_other - other > most)
        most = e->planned_other - other;
    if (atomic_load(&((struct swn_range *)r)->state) != SWN_HOME || r->node >= 0 || atomic_load(&e->retired))
        return 0;
    if (r->held) /* the kernel may not have taken the bytes out of them yet */
        return 0;
    /* Room for a plot is planned for. What small tensors exceed the budget by is no reason to let all of this go: the
     * next allocation takes what it has to. */
    if (r->plotted)
        return 1;
    if (r->aged_reads || swn_engine_resident(e) + r->span > e->config.budget_bytes + r->size)
        return 0;
    /* What has gone just now is more likely to be made again than what is left over since some earlier pass. */
    size_t warm = swn_arena_warm_bytes(e->arena);
    struct swn_piece piece;
    while (warm + r->span > most && warm < most && swn_arena_trim(e->arena, warm + r->span - most, &piece)) {
        swn_residency_drop(&e->res, piece.addr, piece.bytes);
        e->dropped += piece.bytes;
        warm -= piece.bytes;
    }
    return warm + r->span <= most;
}

void swn_engine_drop(struct swn_engine *e, struct swn_range *r)
{
    swn_behind_recall(e, r);
    struct swn_chunks chunks = swn_residency_chunks(&e->res, r);
    e->live_bytes -= swn_round_up(r->len, SWN_PAGE);
    int warm = worth_keeping_warm(e, r);
    e->dropped += !warm && atomic_load(&r->state) == SWN_HOME ? r->size : 0;
    swn_residency_free(&e->res, r, warm);
    swn_swapin_reap(e, &chunks);
}

int swn_engine_free(void *p)
{
    struct swn_engine *e = &swn_engine_one;
    if (!swn_engine_owns((uintptr_t)p))
        return 0;
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = swn_arena_find(e->arena, (uintptr_t)p);
    if (r && r->addr == (uintptr_t)p) {
        if (r->pins && e->populate) /* its operator gave the storage other memory */
            swn_populate_end(e->populate, r->addr);
        swn_load_expect_freed(e, r);
        swn_places_died(r);
        swn_node_remove(e, r);
        if (!swn_registered_keeps(r))
            swn_engine_drop(e, r);
    }
    pthread_mutex_unlock(&e->lock);
    return 1;
}

void swn_engine_count_small(long long bytes)
{
    atomic_fetch_add_explicit(&swn_engine_one.small_bytes, bytes, memory_order_relaxed);
}

/* The hook costs every operator a little, so it is installed when the first range leaves, not before. */
void swn_engine_install_hook(void)
{
    struct swn_engine *e = &swn_engine_one;
    if (!atomic_load_explicit(&e->want_hook, memory_order_relaxed))
        return;
    int none = 0;
    if (!e->half || !atomic_compare_exchange_strong(&e->hook_state, &none, 1))
        return;
    const char *refused = e->half->enable();
    if (refused)
        swn_say("cannot watch PyTorch's operators: %s; weights stay where they are and the budget is not kept",
                refused);
    atomic_store(&e->hook_state, refused ? 3 : 2);
    atomic_store(&e->want_hook, 0);
}

void swn_engine_after_alloc(void)
{
    swn_client_after_fork();
    swn_engine_install_hook();
}

int swn_engine_owns(uintptr_t addr)
{
    struct swn_engine *e = &swn_engine_one;
    return swn_engine_running() && addr >= swn_arena_lo(e->arena) && addr < swn_arena_hi(e->arena);
}

static void pin(const void *p, size_t n, int by)
{
    struct swn_engine *e = &swn_engine_one;
    uintptr_t at = (uintptr_t)p, end = at + n;
    pthread_mutex_lock(&e->lock);
    while (at < end) {
        struct swn_range *r = swn_arena_find(e->arena, at);
        if (r) {
            swn_behind_recall(e, r);
            r->pins += by;
        }
        at = r ? r->addr + r->span : (at / SWN_GRANULE + 1) * SWN_GRANULE;
    }
    pthread_mutex_unlock(&e->lock);
}

void swn_engine_pin(const void *p, size_t n)
{
    pin(p, n, 1);
}

void swn_engine_unpin(const void *p, size_t n)
{
    pin(p, n, -1);
}

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
    const struct swn_guest *g = swn_engine_running() ? swn_arena_guest(e->arena, addr) : NULL;
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
        swn_load_name(r->file, name, sizeof name);
    swn_say("block %u (offset %llu of %s) cannot be read from the disk; ending the program rather than computing with "
            "wrong weights",
            r ? r->id : 0, r ? (unsigned long long)r->extent : 0ull, name);
    return 1;
}

void swn_engine_corrupt(const struct swn_extent_file *file, uint32_t block, uint64_t off)
{
    char name[4200];
    swn_say("block %u (offset %llu of %s) does not match its checksum; ending the program rather than computing with "
            "wrong weights. Remove that file: it is built again from the checkpoint",
            block, (unsigned long long)off, swn_load_name(file, name, sizeof name));
    _exit(SWN_EXIT_UNREADABLE);
}

/* --- fork --- */

void swn_engine_prefork(void)
{
    struct swn_engine *e = &swn_engine_one;
    if (!swn_engine_running())
        return;
    /* Outside the lock: what is in flight ends in fetch_done, which takes it. */
    struct swn_fetch *fetch = __atomic_load_n(&e->fetch, __ATOMIC_ACQUIRE);
    if (fetch)
        swn_fetch_pause(fetch);
    pthread_mutex_lock(&e->lock);
    swn_behind_drain(e);
    if (e->trace)
        swn_trace_flush(e->trace);
    struct swn_pages pages;
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next)
        if (r->shared)
            swn_residency_unshare(&e->res, r); /* what is written from now on is the parent's or the child's alone */
        else if (atomic_load(&r->state) == SWN_STREAMED &&
                 swn_residency_unmapped(&e->res, r) < swn_round_up(r->len, SWN_PAGE) &&
                 (!swn_owns(r->file->fetch.fd) || (!swn_residency_scan(&e->res, r, &pages) && pages.own)))
            /* The child gets a fresh mapping for it: private copies must not be lost, and of a file that the program
             * has closed there are no more mappings. */
            swn_policy_home(e, r, 0);
    e->res.fork_epoch++;
    e->fork_paused = fetch;
}

void swn_engine_postfork_parent(void)
{
    struct swn_engine *e = &swn_engine_one;
    if (!swn_engine_running())
        return;
    struct swn_fetch *fetch = e->fork_paused;
    pthread_mutex_unlock(&e->lock);
    if (fetch)
        swn_fetch_resume(fetch);
}

void swn_engine_postfork_child(void)
{
    struct swn_engine *e = &swn_engine_one;
    if (!swn_engine_running())
        return;
    swn_thread_fork_child();
    init_sync(e);
    swn_load_fork_child();
    swn_device_fork_child();
    swn_behind_fork_child(e);
    swn_populate_fork_child(&e->populate);
    if (e->record)
        swn_record_fork_child(e->record);
    swn_window_fork_child(e);
    swn_trial_fork_child(e);
    swn_rows_fork_child(e);
    swn_residency_child(&e->res);
    e->pool = NULL;
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next) {
        r->pins = r->readers = r->on_device = r->filling = 0;
    }
    swn_registered_fork_child(e);
    if (e->fetch)
        swn_fetch_abandon(e->fetch);
    if (e->control)
        swn_control_abandon(e->control);
    if (e->trace)
        swn_trace_abandon(e->trace);
    e->fetch = NULL;
    e->control = NULL;
    e->trace = NULL;
    /* The parent's spill file stays open: our ranges are mapped from it and are fetched from it. Ours is made on
     * demand. */
    e->spill = e->res.spill = NULL;
    e->spilled_before = 0;
    swn_budget_fork_child(e);
    swn_client_fork_child(e);
    swn_follower_fork_child(e);
    e->row_bytes = e->row_ns = 0;
    e->row_waiters = 0;
    e->planned = 0;
    e->plan_dirty = 1;
    e->forked = 1; /* the statistics file is the parent's */
    e->pid = getpid();
}

/* --- seeing it --- */

void swn_engine_stats(struct swn_stats *out)
{
    struct swn_engine *e = &swn_engine_one;
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&e->lock);
    out->pid = (uint64_t)e->pid;
    out->budget_bytes = e->goal_bytes;
    out->minimum_bytes = swn_policy_minimum(e);
    out->urgency = e->urgency;
    out->demand_bytes = e->demand_peak;
    out->resident_bytes = swn_engine_resident(e);
    out->peak_resident_bytes = e->peak_resident > out->resident_bytes ? e->peak_resident : out->resident_bytes;
    size_t kept = e->pool ? swn_pool_kept(e->pool) * swn_pool_unit(e->pool) : 0;
    out->pool_bytes = e->pool ? swn_pool_bytes(e->pool) - kept : 0;
    out->kept_bytes = kept + e->node_home_bytes;
    long long small = atomic_load(&e->small_bytes);
    out->small_bytes = small > 0 ? (uint64_t)small : 0;
    struct swn_fetch_stats fetch = {0};
    if (e->fetch)
        swn_fetch_stats_get(e->fetch, &fetch);
    out->streamed_bytes = fetch.bytes;
    out->encoded_bytes = atomic_load(&e->encoded_bytes);
    for (int how = 0; how < SWN_ENCODINGS; how++)
        out->decoded_bytes += atomic_load(&e->decoded_bytes[how]);
    out->spilled_bytes = swn_policy_written(e);
    out->deferred_bytes = e->deferred;
    out->swap_ins = e->swap_ins;
    out->window_hits = e->window_hits;
    out->window_misses = e->window_misses;
    out->stall_ns = e->stall_ns;
    out->filled_bytes = e->filled;
    out->dropped_bytes = e->dropped;
    out->placed_bytes = e->placed;
    out->slices = e->slices;
    out->rows = e->rows;
    out->stray_reads = e->res.stray_pages;
    out->over_budget_bytes = e->over_budget_peak;
    out->untracked_bytes = e->untracked;
    for (struct swn_thread_state *t = e->threads; t; t = t->next)
        out->passes += t->cursor.passes;
    out->read_errors = e->read_errors;
    out->plans = e->plans;
    out->plan_looks = e->drift.looks;
    out->plan_budget_bytes = e->in_force.goal;
    out->plan_since_ns = e->plan_since_ns;
    out->budget_since_ns = e->goal_since_ns;
    out->bound_ns = e->bound_ns;
    out->in_flight_ns = swn_budget_in_flight_ns(e);
    out->fetch_path = e->fetch ? swn_fetch_path_name(swn_fetch_path_now(e->fetch)) : "none";
    out->torch_version = e->half ? e->half->version : "unknown";
    out->state = e->goal_bytes < e->config.budget_bytes ? "shrinking" : "running";
    out->name = e->config.name[0] ? e->config.name : program_invocation_short_name;
    out->daemon_socket = swn_client_daemon(e);
    swn_device_stats(out);
    pthread_mutex_unlock(&e->lock);
}

/* At exit. Nothing is taken down: other threads may still compute. */
void swn_engine_exit(void)
{
    struct swn_engine *e = &swn_engine_one;
    if (!swn_engine_running() || e->pid != getpid())
        return;
    if (e->config.stats_path[0] && !e->forked) {
        struct swn_stats stats;
        swn_engine_stats(&stats);
        int err = swn_stats_write_file(&stats, e->config.stats_path);
        if (err)
            swn_say("cannot write the statistics file %s: %s", e->config.stats_path, strerror(-err));
    }
    if (e->record && !e->forked) {
        int err = swn_record_save(e);
        if (err)
            swn_say("cannot write the profile %s: %s", e->config.profile_path, strerror(-err));
    }
    swn_load_exit();
    pthread_mutex_lock(&e->lock);
    struct swn_trace *trace = e->trace;
    e->trace = NULL;
    pthread_mutex_unlock(&e->lock);
    swn_trace_close(trace);
    swn_control_stop(e->control);
}
