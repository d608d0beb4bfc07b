#define _GNU_SOURCE
#include "swn_device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "swn_behind.h"
#include "swn_engine_priv.h"
#include "swn_load.h"
#include "swn_transfer.h"
#include "swn_unified.h"

#define DEVICES 16
/* What may not leave takes no more than leaves so much of the budget to everything else. */
#define OTHERS 8 /* one part in so many */

/* What a device was found to be when the first tensor went there. */
struct device {
    int known;
    struct swn_unified_traits traits;
    const struct swn_unified_backend *backend;
};

/* What swn_device_open gave out. */
struct swn_device_memory {
    struct device *device;
    struct swn_unified_block block;
    struct swn_range *pinned; /* or NULL */
    uint32_t pinned_id;
    pid_t pid; /* a forked child has the descriptor, but neither the device nor the pin */
};

static struct swn_cuda cuda;
static enum swn_config_unified wish;
static int found;

static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER; /* after which no other is taken */
static struct device devices[DEVICES];
static const struct swn_unified_backend *newest; /* for the statistics */

static _Atomic uint64_t elided_bytes, copied_bytes;
static _Atomic int said_room, said_bounce;

int swn_device_start(const struct swn_config *config)
{
    wish = config->unified;
    found = wish != SWN_CONFIG_UNIFIED_OFF && !swn_cuda_find(&cuda);
    return found;
}

static void look_at(struct device *d, int index)
{
    d->known = 1;
    int err = swn_unified_traits_get(&cuda, index, &d->traits);
    if (!err)
        d->backend = swn_unified_choose(&d->traits, wish);
    if (d->backend)
        newest = d->backend;
    if (!d->backend && wish != SWN_CONFIG_UNIFIED_AUTO)
        swn_say("device %d has no %s memory (SWAPNET_UNIFIED): what goes there is copied", index,
                swn_config_unified_name(wish));
    else if (swn_engine_one.config.verbose)
        swn_say("device %d: %s%s", index, d->backend ? d->backend->name : "no",
                d->backend ? " memory" : " unified memory: what goes there is copied");
}

/* NULL: it shares no memory with us. */
static struct device *device_of(int index)
{
    if (!found || index < 0 || index >= DEVICES)
        return NULL;
    pthread_mutex_lock(&devices_lock);
    struct device *d = &devices[index];
    if (!d->known)
        look_at(d, index);
    pthread_mutex_unlock(&devices_lock);
    return d->backend ? d : NULL;
}

/* The whole tensor at data, or its first piece; NULL: it is not the arena's, or not all of what is there. */
static struct swn_range *whole(struct swn_engine *e, uintptr_t data, size_t bytes)
{
    struct swn_range *r = swn_arena_find(e->arena, data);
    return r && !r->guest && r->addr == data && r->lead == r && (r->rest || r->len == bytes) ? r : NULL;
}

static int in_a_store(const struct swn_range *r)
{
    return !r->rest && atomic_load(&((struct swn_range *)r)->state) == SWN_STREAMED && r->file->immutable;
}

int swn_device_way(int device, uintptr_t data, size_t bytes, int parameter)
{
    struct swn_engine *e = &swn_engine_one;
    if (bytes < SWN_GRANULE)
        return SWN_WAY_COPY;
    struct swn_guest *g = swn_arena_guest(e->arena, data);
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = g ? NULL : whole(e, data, bytes);
    if (r)
        swn_behind_recall(e, r);
    int registered = g ? data + bytes <= g->hi : r && in_a_store(r), cut = r && r->rest;
    pthread_mutex_unlock(&e->lock);
    if (!registered && !(r && parameter))
        return SWN_WAY_COPY;
    struct device *d = device_of(device); /* nothing of CUDA before there is a weight to move */
    if (!d || (cut && (d->backend->pins || !d->backend->shares)))
        return SWN_WAY_COPY;
    if (!d->backend->shares)
        return SWN_WAY_BUFFER;
    return registered ? SWN_WAY_REFERENCE : SWN_WAY_ALIAS;
}

static int room(struct swn_engine *e, size_t bytes, const struct swn_range *spare)
{
    return swn_policy_try_room(e, bytes + e->config.budget_bytes / OTHERS, spare);
}

/* Brings the range home, where it stays. 0 or -errno. */
static int pin(struct swn_engine *e, struct swn_device_memory *m, uintptr_t data, size_t bytes)
{
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = whole(e, data, bytes);
    int err = r && !r->rest ? 0 : -EINVAL;
    if (!err) {
        swn_behind_recall(e, r);
        swn_load_verify(e, r);
    }
    if (!err && atomic_load(&r->state) == SWN_STREAMED)
        err = room(e, swn_round_up(bytes, SWN_PAGE), r);
    if (!err)
        err = swn_policy_bring_home(e, r, 0);
    if (!err && atomic_load(&r->state) != SWN_HOME)
        err = -EBUSY;
    if (!err) {
        r->pins++;
        m->pinned = r;
        m->pinned_id = r->id;
    }
    pthread_mutex_unlock(&e->lock);
    return err;
}

static void unpin(struct swn_engine *e, struct swn_device_memory *m)
{
    pthread_mutex_lock(&e->lock);
    if (m->pinned && m->pinned->id == m->pinned_id)
        m->pinned->pins--;
    pthread_mutex_unlock(&e->lock);
}

/* Reads the range at data from its file straight into `to`. 0, or an error: then its own address has the bytes. */
static int read_from_file(struct swn_engine *e, uintptr_t data, void *to, size_t bytes)
{
    struct swn_pages pages;
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = whole(e, data, bytes);
    struct swn_extent_file *file = r && in_a_store(r) ? r->file : NULL;
    if (file && (swn_residency_scan(&e->res, r, &pages) || pages.own))
        file = NULL;
    uint64_t off = file ? r->extent : 0;
    if (file) {
        swn_load_verify(e, r);
        file->refs++;
    }
    pthread_mutex_unlock(&e->lock);
    if (!file)
        return -ENOENT;
    struct swn_fetch_file own = {.fd = file->fetch.fd, .direct_fd = swn_open_direct(e->io, file->fetch.fd, O_RDONLY)};
    size_t size = swn_round_up(bytes, SWN_PAGE), got = 0;
    int direct = own.direct_fd >= 0, err = swn_read_blocks(e->io, &own, to, size, off, &got);
    if (own.direct_fd >= 0)
        e->io->close(e->io->ctx, own.direct_fd);
    pthread_mutex_lock(&e->lock);
    file->refs--;
    pthread_mutex_unlock(&e->lock);
    if (direct && (err || own.direct_fd < 0) && !atomic_exchange(&said_bounce, 1))
        swn_say("the kernel does not read from the disk straight into the device's buffers: what goes there is copied");
    return err ? err : got < bytes ? -ENODATA : 0;
}

static int open_buffer(struct swn_engine *e, struct swn_device_memory *m, uintptr_t data, size_t bytes)
{
    const struct device *d = m->device;
    pthread_mutex_lock(&e->lock);
    int err = room(e, m->block.bytes, NULL);
    pthread_mutex_unlock(&e->lock);
    if (err || d->backend->open(&cuda, &d->traits, &m->block))
        return -ENOMEM;
    swn_engine_count_small((long long)m->block.bytes);
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

struct swn_device_memory *swn_device_open(int device, uintptr_t data, size_t bytes, void **address)
{
    struct swn_engine *e = &swn_engine_one;
    struct device *d = device_of(device);
    struct swn_device_memory *m = d ? calloc(1, sizeof *m) : NULL;
    if (!m)
        return NULL;
    *m = (struct swn_device_memory){.device = d, .block = {.bytes = swn_round_up(bytes, SWN_PAGE)}, .pid = getpid()};
    int err = d->backend->shares ? open_shared(e, m, data, bytes) : open_buffer(e, m, data, bytes);
    if (err) {
        if (!d->backend->shares && m->block.host)
            swn_device_close(m);
        else
            free(m);
        if (!atomic_exchange(&said_room, 1))
            swn_say("%s: that weight, and others like it, are copied to the device",
                    err == -ENOMEM ? "no room in SWAPNET_BUDGET for a weight that the device is to share"
                                   : "the device does not take a weight's memory");
        return NULL;
    }
    *address = m->block.device;
    return m;
}

int swn_device_streams(const struct swn_device_memory *m)
{
    return m->device->backend->shares && !m->pinned;
}

/* Whoever lets go last closes: his current device need not be the memory's. */
static int close_there(struct swn_device_memory *m)
{
    int there = (int)(m->device - devices), here;
    int err = cuda.get_device(&here);
    if (!err && here != there)
        err = cuda.set_device(there);
    if (err) {
        cuda.last_error();
        return err;
    }
    err = m->device->backend->close(&cuda, &m->block);
    if (here != there)
        cuda.set_device(here);
    return err;
}

int swn_device_close(struct swn_device_memory *m)
{
    struct swn_engine *e = &swn_engine_one;
    int err = 0;
    if (m->pid == getpid()) {
        err = close_there(m);
        if (!err && m->pinned)
            unpin(e, m);
        if (!err && !m->device->backend->shares)
            swn_engine_count_small(-(long long)m->block.bytes);
    }
    free(m);
    return err;
}

/* Which can use no device that its parent has used. */
void swn_device_fork_child(void)
{
    pthread_mutex_init(&devices_lock, NULL);
    found = 0;
}

/* In-place operators are seen by the hook only. */
int swn_device_watch(void)
{
    struct swn_engine *e = &swn_engine_one;
    if (atomic_load(&e->hook_state) == 2)
        return 1;
    atomic_store(&e->want_hook, 1);
    swn_engine_after_alloc();
    return atomic_load(&e->hook_state) == 2;
}

void swn_device_moved(size_t elided, size_t copied)
{
    atomic_fetch_add_explicit(&elided_bytes, elided, memory_order_relaxed);
    atomic_fetch_add_explicit(&copied_bytes, copied, memory_order_relaxed);
}

void swn_device_given_up(void)
{
    swn_say("compiled code runs, whose writes nobody announces: the weights that the device shared are copied to it");
}

void swn_device_lost(const char *why)
{
    swn_say(
        "a weight that is about to be written cannot be given memory of its own: %s; ending the program rather than "
        "computing with wrong weights",
        why);
    _exit(SWN_EXIT_UNREADABLE);
}

void swn_device_stats(struct swn_stats *out)
{
    out->unified_elided_bytes = atomic_load(&elided_bytes);
    out->unified_copied_bytes = atomic_load(&copied_bytes);
    pthread_mutex_lock(&devices_lock);
    out->unified = newest ? newest->name : wish == SWN_CONFIG_UNIFIED_OFF ? "off" : "none";
    pthread_mutex_unlock(&devices_lock);
}
