/* skeleton/device/device.c - see device.h. */
#define _GNU_SOURCE
#include "skeleton/engine/program_threads.h"
#include "skeleton/device/device.h"
#include "skeleton/device/pinned_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "skeleton/core/write_behind.h"
#include "skeleton/device/deferred_close.h"
#include "skeleton/device/swapper.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/load/load.h"
#include "base/size.h"
#include "base/thread.h"
#include "base/file_io.h"
#include "skeleton/device/unified.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/restore.h"
#include "skeleton/engine/section.h"

#define DEVICES 16
/* Where not all weights fit, the weights that come and go get another part, and room for this many of the largest. */
#define LARGEST 3
/* A card without a SWAPNET_DEVICE_BUDGET is left to PyTorch until only this part of its memory is free: then half of
 * that is for weights that come and go, and the rest for everything else that the program needs there. */
#define CROWDED 8
/* Another thread that installs the hook needs no lock of this one; if it ever waited for this thread, this limits the
 * wait. */
#define HOOK_WAIT_NS 250000000u

/* The properties of a device, determined when the first tensor went there. */
struct device {
    int known;
    struct swn_unified_traits traits;
    const struct swn_unified_backend *backend; /* NULL: it shares no memory with the host, or is not to */
    void *stream;                              /* the library's own, for buffers; NULL: there are no buffers */
    int swaps;                                 /* weights can come and go there, in this pool: */
    struct swn_devpool pool;
    struct swn_devswap *_Atomic swapper; /* NULL until one starts; users read it without a lock */
    size_t largest;                      /* largest weight that was to go there; guarded by the engine's lock */
    _Atomic size_t room;                 /* for weights in a card's memory; 0: it is not crowded, and has no budget */
};

/* The result of swn_device_open. */
struct swn_device_memory {
    struct device *device;
    struct swn_unified_block block;
    struct swn_devweight *weight; /* the weight, if it comes and goes, and then there is no block; or NULL */
    struct swn_range *pinned;     /* or NULL */
    uint32_t pinned_id;
    pid_t pid; /* a forked child has the descriptor, but neither the device nor the pin */
    /* For closing it: */
    struct swn_devclosing closing;
    void (*later)(void *owner, int err);
    void *owner;
};

static struct swn_cuda cuda;
static enum swn_config_unified wish;
static int found;

static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER; /* innermost lock */
static struct device devices[DEVICES];
static const struct swn_unified_backend *_Atomic newest; /* for the statistics, which must not wait for the driver */

static _Atomic uint64_t elided_bytes, copied_bytes;
static _Atomic uint64_t kept_bytes;
static _Atomic int said_room, said_bounce, said_kept;

/* Wakes all swappers, to check whether memory is wanted of them. */
static void wake(void)
{
    for (struct device *d = devices; d < devices + DEVICES; d++) {
        struct swn_devswap *s = d->swapper;
        if (s)
            swn_devswap_wake(s);
    }
}

int swn_device_start(const struct swn_config *config)
{
    wish = (enum swn_config_unified)config->unified;
    swn_pinned_cache_tell = wake;
    /* "off" concerns shared memory. A card's own memory is left alone as well, unless the user set a device budget. */
    if (wish == SWN_CONFIG_UNIFIED_OFF && !config->device_budget_bytes)
        return 0;
    int err = swn_cuda_find(&cuda), asked = wish != SWN_CONFIG_UNIFIED_AUTO || config->device_budget_bytes;
    void *none;
    if (err == -ENOSYS)
        swn_say("the CUDA runtime in this process lacks a function that is needed: what goes to devices is copied");
    else if (err && asked && swn_cuda_symbol("libc10_cuda", "", &none) != -ENOENT)
        swn_say(
            "there is no CUDA runtime in this process that can be used (libcudart, not one that is linked in): what "
            "goes to devices is copied");
    return found = !err;
}

/* Determines whether weights can come and go on the device. */
static void look_for_swaps(struct device *d, int index)
{
    const char *why = "";
    size_t budget = swn_engine_one.config.device_budget_bytes;
    char text[32];
    if (d->backend && d->backend->shares && !d->backend->pins)
        return;
    d->swaps = !swn_devpool_choose(&d->pool, index, d->backend, swn_threads_many(), swn_engine_one.budget.limit, &why);
    if (d->backend || !budget)
        return;
    atomic_store(&d->room, budget);
    if (!d->swaps)
        swn_say("device %d: %s: SWAPNET_DEVICE_BUDGET has no effect, and what goes there is copied", index, why);
    else if (swn_engine_one.config.verbose)
        swn_say("device %d: %s of its memory for weights, which come and go", index, swn_format_mib(text, budget));
}

/* Without this stream nothing can be handed over independently of the program's work. */
static void open_stream(struct device *d)
{
    int mode = swn_cuda_relax(&cuda);
    if (cuda.stream_create(&d->stream, SWN_CUDA_NON_BLOCKING)) {
        cuda.last_error();
        d->backend = NULL;
    }
    swn_cuda_restore(&cuda, mode);
}

static void look_at(struct device *d, int index)
{
    d->known = 1;
    int err = swn_unified_traits_get(&cuda, index, &d->traits);
    if (!err)
        d->backend = swn_unified_choose(&d->traits, wish);
    if (d->backend && !d->backend->shares)
        open_stream(d);
    if (d->backend)
        atomic_store(&newest, d->backend);
    if (d->backend && swn_engine_one.config.device_budget_bytes)
        swn_say("device %d shares the processor's memory: SWAPNET_DEVICE_BUDGET has no effect on it", index);
    look_for_swaps(d, index);
    if (!d->backend && wish != SWN_CONFIG_UNIFIED_AUTO && wish != SWN_CONFIG_UNIFIED_OFF)
        swn_say("device %d has no %s memory (SWAPNET_UNIFIED): what goes there is copied", index,
                swn_config_unified_name((int)wish));
    else if (swn_engine_one.config.verbose && (d->backend || !atomic_load(&d->room)))
        swn_say("device %d: %s%s", index, d->backend ? d->backend->name : "no",
                d->backend ? " memory"
                : d->swaps ? " unified memory: what goes there is copied, until its own is nearly full"
                           : " unified memory: what goes there is copied");
}

/* Whether a card without a device budget has no room for `bytes` more. PyTorch's unused memory on the card counts as
 * room. */
static int crowded(struct device *d, int index, size_t bytes)
{
    struct swn_engine *e = &swn_engine_one;
    char text[32];
    size_t left, all;
    if (e->config.device_budget_bytes)
        return 1;
    int mode = swn_cuda_relax(&cuda), err = cuda.memory_info(&left, &all);
    swn_cuda_restore(&cuda, mode);
    if (err) {
        cuda.last_error();
        return 0;
    }
    size_t least = bytes + all / CROWDED;
    if (left >= least || (e->torch && left + e->torch->device_idle(index) >= least))
        return 0;
    size_t room = all / CROWDED / 2, largest = LARGEST * bytes, most = left / 4 * 3;
    room = room > largest ? room : largest;
    room = room < most ? room : most;
    if (room < bytes)
        return 0;
    swn_lock(&devices_lock);
    int first = !atomic_load(&d->room);
    if (room > atomic_load(&d->room))
        atomic_store(&d->room, room);
    swn_unlock(&devices_lock);
    if (first)
        swn_say("device %d has no unified memory, and its own is nearly full: weights that go there from now on come "
                "and go in %s of it "
                "(SWAPNET_DEVICE_BUDGET says how much)",
                index, swn_format_mib(text, room));
    return 1;
}

/* NULL: the device shares no memory with the host, and nothing comes and goes there. */
static struct device *device_of(int index)
{
    if (!found || index < 0 || index >= DEVICES)
        return NULL;
    swn_lock(&devices_lock);
    struct device *d = &devices[index];
    if (!d->known)
        look_at(d, index);
    swn_unlock(&devices_lock);
    return d->backend || d->swaps ? d : NULL;
}

/* The range of the whole tensor at data; NULL: it is not the arena's, or is only a part of a range. */
static struct swn_range *whole(struct swn_engine *e, uintptr_t data, size_t bytes)
{
    struct swn_range *r = swn_arena_find(e->arena, data);
    return r && !r->mapped_file && r->addr == data && r->len == bytes ? r : NULL;
}

static int in_a_store(const struct swn_range *r)
{
    return atomic_load(&((struct swn_range *)r)->state) == SWN_FILE_BACKED && r->file->immutable;
}

/* Bytes of the budget for weights that come and go. */
static size_t wanted(const struct swn_engine *e, const struct device *d)
{
    size_t part = e->budget.target / SWN_DEVICE_OTHERS, most = LARGEST * d->largest;
    return most > part ? most : part;
}

/* Bytes that pinned memory must leave to other weights, to memory that comes and goes, and to its staging. The ring
 * counts as well: each of its frames can leave, but the memory that an operator uses at once needs some. */
static size_t set_aside(const struct swn_engine *e, const struct device *d)
{
    size_t part = e->budget.target / SWN_DEVICE_OTHERS + (e->pool ? e->plan.ring_goal : 0);
    return d->swaps ? part + wanted(e, d) + SWN_DEVPOOL_STAGES * d->pool.stage_bytes : part;
}

/* Engine lock held. A weight that comes and goes takes whole units. */
static void note_size(struct device *d, size_t bytes)
{
    size_t size = d->swaps ? swn_round_up(bytes, d->pool.unit) : bytes;
    d->largest = size > d->largest ? size : d->largest;
}

static int room(struct swn_engine *e, size_t bytes, struct device *d, const struct swn_range *spare)
{
    note_size(d, bytes);
    return swn_reclaim_try(e, bytes + set_aside(e, d), spare);
}

/* Whether there is room for a weight that cannot leave any more. */
static int stays(struct swn_engine *e, struct device *d, size_t bytes)
{
    swn_lock(&e->lock);
    int err = room(e, swn_round_up(bytes, SWN_PAGE), d, NULL);
    swn_unlock(&e->lock);
    return !err;
}

int swn_device_programs(uintptr_t data)
{
    struct swn_engine *e = &swn_engine_one;
    swn_lock(&e->lock);
    const struct swn_range *r = swn_arena_find(e->arena, data);
    int programs = r && swn_tensor_of(r)->registered; /* the program's own registration, whose kernels may write it */
    swn_unlock(&e->lock);
    return programs;
}

int swn_device_way(int device, uintptr_t data, size_t bytes, int parameter)
{
    struct swn_engine *e = &swn_engine_one;
    if (bytes < SWN_GRANULE)
        return SWN_WAY_COPY;
    struct swn_mapped_file *g = swn_arena_mapped_file(e->arena, data);
    swn_lock(&e->lock);
    struct swn_range *r = g ? NULL : whole(e, data, bytes);
    if (r)
        swn_write_behind_cancel(e, r);
    int registered = g ? data + bytes <= g->hi : r && in_a_store(r);
    swn_unlock(&e->lock);
    if (swn_device_programs(data) || (!registered && !(r && parameter)))
        return SWN_WAY_COPY;
    struct device *d = device_of(device); /* no call of CUDA before there is a weight to move */
    if (!d)
        return SWN_WAY_COPY;
    if (!d->backend && !crowded(d, device, bytes))
        return SWN_WAY_COPY;
    if (d->backend && !d->backend->shares && (!d->swaps || stays(e, d, bytes)))
        return SWN_WAY_BUFFER;
    return registered ? SWN_WAY_REFERENCE : SWN_WAY_ALIAS;
}

/* Makes the range resident for good. 0 or -errno. */
static int pin(struct swn_engine *e, struct swn_device_memory *m, uintptr_t data, size_t bytes)
{
    swn_lock(&e->lock);
    struct swn_range *r = whole(e, data, bytes);
    int err = r ? 0 : -EINVAL;
    if (!err) {
        swn_write_behind_cancel(e, r);
        swn_load_verify(e, r);
    }
    note_size(m->device, bytes);
    if (!err) /* resident memory counts already */
        err = room(e, atomic_load(&r->state) == SWN_FILE_BACKED ? swn_round_up(bytes, SWN_PAGE) : 0, m->device, r);
    if (!err)
        err = swn_restore_resident(e, r, 0);
    if (!err && atomic_load(&r->state) != SWN_RESIDENT)
        err = -EBUSY;
    if (!err) {
        r->pins++;
        swn_tensor_of(r)->on_device++;
        m->pinned = r;
        m->pinned_id = r->id;
    }
    swn_unlock(&e->lock);
    return err;
}

static void unpin(struct swn_engine *e, struct swn_device_memory *m)
{
    swn_lock(&e->lock);
    if (m->pinned && m->pinned->id == m->pinned_id) {
        m->pinned->pins--;
        swn_tensor_of(m->pinned)->on_device--;
    }
    swn_unlock(&e->lock);
}

/* Reads the range at data from its file straight into `to`. 0, or an error: then the tensor's own address has the
 * bytes. */
static int read_from_file(struct swn_engine *e, uintptr_t data, void *to, size_t bytes)
{
    struct swn_pages pages;
    swn_lock(&e->lock);
    struct swn_range *r = whole(e, data, bytes);
    struct swn_extent_file *file = r && in_a_store(r) ? r->file : NULL;
    if (file && (swn_residency_scan(&e->res, r, &pages) || pages.private_pages))
        file = NULL;
    uint64_t off = file ? r->extent : 0;
    if (file) {
        swn_load_verify(e, r);
        file->refs++;
    }
    swn_unlock(&e->lock);
    if (!file)
        return -ENOENT;
    struct swn_io_file own = {.fd = file->fetch.fd, .direct_fd = swn_open_direct(e->io, file->fetch.fd, O_RDONLY)};
    size_t size = swn_round_up(bytes, SWN_PAGE), got = 0;
    int direct = own.direct_fd >= 0, err = swn_read_blocks(e->io, &own, to, size, off, &got);
    if (own.direct_fd >= 0)
        e->io->close(e->io->ctx, own.direct_fd);
    swn_lock(&e->lock);
    file->refs--;
    swn_unlock(&e->lock);
    if (direct && (err || own.direct_fd < 0) && !atomic_exchange(&said_bounce, 1))
        swn_say("the kernel does not read from the disk straight into the device's buffers: what goes there is copied");
    return err ? err : got < bytes ? -ENODATA : 0;
}

static int open_buffer(struct swn_engine *e, struct swn_device_memory *m, uintptr_t data, size_t bytes)
{
    struct device *d = m->device;
    swn_lock(&e->lock);
    int err = room(e, m->block.bytes, d, NULL);
    swn_unlock(&e->lock);
    if (err || d->backend->open(&cuda, &d->traits, &m->block))
        return -ENOMEM;
    swn_devpool_count((long long)m->block.bytes);
    int from_file = !read_from_file(e, data, m->block.host, bytes);
    if (!from_file)
        memcpy(m->block.host, (const void *)data, bytes);
    swn_device_moved(from_file ? bytes : 0, from_file ? 0 : bytes);
    return d->backend->hand_over(&cuda, &d->traits, &m->block) ? -EIO : 0;
}

static int open_shared(struct swn_engine *e, struct swn_device_memory *m, uintptr_t data, size_t bytes)
{
    const struct device *d = m->device;
    m->block.host = (void *)data;
    int err = d->backend->pins ? pin(e, m, data, bytes) : 0;
    if (!err && d->backend->open(&cuda, &d->traits, &m->block))
        err = -EIO;
    if (err && m->pinned)
        unpin(e, m);
    return err;
}

/* Capacity in the card's memory, or in the host's. Engine lock held. */
static size_t capacity_of(const struct swn_engine *e, const struct device *d)
{
    size_t half = e->budget.target / 2, most = wanted(e, d);
    return !d->backend ? atomic_load(&d->room) : most < half ? most : half;
}

static struct swn_devswap *swapper_of(struct device *d, size_t capacity)
{
    swn_lock(&devices_lock);
    struct swn_devswap *s = d->swapper;
    if (!s && !swn_devswap_start(&s, &d->pool, capacity, d->backend != NULL))
        d->swapper = s;
    swn_unlock(&devices_lock);
    return s;
}

/* Opens memory that will come and go. 0 or -errno. */
static int open_weight(struct swn_engine *e, struct swn_device_memory *m, uintptr_t data, size_t bytes)
{
    struct device *d = m->device;
    swn_lock(&e->lock);
    struct swn_range *r = whole(e, data, bytes);
    note_size(d, bytes);
    size_t capacity = capacity_of(e, d);
    swn_unlock(&e->lock);
    struct swn_devswap *s = r ? swapper_of(d, capacity) : NULL;
    if (!s)
        return -EINVAL;
    swn_devswap_resize(s, capacity, 0);
    m->weight = swn_devswap_add(s, data, bytes, &m->block.device);
    return m->weight ? 0 : -ENOMEM;
}

static int open_resident(struct swn_engine *e, struct swn_device_memory *m, enum swn_way way, uintptr_t data,
                         size_t bytes)
{
    const struct swn_unified_backend *backend = m->device->backend;
    if (!backend || (!backend->shares && way != SWN_WAY_BUFFER))
        return -ENOMEM;
    int mode = swn_cuda_relax(&cuda);
    int err = backend->shares ? open_shared(e, m, data, bytes) : open_buffer(e, m, data, bytes);
    if (err && !backend->shares && m->block.host) {
        backend->close(&cuda, &m->block);
        swn_devpool_count(-(long long)m->block.bytes);
    }
    swn_cuda_restore(&cuda, mode);
    return err;
}

struct swn_device_memory *swn_device_open(int device, enum swn_way way, uintptr_t data, size_t bytes, void **address)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    struct device *d = device_of(device);
    struct swn_device_memory *m = d ? calloc(1, sizeof *m) : NULL;
    if (!m)
        return NULL;
    *m = (struct swn_device_memory){
        .device = d, .block = {.bytes = swn_round_up(bytes, SWN_PAGE), .stream = d->stream}, .pid = getpid()};
    int err = open_resident(e, m, way, data, bytes);
    if (err && d->swaps && way != SWN_WAY_BUFFER)
        err = open_weight(e, m, data, bytes);
    if (err) {
        free(m);
        if (!atomic_exchange(&said_room, 1))
            swn_say("%s: that weight, and others like it, are copied to the device",
                    err != -ENOMEM ? "the device does not take a weight's memory"
                    : d->backend   ? "no room in SWAPNET_BUDGET for a weight that the device is to share"
                                   : "no room in the device's memory that is for weights (SWAPNET_DEVICE_BUDGET)");
        return NULL;
    }
    *address = m->block.device;
    return m;
}

int swn_device_streams(const struct swn_device_memory *m)
{
    return !m->weight && m->device->backend->shares && !m->pinned;
}

int swn_device_swaps(const struct swn_device_memory *m)
{
    return m->weight != NULL;
}

static const char *why_not(int err)
{
    return err == -EBUSY    ? "with a second thread, which could keep the address of a weight that comes and goes,"
           : err == -ENOMEM ? "what one operator uses does not fit the room for weights, so"
                            : "a weight cannot be brought to the device, so";
}

int swn_device_begin(struct swn_device_memory *const *m, unsigned n, void *stream, void **addresses, int *captured)
{
    SWN_SECTION();
    struct swn_devweight *weights[SWN_OP_ARGS];
    int err = m[0]->pid == getpid() ? 0 : -ENODEV;
    for (unsigned i = 0; i < n; i++) {
        weights[i] = m[i]->weight;
        if (m[i]->device != m[0]->device)
            err = -EINVAL;
    }
    if (!err)
        err = swn_devswap_begin(weights, n, stream, addresses, captured);
    if (err && !atomic_exchange(&said_kept, 1))
        swn_say("%s weights are copied to the device to stay there, beyond the budget", why_not(err));
    return err;
}

void swn_device_end(struct swn_device_memory *const *m, unsigned n, void *stream, int captured)
{
    SWN_SECTION();
    struct swn_devweight *weights[SWN_OP_ARGS];
    for (unsigned i = 0; i < n; i++)
        weights[i] = m[i]->weight;
    if (m[0]->pid == getpid())
        swn_devswap_end(weights, n, stream, captured);
}

int swn_device_capturing(void *stream)
{
    return found && swn_cuda_capturing(&cuda, stream); /* a forked child has no streams */
}

int swn_device_held_up(void)
{
    return found && swn_cuda_capture_under_way(&cuda);
}

void *swn_device_stays(const struct swn_device_memory *m)
{
    return m->weight && m->pid == getpid() ? swn_devswap_stays(m->weight) : NULL;
}

int swn_device_pin(struct swn_device_memory *m, uintptr_t data, size_t bytes)
{
    SWN_SECTION();
    int err = pin(&swn_engine_one, m, data, bytes);
    if (err && !atomic_exchange(&said_kept, 1))
        swn_say(
            "no room in SWAPNET_BUDGET for a weight that a CUDA graph is to have the address of: it is copied to the "
            "device, as are others like it");
    return err;
}

void swn_device_aside(int begins)
{
    SWN_SECTION();
    static _Thread_local int mode;
    if (begins)
        mode = SWN_CUDA_CAPTURE_RELAXED;
    cuda.capture_mode(&mode);
}

void swn_device_kept(size_t bytes, const char *operator_name)
{
    atomic_fetch_add_explicit(&kept_bytes, bytes, memory_order_relaxed);
    if (operator_name && !atomic_exchange(&said_kept, 1))
        swn_say("%s may write a weight, or keep its address: it is copied to the device to stay there, beyond the "
                "budget, as are others like it",
                operator_name);
}

static struct swn_device_memory *memory_of(struct swn_devclosing *c)
{
    return (struct swn_device_memory *)((char *)c - offsetof(struct swn_device_memory, closing));
}

/* The closing thread has no current device to restore: choosing its initial device again would initialise that device,
 * which the program may never have used. */
static int close_now(struct swn_devclosing *c, int here)
{
    struct swn_device_memory *m = memory_of(c);
    int index = (int)(m->device - devices), current = index;
    if (swn_cuda_capture_under_way(&cuda))
        return -EAGAIN;
    int mode = swn_cuda_relax(&cuda), err = here ? cuda.get_device(&current) : 0;
    if (!err)
        err = cuda.set_device(index);
    if (!err)
        err = m->device->backend->close(&cuda, &m->block);
    if (current != index)
        cuda.set_device(current);
    swn_cuda_restore(&cuda, mode);
    return swn_cuda_refused_by_capture(err) ? -EAGAIN : err;
}

/* Frees m. */
static int closed(struct swn_device_memory *m, int err)
{
    if (!err && m->pinned)
        unpin(&swn_engine_one, m);
    if (!err && !m->device->backend->shares)
        swn_devpool_count(-(long long)m->block.bytes);
    free(m);
    return err > 0 ? -err : err;
}

static void closed_later(struct swn_devclosing *c, int err)
{
    struct swn_device_memory *m = memory_of(c);
    void (*later)(void *, int) = m->later;
    void *owner = m->owner;
    later(owner, closed(m, err));
}

int swn_device_close(struct swn_device_memory *m, void (*later)(void *owner, int err), void *owner)
{
    SWN_SECTION();
    if (m->pid != getpid() || m->weight) {
        if (m->pid == getpid())
            swn_devswap_remove(m->weight);
        free(m);
        return 0;
    }
    m->later = later;
    m->owner = owner;
    m->closing = (struct swn_devclosing){.close = close_now, .later = closed_later};
    int err;
    return swn_devclose(&m->closing, &err) ? 1 : closed(m, err);
}

/* A child cannot use a device that its parent has used. */
void swn_device_fork_child(void)
{
    pthread_mutex_init(&devices_lock, NULL);
    swn_devclose_fork_child();
    for (struct device *d = devices; d < devices + DEVICES; d++) {
        found &= !d->known;
        d->swapper = NULL; /* its lock may be held for ever */
    }
    swn_devswap_fork_child();
}

/* Bytes that the ring does not have at the moment, as its frames can leave. */
static size_t window_to_come(const struct swn_engine *e)
{
    size_t now = e->pool ? swn_pool_ring(e->pool) * swn_pool_unit(e->pool) + swn_pool_free_bytes(e->pool) : 0;
    return e->pool && e->plan.ring_goal > now ? e->plan.ring_goal - now : 0;
}

/* The rest of a budget that has grown, which goes to weights that had too little until now. */
static size_t left_over(struct swn_engine *e, size_t held)
{
    size_t others = swn_engine_resident(e) + window_to_come(e) + e->budget.target / SWN_DEVICE_OTHERS;
    others = others > held ? others - held : 0;
    return others < e->budget.target ? e->budget.target - others : 0;
}

void swn_device_follow_budget(void)
{
    struct swn_engine *e = &swn_engine_one;
    for (struct device *d = devices; d < devices + DEVICES; d++) {
        swn_lock(&devices_lock);
        struct swn_devswap *s = d->swapper && d->backend ? d->swapper : NULL;
        swn_unlock(&devices_lock);
        if (!s)
            continue;
        size_t held = swn_devswap_held(s);
        swn_lock(&e->lock);
        size_t capacity = capacity_of(e, d), left = left_over(e, held);
        swn_unlock(&e->lock);
        swn_devswap_resize(s, left > capacity ? left : capacity, 1);
    }
}

/* Only the hook sees in-place operators. */
int swn_device_watch(void)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    if (atomic_load(&e->life.hook_state) == 2)
        return 1;
    atomic_store(&e->life.want_hook, 1);
    swn_engine_after_alloc();
    /* Several loader threads come here together, and one of them installs it. */
    uint64_t until = swn_now_ns() + HOOK_WAIT_NS;
    while (atomic_load(&e->life.hook_state) == 1 && swn_now_ns() < until)
        usleep(100);
    return atomic_load(&e->life.hook_state) == 2;
}

void swn_device_moved(size_t elided, size_t copied)
{
    SWN_SECTION();
    atomic_fetch_add_explicit(&elided_bytes, elided, memory_order_relaxed);
    atomic_fetch_add_explicit(&copied_bytes, copied, memory_order_relaxed);
}

void swn_device_given_up(void)
{
    SWN_SECTION();
    swn_say("compiled code runs, whose writes nobody announces: the weights that the device shared are copied to it");
}

void swn_device_refused(const char *why)
{
    SWN_SECTION();
    static _Atomic int said;
    if (!atomic_exchange(&said, 1))
        swn_say("%s: what goes to devices is copied", why);
}

void swn_device_lost(const char *what, const char *why)
{
    SWN_SECTION();
    swn_say("%s cannot be given memory of its own: %s; ending the program rather than computing with wrong weights",
            what, why);
    _exit(SWN_EXIT_UNREADABLE);
}

void swn_device_stats(struct swn_stats *out)
{
    out->unified_elided_bytes = atomic_load(&elided_bytes);
    out->unified_copied_bytes = atomic_load(&copied_bytes);
    uint64_t rooms = 0;
    for (struct device *d = devices; d < devices + DEVICES; d++)
        rooms += d->backend ? 0 : atomic_load(&d->room);
    uint64_t budget = swn_engine_one.config.device_budget_bytes;
    out->device_budget_bytes = budget ? budget : rooms;
    out->device_kept_bytes = atomic_load(&kept_bytes);
    swn_devswap_stats(out);
    const struct swn_unified_backend *b = atomic_load(&newest);
    out->unified = b ? b->name : wish == SWN_CONFIG_UNIFIED_OFF ? "off" : "none";
}
