/* skeleton/device/pool.c - see pool.h. */
#define _GNU_SOURCE
#include "skeleton/device/pool.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "blocks/memory/arena.h"
#include "skeleton/device/chunks.h"
#include "skeleton/engine/engine.h"

/* A stage is this part of the budget, and counts against it. */
#define STAGE_PART 32
#define STAGE_LEAST ((size_t)256 << 10)
#define STAGE_MOST ((size_t)4 << 20)

static _Atomic long long counted;

void swn_devpool_count(long long bytes)
{
    /* After a fork a child must not give back more than it has. */
    if (bytes < 0)
        atomic_fetch_add(&counted, bytes);
    swn_engine_count_small(bytes);
    if (bytes > 0)
        atomic_fetch_add(&counted, bytes);
}

void swn_devpool_fork_child(void)
{
    swn_engine_count_small(-atomic_exchange(&counted, 0));
}

/* The runtime remembers an error, and PyTorch would take it for one of its kernels'. */
static int forget(struct swn_devpool *p, int err)
{
    if (err)
        p->cuda.last_error();
    return err;
}

static int nothing(struct swn_devpool *p, struct swn_devbuffer *b)
{
    (void)p, (void)b;
    return 0;
}

/* --- ordinary memory, registered --- */

/* MAP_SHARED or MAP_PRIVATE. A forked child does not inherit it: direct reads never land in memory that a fork may
 * duplicate (invariant 6). */
static char *map_pages(size_t bytes, int sharing)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    if (madvise(at, bytes, MADV_DONTFORK)) {
        munmap(at, bytes);
        return NULL;
    }
    return at;
}

static int open_pages(struct swn_devpool *p)
{
    p->unit = SWN_GRANULE;
    return 0;
}

static int make_registered(struct swn_devpool *p, struct swn_devbuffer *b)
{
    void *device;
    b->host = map_pages(b->bytes, MAP_SHARED);
    if (!b->host)
        return -ENOMEM;
    int err = forget(p, p->cuda.host_register(b->host, b->bytes, SWN_CUDA_REGISTER_MAPPED));
    if (err) {
        munmap(b->host, b->bytes);
        return err;
    }
    device = b->host;
    err = p->traits.host_pointer ? 0 : forget(p, p->cuda.host_device_pointer(&device, b->host, 0));
    b->address = device;
    if (err && !forget(p, p->cuda.host_unregister(b->host)))
        munmap(b->host, b->bytes);
    return err;
}

static int drop_registered(struct swn_devpool *p, struct swn_devbuffer *b)
{
    int err = forget(p, p->cuda.host_unregister(b->host));
    if (!err)
        munmap(b->host, b->bytes);
    return err;
}

static int enter_buffer(struct swn_devpool *p, struct swn_devbuffer *b, char *at)
{
    (void)p, (void)b, (void)at;
    return 0;
}

/* --- the driver's memory --- */

static int attach(struct swn_devpool *p, struct swn_devbuffer *b, unsigned to)
{
    if (p->traits.concurrent)
        return 0;
    /* On a stream of its own, so that this waits for no kernels. */
    int err = forget(p, p->cuda.stream_attach(p->stream, b->host, 0, to));
    return err ? err : forget(p, p->cuda.stream_synchronize(p->stream));
}

static int make_managed(struct swn_devpool *p, struct swn_devbuffer *b)
{
    void *at = NULL;
    int err = forget(
        p, p->cuda.malloc_managed(&at, b->bytes, p->traits.concurrent ? SWN_CUDA_ATTACH_GLOBAL : SWN_CUDA_ATTACH_HOST));
    b->host = b->address = at;
    if (!err && (uintptr_t)at % SWN_PAGE) { /* page alignment is not guaranteed, and direct reads need it */
        p->cuda.free(at);
        return -EINVAL;
    }
    return err;
}

static int drop_managed(struct swn_devpool *p, struct swn_devbuffer *b)
{
    return forget(p, p->cuda.free(b->host));
}

static int hand_over_managed(struct swn_devpool *p, struct swn_devbuffer *b)
{
    return attach(p, b, SWN_CUDA_ATTACH_GLOBAL);
}

static int leave_managed(struct swn_devpool *p, struct swn_devbuffer *b)
{
    return attach(p, b, SWN_CUDA_ATTACH_HOST);
}

static int make_stages(struct swn_devpool *p)
{
    for (unsigned i = 0; p->stage_bytes && i < SWN_DEVPOOL_FLIGHTS; i++)
        if (forget(p, p->swap.event_create(&p->flights[i], SWN_CUDA_EVENT_QUIET)))
            return -ENOMEM;
    for (unsigned i = 0; p->stage_bytes && i < SWN_DEVPOOL_STAGES; i++) {
        struct stage *s = &p->stages[i];
        s->memory = map_pages(p->stage_bytes, MAP_SHARED);
        if (!s->memory || forget(p, p->swap.event_create(&s->event, SWN_CUDA_EVENT_QUIET)))
            return -ENOMEM;
        /* If this fails the copies are not asynchronous, but still right. */
        s->pinned = !forget(p, p->cuda.host_register(s->memory, p->stage_bytes, SWN_CUDA_REGISTER_MAPPED));
        swn_devpool_count((long long)p->stage_bytes);
    }
    return 0;
}

char *swn_devpool_stage(struct swn_devpool *p, unsigned i)
{
    struct stage *s = &p->stages[i % SWN_DEVPOOL_STAGES];
    return forget(p, p->swap.event_synchronize(s->event)) ? NULL : s->memory;
}

int swn_devpool_send(struct swn_devpool *p, unsigned i, char *to, size_t n)
{
    struct stage *s = &p->stages[i % SWN_DEVPOOL_STAGES];
    int err = forget(p, p->swap.memcpy_async(to, s->memory, n, SWN_CUDA_HOST_TO_DEVICE, p->stream));
    return err ? err : forget(p, p->swap.event_record(s->event, p->stream));
}

char *swn_devpool_pin(struct swn_devpool *p, size_t bytes)
{
    char *memory = map_pages(bytes, MAP_PRIVATE);
    /* The driver registers huge pages in half of the time, and private memory has them even where shared memory has
     * none. */
    if (memory)
        madvise(memory, bytes, MADV_HUGEPAGE);
    if (memory && forget(p, p->cuda.host_register(memory, bytes, SWN_CUDA_REGISTER_MAPPED))) {
        munmap(memory, bytes);
        memory = NULL;
    }
    return memory;
}

int swn_devpool_unpin(struct swn_devpool *p, char *memory, size_t bytes)
{
    int err = forget(p, p->cuda.host_unregister(memory));
    if (!err)
        munmap(memory, bytes);
    return err;
}

int swn_devpool_send_pinned(struct swn_devpool *p, char *to, const char *from, size_t n)
{
    return forget(p, p->swap.memcpy_async(to, from, n, SWN_CUDA_HOST_TO_DEVICE, p->stream));
}

static void *event_of(const struct swn_devpool *p, uint64_t flight)
{
    return p->flights[flight % SWN_DEVPOOL_FLIGHTS];
}

int swn_devpool_depart(struct swn_devpool *p, uint64_t flight)
{
    return forget(p, p->swap.event_record(event_of(p, flight), p->stream));
}

int swn_devpool_arrived(struct swn_devpool *p, uint64_t flight)
{
    return forget(p, p->swap.event_synchronize(event_of(p, flight)));
}

int swn_devpool_follow(struct swn_devpool *p, uint64_t flight, void *stream)
{
    return forget(p, p->swap.stream_wait(stream, event_of(p, flight), 0));
}

int swn_devpool_sent(struct swn_devpool *p)
{
    return forget(p, p->cuda.stream_synchronize(p->stream));
}

/* --- all of them --- */

static const struct swn_devpool_way registered = {"registered", 0,       open_pages, make_registered, drop_registered,
                                                  enter_buffer, nothing, nothing};
static const struct swn_devpool_way managed = {
    "managed", 0, open_pages, make_managed, drop_managed, enter_buffer, hand_over_managed, leave_managed};
static const struct swn_devpool_way mapped = {
    "mapped",          1,       swn_devchunks_open, swn_devchunks_make, swn_devchunks_drop,
    swn_devchunks_map, nothing, swn_devchunks_unmap};

static size_t stage_bytes(size_t budget)
{
    size_t bytes = budget / STAGE_PART / SWN_PAGE * SWN_PAGE;
    return bytes < STAGE_LEAST ? STAGE_LEAST : bytes < STAGE_MOST ? bytes : STAGE_MOST;
}

int swn_devpool_choose(struct swn_devpool *p, int device, const struct swn_unified_backend *backend, int threads,
                       size_t budget, const char **why)
{
    *p = (struct swn_devpool){.device = device, .way = &mapped, .stage_bytes = stage_bytes(budget)};
    *why = "the CUDA runtime lacks what it takes";
    int err = swn_cuda_find(&p->cuda);
    if (!err)
        err = swn_cuda_find_swap(&p->swap);
    if (!err)
        err = swn_unified_traits_get(&p->cuda, device, &p->traits);
    if (err)
        return err;
    *why = "the device has no virtual memory management";
    if (!backend || (threads && !p->way->open(p)))
        return backend ? 0 : p->way->open(p);
    p->way = backend->shares ? &registered : &managed;
    p->stage_bytes = 0;
    return p->way->open(p);
}

int swn_devpool_begin(struct swn_devpool *p)
{
    /* First of all: this thread must neither end a CUDA graph's capture by the program, nor fail because of it. */
    swn_cuda_relax(&p->cuda);
    int err = forget(p, p->cuda.set_device(p->device));
    if (!err)
        err = forget(p, p->cuda.free(NULL)); /* with older runtimes setting the device does not initialise it */
    if (!err)
        err = forget(p, p->cuda.stream_create(&p->stream, SWN_CUDA_NON_BLOCKING));
    return err ? err : make_stages(p);
}

char *swn_devpool_reserve(struct swn_devpool *p, size_t bytes)
{
    uint64_t at = 0;
    if (p->way->fixed)
        return p->driver.reserve(&at, bytes, 0, 0, 0) ? NULL : (char *)(uintptr_t)at;
    void *nowhere = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return nowhere == MAP_FAILED ? NULL : nowhere;
}

void swn_devpool_unreserve(struct swn_devpool *p, char *at, size_t bytes)
{
    if (p->way->fixed)
        p->driver.unreserve((uintptr_t)at, bytes);
    else
        munmap(at, bytes);
}
