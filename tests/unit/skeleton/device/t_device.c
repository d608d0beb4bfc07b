/* Description: weights that a device shares, and the engine: they stay where the device has them, buffers are filled
 * from the disk, all of it counts, and nothing is left when they go. */
#define _GNU_SOURCE
#include "tests/unit/support/device_cases.h"
#include "tests/unit/support/engine_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/fakes/cuda/standin.h"
#include "skeleton/device/cuda.h"
#include "skeleton/device/device.h"
#include "base/thread.h"

#define WEIGHTS 16
#define WEIGHT_BYTES ((size_t)512 << 10)

static struct tensor weights[WEIGHTS];
static struct swn_device_memory *held[WEIGHTS];
static struct swn_engine *const e = &swn_engine_one;

static void begin(const char *device, size_t budget)
{
    struct swn_runtime_services host;
    standin_be(device);
    CHECK(!engine_begin(budget, SWN_CONFIG_PREAD, NULL));
    swn_engine_services(&host); /* as the torch backend is told */
    CHECK(host.device.type == SWN_DEVICE_CUDA);
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], WEIGHT_BYTES, i + 1));
}

static int is_pinned(const char *device)
{
    return !strcmp(device, "orin") || !strcmp(device, "xavier");
}

static int way(unsigned i, int parameter)
{
    return swn_device_way(0, weights[i].own, weights[i].len, parameter);
}

static struct swn_stats counters(void)
{
    struct swn_stats stats;
    swn_engine_stats(&stats);
    return stats;
}

static struct swn_device_memory *open_one(unsigned i, void **at)
{
    return swn_device_open(0, (enum swn_way)way(i, 1), weights[i].own, weights[i].len, at);
}

/* Opens weight i and lets a kernel look at it for a while. */
static void give(unsigned i)
{
    void *at;
    held[i] = open_one(i, &at);
    CHECK(held[i]);
    CHECK(tensor_right(&weights[i], (uintptr_t)standin_view(at)));
    const void *stretch = at;
    standin_launch(NULL, 3000, &stretch, &weights[i].len, 1);
}

static void take_all(void)
{
    for (unsigned i = 0; i < WEIGHTS; i++) {
        if (held[i])
            CHECK(!device_let_go(held[i]));
        held[i] = NULL;
        tensor_free(&weights[i]);
    }
    CHECK(standin_live(STANDIN_REGISTERED) + standin_live(STANDIN_MANAGED) == 0);
    engine_is_empty();
}

static void ways(void *device)
{
    begin(device, 64 * MIB);
    int shares = !strcmp(device, "thor") || !strcmp(device, "orin") || !strcmp(device, "xavier");
    int none = !strcmp(device, "discrete");
    CHECK(!strcmp(counters().unified, "none")); /* nothing was asked for before the first weight went */
    CHECK(way(0, 0) == SWN_WAY_COPY);           /* a buffer that may be filled again */
    CHECK(!strcmp(counters().unified, "none"));
    CHECK(way(0, 1) == (none ? SWN_WAY_COPY : shares ? SWN_WAY_ALIAS : SWN_WAY_BUFFER));
    CHECK(swn_device_way(0, weights[0].own + SWN_PAGE, WEIGHT_BYTES - SWN_PAGE, 1) == SWN_WAY_COPY);
    CHECK(swn_device_way(3, weights[0].own, WEIGHT_BYTES, 1) == SWN_WAY_COPY); /* which there is not */
    CHECK(!strcmp(counters().unified, !strcmp(device, "thor") ? "pageable"
                                      : shares                ? "registered"
                                      : none                  ? "none"
                                                              : "managed"));
    take_all();
}

/* More weights than the budget holds: what the device has stays if it must, and the rest gives way. */
static void pressed(void *device)
{
    begin(device, 7 * MIB); /* of 8 MiB */
    int buffers = !strcmp(device, "nano");
    for (unsigned i = 0; i < 4; i++) {
        CHECK(way(i, 1) != SWN_WAY_COPY);
        give(i);
    }
    if (buffers)
        CHECK(counters().small_bytes >= 4 * WEIGHT_BYTES);
    for (unsigned pass = 0; pass < 3; pass++)
        for (unsigned i = 4; i < WEIGHTS; i++)
            op_read(&weights[i]);
    for (unsigned i = 0; i < 4; i++) {
        if (is_pinned(device))
            CHECK(atomic_load(&swn_arena_find(e->arena, weights[i].own)->state) == SWN_RESIDENT);
        CHECK(tensor_right(&weights[i], weights[i].own));
    }
    CHECK(counters().over_budget_bytes == 0);
    CHECK(counters().peak_resident_bytes <= 7 * MIB);
    CHECK(counters().spilled_bytes > 0);
    take_all();
}

/* How many of them stay, where there is not room for all. */
static unsigned open_all(void)
{
    unsigned stay = 0;
    for (unsigned i = 0; i < WEIGHTS; i++) {
        void *at;
        held[i] = open_one(i, &at);
        CHECK(held[i]);
        stay += !swn_device_swaps(held[i]);
    }
    return stay;
}

/* Where the device needs them in memory and there is no room: the others come and go, or are refused. */
static void full(void *device)
{
    begin(device, 6 * MIB);
    unsigned got = open_all();
    CHECK(got >= 3 && got < WEIGHTS);
    CHECK(counters().over_budget_bytes == 0);
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_right(&weights[i], weights[i].own));
    take_all();
}

/* Weights that are in memory have been there all along; to have them stay for ever takes room all the same. */
static void full_of_home(void *device)
{
    begin(device, 9 * MIB);
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(atomic_load(&swn_arena_find(e->arena, weights[i].own)->state) == SWN_RESIDENT);
    unsigned got = open_all();
    CHECK(got >= 3 && got < WEIGHTS);
    struct tensor other;
    CHECK(tensor_make(&other, 4 * WEIGHT_BYTES, 77));
    CHECK(counters().over_budget_bytes == 0);
    tensor_free(&other);
    take_all();
}

/* The runtime refuses: the tensor is as it was, and not held. */
static void refused(void *device)
{
    begin(device, 64 * MIB);
    CHECK(way(0, 1) != SWN_WAY_COPY);
    for (unsigned n = 1; n < 3; n++) {
        void *at;
        standin_fail(n);
        struct swn_device_memory *m = open_one(0, &at);
        standin_fail(0);
        if (m)
            CHECK(!device_let_go(m));
        CHECK(swn_arena_find(e->arena, weights[0].own)->pins == 0);
        CHECK(standin_live(STANDIN_REGISTERED) + standin_live(STANDIN_MANAGED) == 0);
        CHECK(cudaGetLastError() == 0);
    }
    take_all();
}

/* A child has its parent's descriptors, and may drop them; the parent's device goes on. */
static void forked(void *device)
{
    begin(device, 64 * MIB);
    uint64_t small = counters().small_bytes;
    give(0);
    swn_engine_prefork();
    pid_t pid = fork();
    if (!pid) {
        swn_engine_postfork_child();
        CHECK(way(1, 1) == SWN_WAY_COPY);
        CHECK(tensor_right(&weights[0], weights[0].own));
        CHECK(!device_let_go(held[0]));
        CHECK(swn_arena_find(e->arena, weights[0].own)->pins == 0);
        CHECK(counters().small_bytes == small); /* of the device's memory it has nothing */
        _exit(0);
    }
    swn_engine_postfork_parent();
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    give(1);
    take_all();
}

static void *release(void *memory)
{
    int here;
    CHECK(!device_let_go(memory));
    CHECK(!cudaGetDevice(&here) && here == 0);
    return NULL;
}

/* Whoever lets go last need not have the memory's device as his current one, and may not have used his own. */
static void elsewhere(void *device)
{
    begin(device, 64 * MIB);
    pthread_t thread;
    CHECK(!cudaSetDevice(1));
    void *at;
    held[0] = swn_device_open(1, (enum swn_way)swn_device_way(1, weights[0].own, weights[0].len, 1), weights[0].own,
                              weights[0].len, &at);
    CHECK(held[0]);
    const void *stretch = at;
    standin_launch(NULL, 50000, &stretch, &weights[0].len, 1);
    CHECK(!pthread_create(&thread, NULL, release, held[0]) && !pthread_join(thread, NULL));
    CHECK(standin_chosen(0) == 0);
    memset((void *)weights[0].own, 0, weights[0].len);
    held[0] = NULL;
    CHECK(!cudaDeviceSynchronize()); /* the kernel found what it read unchanged */
    take_all();
}

static int no_thread(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    (void)thread, (void)attr, (void)run, (void)arg;
    return EAGAIN;
}

/* Without a waiting thread, the thread that drops the memory waits for the device. */
static void no_thread_to_close(void *device)
{
    begin(device, 64 * MIB);
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = swn_thread_create;
    void *at;
    swn_thread_create = no_thread;
    held[0] = open_one(0, &at);
    CHECK(held[0]);
    const void *stretch = at;
    standin_launch(NULL, 300000, &stretch, &weights[0].len, 1);
    CHECK(!device_let_go(held[0]));
    swn_thread_create = create;
    memset((void *)weights[0].own, 0, weights[0].len);
    held[0] = NULL;
    CHECK(!cudaDeviceSynchronize());
    take_all();
}

static _Atomic int late;

static void note(void *owner, int err)
{
    CHECK(owner == &late && !err);
    late++;
}

static void *capture_elsewhere(void *stream)
{
    CHECK(!standin_capture(stream, 1));
    return NULL;
}

/* Nobody waits for the device while a graph is captured, of which the engine may know or not; what goes meanwhile stays
 * where it is until it has been. */
static void in_a_capture(void *device)
{
    begin(device, 64 * MIB);
    void *const stream = (void *)0x10;
    for (int known = 0; known < 2; known++) {
        pthread_t thread;
        give(0);
        give(1);
        CHECK(!cudaDeviceSynchronize());
        CHECK(!pthread_create(&thread, NULL, capture_elsewhere, stream) && !pthread_join(thread, NULL));
        if (known)
            CHECK(swn_device_capturing(stream));
        late = 0;
        for (unsigned i = 0; i < 2; i++) {
            CHECK(swn_device_close(held[i], note, &late) == 1);
            held[i] = NULL;
        }
        usleep(100000);
        CHECK(late == 0);
        if (is_pinned(device))
            CHECK(standin_live(STANDIN_REGISTERED) == 2 && swn_arena_find(e->arena, weights[0].own)->pins == 1);
        CHECK(!standin_capture(stream, 0)); /* and was not broken off */
        for (int i = 0; i < 5000 && late < 2; i++)
            usleep(1000);
        CHECK(late == 2);
    }
    take_all();
}

/* Of several captures each is remembered, whichever ends first. */
static void captures_at_once(void *device)
{
    struct swn_cuda cuda;
    begin(device, 64 * MIB);
    CHECK(!swn_cuda_find(&cuda) && !swn_cuda_capture_under_way(&cuda));
    for (uintptr_t stream = 0x10; stream <= 0x30; stream += 0x10) {
        CHECK(!standin_capture((void *)stream, 1));
        CHECK(swn_device_capturing((void *)stream) && swn_device_capturing((void *)stream));
    }
    CHECK(!standin_capture((void *)0x30, 0) && swn_cuda_capture_under_way(&cuda));
    CHECK(!standin_capture((void *)0x10, 0) && swn_cuda_capture_under_way(&cuda));
    CHECK(!standin_capture((void *)0x20, 0) && !swn_cuda_capture_under_way(&cuda));
    take_all();
}

static void repeated(void *device)
{
    begin(device, 64 * MIB);
    for (unsigned i = 0; i < 1000; i++) {
        void *at;
        struct swn_device_memory *m = open_one(i % WEIGHTS, &at);
        CHECK(m && !device_let_go(m));
    }
    take_all();
}

static const struct device_case cases[] = {
    {"ways", ways, "nano xavier orin thor discrete"},
    {"pressed", pressed, "nano xavier orin thor"},
    {"full", full, "nano xavier orin"},
    {"full_of_home", full_of_home, "xavier orin"},
    {"refused", refused, "nano xavier orin thor"},
    {"forked", forked, "nano xavier orin thor"},
    {"elsewhere", elsewhere, "nano xavier orin thor"},
    {"no_thread_to_close", no_thread_to_close, "nano xavier orin thor"},
    {"in_a_capture", in_a_capture, "nano xavier orin thor"},
    {"captures_at_once", captures_at_once, "orin"},
    {"repeated", repeated, "nano xavier orin thor"},
};

int main(void)
{
    return run_device_cases(cases, sizeof cases / sizeof cases[0]);
}
