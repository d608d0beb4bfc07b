/* A CUDA runtime without a GPU: memory is the host's, kernels are a thread that reads. It holds programs to the rules
 * of the device that it stands in for, and ends those that break one:
 *
 * - The processor reaches no device memory, and no managed memory that is attached to the device from a launch until
 *   the program has waited for it, unless the device has concurrent managed access (CUDA Programming Guide, "Coherency
 *   and Concurrency" of unified memory). Both are mapped twice, and the processor's mapping is without access then.
 * - What is launched on one stream runs in that order, and beside what is launched on others; only the legacy stream
 *   waits for the others and they for it, but for those that were created not to. What could run first, and was
 *   launched last, does.
 * - A kernel reaches device memory, managed memory unless it is attached to the host, registered memory at its device
 *   address, and other memory only where the device reaches pageable memory. What it reads stays as it is meanwhile.
 * - Registered memory has the pages that it had when it was registered (pinned.c).
 */
#define _GNU_SOURCE
#include "tests/fakes/cuda/standin_priv.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define AWAY ((uintptr_t)1 << 46) /* from a registered address to the device's, where they differ */
#define STRETCHES 32
#define WORKERS 16
#define WORKERS_LEAST 4
enum { ATTACH_GLOBAL = 1, ATTACH_HOST = 2 };

/* Attributes by cudaDeviceAttr, as NVIDIA documents them for these devices; where it does not say whether the host's
 * address of registered memory will do (91), one of either. Virtual memory management is reported of Orins (llama.cpp,
 * pull request 23732); of the older ones nothing is known. */
static const struct traits {
    const char *name;
    int integrated, managed, pageable, concurrent, host_pointer, host_register, virtual_memory;
} known[] = {
    {"nano", 1, 1, 0, 0, 0, 0, 0}, {"xavier", 1, 1, 0, 0, 0, 1, 0},   {"orin", 1, 1, 0, 0, 1, 1, 1},
    {"thor", 1, 1, 1, 1, 1, 1, 1}, {"discrete", 0, 1, 0, 1, 1, 1, 1},
};

struct launch {
    int device, running;
    void *stream;
    struct memory *attach; /* a change of its attachment to `attached`, or NULL: a kernel */
    void (*call)(void *arg);
    void *arg;
    int unlocked; /* the call is the program's */
    int waiter;   /* the argument says for what it waits */
    unsigned attached, us, n;
    void *to;          /* or NULL; the kernel copies its one stretch there at its end */
    unsigned long sum; /* of what it reads, when it was launched */
    const void *stretches[STRETCHES];
    size_t bytes[STRETCHES];
    struct launch *next;
};

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t standin_moved = PTHREAD_COND_INITIALIZER;
struct memory *standin_memories;
static const struct traits *device;
static struct launch *queue, **queue_end = &queue; /* in the order in which they were launched */
static unsigned workers, idle;
unsigned standin_changed;
static size_t device_bytes, device_peak;
static int in_use; /* launched something, and not waited for it since */
static unsigned fail_in;
static _Atomic unsigned chosen[STANDIN_DEVICES];
static __thread int last, current;
static __thread volatile sig_atomic_t kernel_reads;

__attribute__((noreturn)) void standin_broken(const char *rule, const void *at)
{
    fprintf(stderr, "standin: %s: %s (%p)\n", device->name, rule, at);
    abort();
}

static int result(int err)
{
    if (err)
        last = err;
    return err;
}

int standin_made_to_fail(void)
{
    return fail_in && !--fail_in;
}

EXPORT void standin_be(const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(known[i].name, name))
            device = &known[i];
    if (!device) {
        fprintf(stderr, "standin: %s is not known\n", name);
        abort();
    }
}

void standin_begin(void)
{
    pthread_mutex_lock(&standin_lock);
    if (!device)
        standin_be(getenv("STANDIN_DEVICE") ? getenv("STANDIN_DEVICE") : "orin");
}

int standin_end(int err)
{
    pthread_mutex_unlock(&standin_lock);
    return result(err);
}

struct memory *standin_find(const void *p, int by_device)
{
    for (struct memory *m = standin_memories; m; m = m->next) {
        const char *base = by_device ? m->device : m->base;
        if ((const char *)p >= base && (const char *)p < base + m->bytes)
            return m;
    }
    return NULL;
}

/* What the processor may do with it now. */
static void protect(const struct memory *m)
{
    int away = m->kind == STANDIN_DEVICE ||
               (m->kind == STANDIN_MANAGED && m->attached == ATTACH_GLOBAL && in_use && !device->concurrent);
    if (m->kind != STANDIN_REGISTERED && !m->mapped)
        mprotect(m->base, m->bytes, away ? PROT_NONE : PROT_READ | PROT_WRITE);
}

static void protect_all(void)
{
    for (struct memory *m = standin_memories; m; m = m->next)
        protect(m);
}

static void check_registered(const struct memory *m, const char *p, size_t bytes)
{
    size_t left = m && p < m->base + m->bytes ? (size_t)(m->base + m->bytes - p) : 0;
    if (left && m->kind == STANDIN_REGISTERED)
        standin_check_pins(m, p, bytes < left ? bytes : left);
}

EXPORT void standin_reached(const void *host, size_t bytes)
{
    standin_begin();
    check_registered(standin_find(host, 0), host, bytes);
    standin_end(OK);
}

static const char *reach(const void *p, size_t bytes)
{
    const struct memory *m = standin_find(p, 1);
    if (m && m->kind == STANDIN_MANAGED && m->attached == ATTACH_HOST && !device->concurrent)
        standin_broken("a kernel reads managed memory that is attached to the host", p);
    if (m && m->mapped && !m->mapped[(size_t)((const char *)p - m->device) / STANDIN_GRANULE])
        standin_broken("a kernel reads device memory where none is mapped", p);
    if (!m && !device->pageable)
        standin_broken("a kernel reads memory that the device does not know", p);
    const char *at = m ? m->view + ((const char *)p - m->device) : p;
    check_registered(m, at, bytes);
    return at;
}

static unsigned long sum(const struct launch *k)
{
    unsigned long s = 0;
    for (unsigned i = 0; i < k->n; i++) {
        pthread_mutex_lock(&standin_lock);
        const char *at = reach(k->stretches[i], k->bytes[i]);
        pthread_mutex_unlock(&standin_lock);
        kernel_reads = 1;
        for (size_t off = 0; off + 8 <= k->bytes[i]; off += 64) {
            unsigned long word;
            memcpy(&word, at + off, sizeof word);
            s = (s ^ word) * 0x9e3779b97f4a7c15ul;
        }
        kernel_reads = 0;
    }
    return s;
}

EXPORT int standin_kernel_reads(void)
{
    return kernel_reads;
}

/* Whether k has to wait for what was launched before it: on its own stream, and on the legacy one if either is that; or
 * for an event. */
static int waits(const struct launch *k)
{
    if (k->waiter && standin_waits(k->arg))
        return 1;
    for (const struct launch *j = queue; j != k; j = j->next)
        if (j->device == k->device && (j->stream == k->stream || standin_legacy(j->stream, k->stream)))
            return 1;
    return 0;
}

/* The newest that can run: what was launched on other streams before it is overtaken. */
static struct launch *choose(void)
{
    struct launch *best = NULL;
    for (struct launch *k = queue; k; k = k->next)
        if (!k->running && !waits(k))
            best = k;
    return best;
}

static void run(struct launch *k)
{
    if (k->attach) {
        k->attach->attached = k->attached;
        protect(k->attach);
    } else if (k->call && k->unlocked) {
        pthread_mutex_unlock(&standin_lock);
        k->call(k->arg);
        pthread_mutex_lock(&standin_lock);
    } else if (k->call) {
        k->call(k->arg);
    } else {
        pthread_mutex_unlock(&standin_lock);
        if (sum(k) != k->sum)
            standin_broken("memory changed before a kernel that was launched has read it", k->stretches[0]);
        usleep(k->us);
        if (sum(k) != k->sum)
            standin_broken("memory changed while a kernel was reading it", k->stretches[0]);
        pthread_mutex_lock(&standin_lock);
        if (k->to) {
            memcpy(k->to, reach(k->stretches[0], k->bytes[0]), k->bytes[0]);
            check_registered(standin_find(k->to, 0), k->to, k->bytes[0]);
        }
    }
}

static void end(struct launch *k)
{
    struct launch **link = &queue;
    while (*link != k)
        link = &(*link)->next;
    *link = k->next;
    if (!k->next)
        queue_end = link;
    free(k);
    pthread_cond_broadcast(&standin_moved);
}

static void *work(void *none)
{
    pthread_mutex_lock(&standin_lock);
    for (;;) {
        struct launch *k;
        while (!(k = choose())) {
            idle++;
            pthread_cond_wait(&standin_moved, &standin_lock);
            idle--;
        }
        k->running = 1;
        run(k);
        end(k);
    }
    return none;
}

static void enqueue(struct launch *k)
{
    pthread_t thread;
    while ((workers < WORKERS_LEAST || (!idle && workers < WORKERS)) && !pthread_create(&thread, NULL, work, NULL)) {
        pthread_detach(thread);
        if (++workers >= WORKERS_LEAST)
            break;
    }
    k->device = current;
    *queue_end = k;
    queue_end = &k->next;
    pthread_cond_broadcast(&standin_moved);
}

static int pending(const void *stream)
{
    for (struct launch *k = queue; k; k = k->next)
        if (k->device == current && (k->stream == stream || standin_legacy(k->stream, stream)))
            return 1;
    return 0;
}

static int pending_anywhere(void)
{
    for (struct launch *k = queue; k; k = k->next)
        if (k->device == current)
            return 1;
    return 0;
}

void standin_settle(void)
{
    if (!queue && in_use) {
        in_use = 0;
        protect_all();
    }
}

/* NULL, the legacy stream, waits for all that wait for it. */
static void synchronize(const void *stream)
{
    while (pending(stream))
        pthread_cond_wait(&standin_moved, &standin_lock);
    standin_settle();
}

static void synchronize_all(void)
{
    while (pending_anywhere())
        pthread_cond_wait(&standin_moved, &standin_lock);
    standin_settle();
}

static struct launch *new_call(void *stream, void (*call)(void *arg), void *arg)
{
    struct launch *k = calloc(1, sizeof *k);
    k->stream = stream;
    k->call = call;
    k->arg = arg;
    return k;
}

void standin_enqueue(void *stream, void (*call)(void *arg), void *arg)
{
    enqueue(new_call(stream, call, arg));
}

void standin_enqueue_waiter(void *stream, void (*call)(void *arg), void *arg)
{
    struct launch *k = new_call(stream, call, arg);
    k->waiter = 1;
    enqueue(k);
}

static int waiting(const void *stream)
{
    for (struct launch *k = queue; k; k = k->next)
        if (k->waiter && k->device == current && k->stream == stream)
            return 1;
    return 0;
}

EXPORT void standin_await(void *stream)
{
    standin_begin();
    while (waiting(stream))
        pthread_cond_wait(&standin_moved, &standin_lock);
    standin_end(OK);
}

EXPORT int cudaLaunchHostFunc(void *stream, void (*call)(void *arg), void *arg)
{
    struct launch *k = new_call(stream, call, arg);
    k->unlocked = 1;
    standin_begin();
    enqueue(k);
    return standin_end(OK);
}

static void launch(struct launch *k, const void *const *stretches, const size_t *bytes, unsigned n)
{
    for (k->n = 0; k->n < n && k->n < STRETCHES; k->n++) {
        k->stretches[k->n] = stretches[k->n];
        k->bytes[k->n] = bytes[k->n];
    }
    standin_await(k->stream); /* what is read is not there before */
    k->sum = sum(k);
    standin_begin();
    if (!in_use) {
        in_use = 1;
        protect_all();
    }
    enqueue(k);
    standin_end(OK);
}

EXPORT void standin_launch(void *stream, unsigned us, const void *const *stretches, const size_t *bytes, unsigned n)
{
    struct launch *k = calloc(1, sizeof *k);
    k->stream = stream;
    k->us = us;
    launch(k, stretches, bytes, n);
}

void standin_copy_back(void *stream, void *to, const void *from, size_t bytes)
{
    struct launch *k = calloc(1, sizeof *k);
    k->stream = stream;
    k->us = 2000;
    k->to = to;
    launch(k, &from, &bytes, 1);
}

EXPORT void *standin_view(const void *p)
{
    standin_begin();
    struct memory *m = standin_find(p, 1);
    standin_end(OK);
    return m ? m->view + ((const char *)p - m->device) : (void *)p;
}

EXPORT int standin_knows(const void *host)
{
    standin_begin();
    int knows = standin_find(host, 0) != NULL;
    standin_end(OK);
    return knows;
}

EXPORT unsigned standin_live(enum standin_kind kind)
{
    unsigned n = 0;
    standin_begin();
    for (struct memory *m = standin_memories; m; m = m->next)
        n += m->kind == kind;
    standin_end(OK);
    return n;
}

EXPORT size_t standin_peak(void)
{
    standin_begin();
    size_t peak = device_peak;
    standin_end(OK);
    return peak;
}

EXPORT unsigned standin_changes(void)
{
    standin_begin();
    unsigned n = standin_changed;
    standin_end(OK);
    return n;
}

EXPORT void standin_fail(unsigned n)
{
    pthread_mutex_lock(&standin_lock);
    fail_in = n;
    pthread_mutex_unlock(&standin_lock);
}

void standin_count(long long bytes)
{
    device_bytes += (size_t)bytes;
    if (device_bytes > device_peak)
        device_peak = device_bytes;
}

static _Atomic size_t trimmed;

static size_t mib_of(const char *name, size_t otherwise)
{
    const char *mib = getenv(name);
    return mib ? strtoull(mib, NULL, 10) << 20 : otherwise;
}

EXPORT size_t standin_idle(void)
{
    return mib_of("STANDIN_IDLE", 0) - atomic_load(&trimmed);
}

EXPORT void standin_trim(void)
{
    atomic_store(&trimmed, mib_of("STANDIN_IDLE", 0));
}

/* Without what PyTorch has of it. */
static size_t device_memory(void)
{
    return mib_of("STANDIN_MEMORY", (size_t)64 << 30) + atomic_load(&trimmed);
}

int standin_full(size_t bytes)
{
    return device_bytes + bytes > device_memory();
}

/* Memory of the device's or the driver's: two mappings of the same pages. */
static int make(void **p, size_t bytes, enum standin_kind kind, unsigned attached)
{
    struct memory *m = calloc(1, sizeof *m);
    int fd = memfd_create("standin", MFD_CLOEXEC);
    bytes = (bytes + 4095) / 4096 * 4096;
    int full = kind == STANDIN_DEVICE && standin_full(bytes);
    if (!m || fd < 0 || full || standin_made_to_fail() || ftruncate(fd, (off_t)bytes)) {
        free(m);
        close(fd);
        return NO_MEMORY;
    }
    *m = (struct memory){.kind = kind, .bytes = bytes, .attached = attached, .next = standin_memories};
    m->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    m->view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    m->device = m->base;
    close(fd);
    standin_memories = m;
    standin_changed++;
    if (kind == STANDIN_DEVICE)
        standin_count((long long)bytes);
    protect(m);
    *p = m->base;
    return OK;
}

void standin_forget(struct memory *m)
{
    for (struct memory **link = &standin_memories; *link; link = &(*link)->next) {
        if (*link != m)
            continue;
        *link = m->next;
        standin_changed++;
        if (m->kind == STANDIN_DEVICE && !m->mapped)
            standin_count(-(long long)m->bytes);
        free(m->mapped);
        free(m);
        return;
    }
}

EXPORT int cudaDeviceGetAttribute(int *value, int attribute, int index)
{
    standin_begin();
    if (index < 0 || index >= STANDIN_DEVICES || standin_made_to_fail())
        return standin_end(INVALID);
    switch (attribute) {
    case 18:
        *value = device->integrated;
        break;
    case 83:
        *value = device->managed;
        break;
    case 88:
        *value = device->pageable;
        break;
    case 89:
        *value = device->concurrent;
        break;
    case 91:
        *value = device->host_pointer;
        break;
    case 99:
        *value = device->host_register;
        break;
    default:
        return standin_end(INVALID);
    }
    return standin_end(OK);
}

int standin_virtual_memory(void)
{
    return device->virtual_memory;
}

EXPORT int cudaGetDevice(int *index)
{
    *index = current;
    return OK;
}

EXPORT int cudaSetDevice(int index)
{
    if (index < 0 || index >= STANDIN_DEVICES)
        return result(INVALID);
    current = index;
    atomic_fetch_add(&chosen[index], 1);
    return OK;
}

EXPORT unsigned standin_chosen(int index)
{
    return atomic_load(&chosen[index]);
}

EXPORT int cudaDeviceSynchronize(void)
{
    standin_begin();
    int err = standin_refused();
    if (!err)
        synchronize_all();
    return standin_end(err);
}

EXPORT int cudaStreamSynchronize(void *stream)
{
    standin_begin();
    if (standin_is_captured(stream))
        standin_broken("a stream is waited for that is being captured", stream);
    synchronize(stream);
    return standin_end(OK);
}

EXPORT int standin_wait(void *stream)
{
    standin_begin();
    int err = standin_strict() ? standin_refused() : standin_is_captured(stream) ? CAPTURE_UNSUPPORTED : OK;
    if (!err)
        synchronize_all();
    return standin_end(err);
}

static __thread unsigned register_us;

EXPORT void standin_register_slowly(unsigned us)
{
    register_us = us;
}

EXPORT int cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
    standin_begin();
    if (!device->host_register)
        return standin_end(NOT_SUPPORTED);
    if (!bytes || flags & ~3u) /* portable, mapped: with unified addresses all of it is */
        return standin_end(INVALID);
    if (standin_unsafe())
        return standin_end(CAPTURE_UNSUPPORTED);
    if (standin_made_to_fail())
        return standin_end(NO_MEMORY);
    for (struct memory *m = standin_memories; m; m = m->next)
        if ((char *)p < m->base + m->bytes && m->base < (char *)p + bytes)
            return standin_end(ALREADY_REGISTERED);
    struct memory *m = calloc(1, sizeof *m);
    *m = (struct memory){.kind = STANDIN_REGISTERED, .base = p, .view = p, .bytes = bytes, .next = standin_memories};
    m->device = (char *)p + (device->host_pointer ? 0 : AWAY);
    if (standin_pin(m)) {
        free(m);
        return standin_end(NO_MEMORY);
    }
    standin_memories = m;
    standin_changed++;
    standin_end(OK);
    if (register_us)
        usleep(register_us);
    register_us = 0;
    return OK;
}

EXPORT int cudaHostUnregister(void *p)
{
    standin_begin();
    struct memory *m = standin_find(p, 0);
    if (!m || m->kind != STANDIN_REGISTERED || m->base != p)
        return standin_end(NOT_REGISTERED);
    if (standin_unsafe())
        return standin_end(CAPTURE_UNSUPPORTED);
    if (standin_made_to_fail())
        return standin_end(INVALID);
    for (struct launch *k = queue; k; k = k->next)
        for (unsigned i = 0; i < k->n; i++)
            if (standin_find(k->stretches[i], 1) == m)
                standin_broken("memory is unregistered while a kernel reads it", p);
    standin_unpin(m);
    standin_forget(m);
    return standin_end(OK);
}

EXPORT int cudaHostGetDevicePointer(void **out, void *host, unsigned flags)
{
    standin_begin();
    struct memory *m = standin_find(host, 0);
    if (!m || m->kind != STANDIN_REGISTERED || flags || standin_made_to_fail())
        return standin_end(INVALID);
    *out = m->device + ((char *)host - m->base);
    return standin_end(OK);
}

EXPORT int cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    standin_begin();
    if (standin_unsafe())
        return standin_end(CAPTURE_UNSUPPORTED);
    return standin_end(flags ? INVALID : make(p, bytes, STANDIN_PINNED, 0));
}

EXPORT int cudaFreeHost(void *p)
{
    return cudaFree(p);
}

EXPORT int cudaPointerGetAttributes(struct standin_pointer *out, const void *p)
{
    static const int types[] = {
        [STANDIN_DEVICE] = 2, [STANDIN_REGISTERED] = 1, [STANDIN_MANAGED] = 3, [STANDIN_PINNED] = 1};
    standin_begin();
    const struct memory *m = standin_find(p, 0);
    *out = (struct standin_pointer){.device = -1, .on_host = (void *)(uintptr_t)p};
    if (m && (size_t)m->kind < sizeof types / sizeof types[0])
        out->type = types[m->kind];
    return standin_end(OK);
}

EXPORT int cudaMallocManaged(void **p, size_t bytes, unsigned flags)
{
    standin_begin();
    if (standin_unsafe())
        return standin_end(CAPTURE_UNSUPPORTED);
    return standin_end(flags == ATTACH_GLOBAL || flags == ATTACH_HOST ? make(p, bytes, STANDIN_MANAGED, flags)
                                                                      : INVALID);
}

EXPORT int cudaMalloc(void **p, size_t bytes)
{
    standin_begin();
    if (standin_unsafe())
        return standin_end(CAPTURE_UNSUPPORTED);
    return standin_end(make(p, bytes, STANDIN_DEVICE, 0));
}

EXPORT int cudaFree(void *p)
{
    standin_begin();
    if (standin_unsafe()) /* of nothing as well: it initialises the device */
        return standin_end(CAPTURE_UNSUPPORTED);
    struct memory *m = standin_find(p, 0);
    if (p && (!m || m->base != p || m->kind == STANDIN_REGISTERED))
        return standin_end(INVALID);
    while (queue) /* whichever device it is of */
        pthread_cond_wait(&standin_moved, &standin_lock);
    standin_settle();
    if (p) {
        munmap(m->base, m->bytes);
        munmap(m->view, m->bytes);
        standin_forget(m);
    }
    return standin_end(OK);
}

/* Of what is the device's own, or the driver's. */
EXPORT int cudaMemGetInfo(size_t *free, size_t *total)
{
    standin_begin();
    *total = *free = device_memory();
    *free -= device_bytes;
    for (const struct memory *m = standin_memories; m; m = m->next)
        *free -= m->kind == STANDIN_MANAGED ? m->bytes : 0;
    return standin_end(OK);
}

EXPORT int cudaMemcpy(void *to, const void *from, size_t bytes, int kind)
{
    standin_begin();
    synchronize_all();
    struct memory *a = standin_find(to, 1), *b = standin_find(from, 1);
    (void)kind;
    memcpy(a ? a->view + ((char *)to - a->device) : to, b ? b->view + ((const char *)from - b->device) : from, bytes);
    return standin_end(OK);
}

EXPORT int cudaStreamAttachMemAsync(void *stream, void *p, size_t bytes, unsigned flags)
{
    standin_begin();
    struct memory *m = standin_find(p, 0);
    if (!m || m->kind != STANDIN_MANAGED || m->base != p || (bytes && bytes != m->bytes) ||
        (flags != ATTACH_GLOBAL && flags != ATTACH_HOST) || standin_made_to_fail())
        return standin_end(INVALID);
    if (standin_unsafe() || standin_legacy_captured(stream))
        return standin_end(CAPTURE_IMPLICIT);
    struct launch *k = calloc(1, sizeof *k);
    k->stream = stream;
    k->attach = m;
    k->attached = flags;
    enqueue(k);
    return standin_end(OK);
}

EXPORT int cudaGetLastError(void)
{
    int err = last;
    last = OK;
    return err;
}
