/* Description: memory of tensors that the program registers with the driver: it stays behind the addresses, beyond the
 * budget if need be, until it is unregistered. The stand-in ends the test where the device has other pages. */
#define _GNU_SOURCE
#include "tests/unit/support/device_cases.h"
#include "tests/unit/support/engine_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/fakes/cuda/standin.h"
#include "skeleton/core/write_behind.h"
#include "skeleton/device/cuda.h"
#include "skeleton/device/device.h"
#include "skeleton/load/mapped_file.h"
#include "skeleton/core/op_window.h"

#define WEIGHTS 12
#define WEIGHT_BYTES ((size_t)512 << 10)
#define DEVICES "xavier orin discrete"
enum { REFUSED = 801, ALREADY = 712, NOT_REGISTERED = 713 };

/* The interposer's, which no header of ours declares. */
int cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags);
int cuMemHostUnregister(void *p);

static struct tensor weights[WEIGHTS];
static struct swn_engine *const e = &swn_engine_one;

static const struct swn_io *io; /* of the next engine, or NULL */

static void begin(const char *device, size_t budget)
{
    struct swn_runtime_services host;
    standin_be(device);
    CHECK(!engine_begin(budget, SWN_CONFIG_PREAD, io));
    swn_engine_services(&host);
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], WEIGHT_BYTES, i + 1));
}

static struct swn_range *range_of(unsigned i)
{
    return swn_arena_find(e->arena, weights[i].own);
}

static int state_of(unsigned i)
{
    return atomic_load(&range_of(i)->state);
}

static struct swn_stats counters(void)
{
    struct swn_stats stats;
    swn_engine_stats(&stats);
    return stats;
}

/* By the interposer, as the program. */
static int take(unsigned i)
{
    return cudaHostRegister((void *)weights[i].own, WEIGHT_BYTES, 0);
}

static int give_back(unsigned i)
{
    return cudaHostUnregister((void *)weights[i].own);
}

static void read_all(unsigned passes)
{
    for (unsigned pass = 0; pass < passes; pass++)
        for (unsigned i = 0; i < WEIGHTS; i++)
            op_read(&weights[i]);
}

/* The device has what the processor has, also of what was stored since. */
static void check_device(unsigned i)
{
    void *at;
    CHECK(!cudaHostGetDevicePointer(&at, (void *)weights[i].own, 0));
    const void *stretch = at;
    tensor_stamp(&weights[i], weights[i].own, weights[i].stamp + 100);
    standin_launch(NULL, 1000, &stretch, &weights[i].len, 1);
    CHECK(!cudaDeviceSynchronize());
    CHECK(tensor_right(&weights[i], (uintptr_t)standin_view(at)));
}

static void finish(void)
{
    CHECK(standin_live(STANDIN_REGISTERED) == 0);
    pthread_mutex_lock(&e->lock);
    swn_write_behind_drain(e); /* whose thread may still read what is freed, and drops it */
    pthread_mutex_unlock(&e->lock);
    for (unsigned i = 0; i < WEIGHTS; i++)
        if (weights[i].own)
            tensor_free(&weights[i]);
    engine_is_empty();
}

static void free_one(unsigned i)
{
    tensor_free(&weights[i]);
    weights[i].own = 0;
}

/* What has left becomes resident, what is there stays, while everything else comes and goes. */
static void stays(void *device)
{
    begin(device, 5 * MIB); /* of 6 */
    read_all(3);
    unsigned left = 0;
    for (unsigned i = 0; i < 4; i++) {
        left += state_of(i) == SWN_FILE_BACKED;
        CHECK(!take(i));
        CHECK(state_of(i) == SWN_RESIDENT && tensor_right(&weights[i], weights[i].own));
    }
    CHECK(left > 0);
    uint64_t swap_ins = counters().swap_ins;
    read_all(6);
    CHECK(counters().swap_ins > swap_ins);
    for (unsigned i = 0; i < 4; i++) {
        CHECK(state_of(i) == SWN_RESIDENT);
        check_device(i);
    }
    CHECK(counters().over_budget_bytes == 0);
    struct tensor large; /* for which everything else has to go */
    CHECK(tensor_make(&large, 3 * MIB, 66));
    for (unsigned i = 0; i < 4; i++) {
        CHECK(state_of(i) == SWN_RESIDENT);
        check_device(i);
    }
    tensor_free(&large);
    /* And is as the others afterwards. */
    for (unsigned i = 0; i < 4; i++)
        CHECK(!give_back(i) && give_back(i) == NOT_REGISTERED && !range_of(i)->pins);
    read_all(6);
    unsigned gone = 0;
    for (unsigned i = 0; i < 4; i++)
        gone += state_of(i) == SWN_FILE_BACKED;
    CHECK(gone > 0);
    finish();
}

/* More than the budget: all of it is there, and said to be. */
static void beyond(void *device)
{
    begin(device, 3 * MIB);
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(!take(i));
    read_all(2);
    for (unsigned i = 0; i < WEIGHTS; i++)
        check_device(i);
    struct swn_stats stats = counters();
    CHECK(stats.resident_bytes >= WEIGHTS * WEIGHT_BYTES);
    CHECK(stats.over_budget_bytes >= WEIGHTS * WEIGHT_BYTES - 3 * MIB);
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(!give_back(i));
    struct tensor other; /* the next one finds the budget kept again */
    CHECK(tensor_make(&other, WEIGHT_BYTES, 77));
    CHECK(counters().resident_bytes <= 3 * MIB);
    tensor_free(&other);
    finish();
}

/* A tensor that is larger than the budget is written through its file, until it is registered. */
static void larger(void *device)
{
    struct tensor large;
    begin(device, 3 * MIB);
    CHECK(tensor_make(&large, 8 * MIB, 55));
    struct swn_range *r = swn_arena_find(e->arena, large.own);
    CHECK(atomic_load(&r->state) == SWN_FILE_BACKED);
    CHECK(!cudaHostRegister((void *)large.own, large.len, 1));
    CHECK(atomic_load(&r->state) == SWN_RESIDENT && tensor_right(&large, large.own));
    struct swn_op op;
    op_open(&op, (struct tensor *[]){&large}, (enum swn_use[]){SWN_USE_WRITE}, 1);
    tensor_stamp(&large, (uintptr_t)large.word, 56);
    op_close(&op);
    read_all(2);
    standin_reached((void *)large.own, large.len);
    CHECK(!cudaHostUnregister((void *)large.own));
    tensor_free(&large);
    finish();
}

static int maps_fail;

static int bad_mmap(void *ctx, void **addr, size_t len, int prot, int flags, int fd, uint64_t off)
{
    return maps_fail ? -ENOMEM : swn_io_sys.mmap(ctx, addr, len, prot, flags, fd, off);
}

/* What cannot be made resident is not registered, as the device would have other pages. */
static void stuck(void *device)
{
    static struct swn_io failing;
    struct tensor large;
    failing = swn_io_sys;
    failing.mmap = bad_mmap;
    io = &failing;
    begin(device, 3 * MIB);
    CHECK(tensor_make(&large, 8 * MIB, 55));
    struct swn_range *r = swn_arena_find(e->arena, large.own);
    maps_fail = 1;
    CHECK(r->shared && cudaHostRegister((void *)large.own, large.len, 0) == 2);
    maps_fail = 0;
    CHECK(r->pins == 0 && swn_tensor_of(r)->registered == 0 && standin_live(STANDIN_REGISTERED) == 0);
    CHECK(tensor_right(&large, large.own));
    tensor_free(&large);
    finish();
}

/* As the runtime has it: what overlaps is refused, and changes nothing; so does whatever else it refuses. */
static void refused(void *device)
{
    begin(device, 3 * MIB);
    if (!strcmp(device, "nano")) {
        CHECK(take(0) == REFUSED && !range_of(0)->pins && !swn_tensor_of(range_of(0))->registered);
        CHECK(give_back(0) == NOT_REGISTERED);
        finish();
        return;
    }
    CHECK(!take(1) && take(1) == ALREADY);
    uintptr_t part = weights[0].own + WEIGHT_BYTES / 2;
    CHECK(cudaHostRegister((void *)part, WEIGHT_BYTES, 0) == ALREADY); /* of two tensors */
    CHECK(range_of(0)->pins == 0 && range_of(1)->pins == 1);
    CHECK(cudaHostUnregister((void *)part) == NOT_REGISTERED);
    standin_fail(1);
    CHECK(take(0) == 2 && range_of(0)->pins == 0);
    CHECK(!give_back(1) && range_of(1)->pins == 0);
    /* Of both tensors, from the middle of one to the middle of the other, both stay. */
    CHECK(!cudaHostRegister((void *)part, WEIGHT_BYTES, 0));
    CHECK(range_of(0)->pins == 1 && range_of(1)->pins == 1);
    read_all(6);
    CHECK(state_of(0) == SWN_RESIDENT && state_of(1) == SWN_RESIDENT);
    standin_reached((void *)part, WEIGHT_BYTES);
    CHECK(!cudaHostUnregister((void *)part) && !range_of(0)->pins && !range_of(1)->pins);
    /* And of no tensor. */
    static _Alignas(4096) char others[8192]; /* the stand-in looks at whole pages */
    CHECK(!cudaHostRegister(others, sizeof others, 0) && !cudaHostUnregister(others));
    finish();
}

/* A program that frees what it has registered: nobody gets that memory before the device has let go of it. */
static void freed(void *device)
{
    begin(device, 8 * MIB);
    CHECK(!take(3));
    uintptr_t at = weights[3].own;
    size_t live = counters().demand_bytes;
    free_one(3);
    struct tensor next[4];
    for (unsigned i = 0; i < 4; i++) {
        CHECK(tensor_make(&next[i], WEIGHT_BYTES, 90 + i));
        CHECK(next[i].own != at);
    }
    CHECK(counters().demand_bytes == live + 4 * WEIGHT_BYTES);
    standin_reached((void *)at, WEIGHT_BYTES);
    CHECK(!cudaHostUnregister((void *)at));
    CHECK(!swn_arena_find(e->arena, at));
    for (unsigned i = 0; i < 4; i++)
        tensor_free(&next[i]);
    finish();
}

/* A child has none of it: what it frees is freed, and what it is given may leave. */
static void forked(void *device)
{
    begin(device, 3 * MIB);
    CHECK(!take(0) && !take(1));
    uintptr_t orphan = weights[1].own;
    free_one(1);
    swn_engine_prefork();
    pid_t pid = fork();
    if (!pid) {
        swn_engine_postfork_child();
        CHECK(!range_of(0)->pins && !swn_tensor_of(range_of(0))->registered && !swn_arena_find(e->arena, orphan));
#ifndef __SANITIZE_THREAD__ /* it allows no new thread after a fork, and computing needs a queue */
        for (unsigned pass = 0; pass < 4; pass++)
            for (unsigned i = 0; i < WEIGHTS; i++)
                if (weights[i].own)
                    op_read(&weights[i]);
#endif
        free_one(0);
        _exit(0);
    }
    swn_engine_postfork_parent();
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    standin_reached((void *)weights[0].own, WEIGHT_BYTES);
    CHECK(!give_back(0) && !cudaHostUnregister((void *)orphan) && !swn_arena_find(e->arena, orphan));
}

/* A weight of which parts come and go: any byte of it will do. */
static void in_parts(void *device)
{
    struct tensor large;
    begin(device, 8 * MIB);
    CHECK(tensor_make(&large, 12 * MIB, 70));
    struct swn_range *r = swn_arena_find(e->arena, large.own);
    for (unsigned pass = 0; pass < 20 && !e->plan.planned; pass++) {
        read_all(1);
        op_read(&large);
    }
    CHECK(e->plan.planned && atomic_load(&r->state) == SWN_FILE_BACKED);
    void *part = (void *)(r->addr + r->len / 2 + SWN_PAGE);
    CHECK(!cudaHostRegister(part, SWN_PAGE, 0));
    for (unsigned pass = 0; pass < 4; pass++) {
        read_all(2);
        op_read(&large);
        CHECK(r->pins == 1 && atomic_load(&r->state) == SWN_RESIDENT);
        CHECK(!tensor_in_frames(&large));
    }
    tensor_stamp(&large, large.own, 99);
    standin_reached(part, SWN_PAGE);
    CHECK(!cudaHostUnregister(part) && !r->pins);
    read_all(2);
    op_read(&large);
    CHECK(counters().resident_bytes <= 8 * MIB);
    tensor_free(&large);
    finish();
}

static void name_of(char *name, unsigned i)
{
    sprintf(name, "w%u", i);
}

/* An operator on a tensor in the mapping, which has no word that is its own. */
static void read_mapped(struct tensor *t)
{
    struct swn_op op = {.name = "aten::test", .n = 1};
    op.args[0] = (struct swn_arg){.data = t->own, .bytes = t->len, .use = SWN_USE_WEIGHT};
    swn_engine_op_begin(&op);
    CHECK(tensor_right(t, t->own));
    swn_engine_op_end(&op);
}

/* A file that the program has mapped, of which no operator has read anything yet, or one weight. */
static void mapped(void *device)
{
    begin(device, 3 * MIB);
    uint64_t off;
    int fd = weights_file(12, WEIGHT_BYTES, name_of, &off);
    size_t len = off + 12 * WEIGHT_BYTES;
    char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(at != MAP_FAILED);
    swn_mapped_file_begin(at, len, fd, 0);
    struct tensor t[12];
    for (unsigned i = 0; i < 12; i++)
        t[i] = (struct tensor){.own = (uintptr_t)at + off + i * WEIGHT_BYTES, .len = WEIGHT_BYTES, .stamp = 100 + i};
    for (unsigned pass = 0; pass < 2; pass++)
        read_mapped(&t[1]);
    char *lo = (char *)t[0].own + 100;
    CHECK(!cudaHostRegister(lo, 2 * WEIGHT_BYTES, 0)); /* t[0], t[1] and the head of t[2] */
    for (unsigned pass = 0; pass < 4; pass++)
        for (unsigned i = 0; i < 12; i++)
            read_mapped(&t[i]);
    CHECK(swn_device_way(0, t[0].own, WEIGHT_BYTES, 1) == SWN_WAY_COPY);
    tensor_stamp(&t[0], t[0].own, 7);
    tensor_stamp(&t[1], t[1].own, 8);
    standin_reached(lo, 2 * WEIGHT_BYTES);
    CHECK(!cudaHostUnregister(lo));
    for (unsigned pass = 0; pass < 4; pass++)
        for (unsigned i = 0; i < 12; i++)
            read_mapped(&t[i]);
    swn_mapped_file_end(at, len);
    munmap(at, len);
    close(fd);
    finish();
}

/* With a device that shares memory: what the program has registered is not shared, and what is shared is not the
 * program's to unregister. */
static void shared(void *device)
{
    begin(device, 64 * MIB);
    void *at;
    CHECK(!take(0) && swn_device_way(0, weights[0].own, WEIGHT_BYTES, 1) == SWN_WAY_COPY);
    CHECK(!give_back(0) && swn_device_way(0, weights[0].own, WEIGHT_BYTES, 1) == SWN_WAY_ALIAS);
    struct swn_device_memory *m = swn_device_open(0, SWN_WAY_ALIAS, weights[0].own, WEIGHT_BYTES, &at);
    CHECK(m && give_back(0) == NOT_REGISTERED && standin_live(STANDIN_REGISTERED) == 1);
    CHECK(!swn_device_close(m, NULL, NULL));
    finish();
}

static unsigned asked;

static void goes_there(uintptr_t data, size_t bytes)
{
    CHECK(data == weights[0].own && bytes == WEIGHT_BYTES);
    CHECK(swn_device_way(0, data, bytes, 1) == SWN_WAY_COPY);
    asked++;
}

/* Who is to part the bytes from a device's is called when nobody can come to share them any more. */
static void announced(void *device)
{
    begin(device, 64 * MIB);
    struct swn_torch_backend backend = *e->torch;
    backend.device_part = goes_there;
    CHECK(swn_device_way(0, weights[0].own, WEIGHT_BYTES, 1) == SWN_WAY_ALIAS);
    swn_engine_set_torch(&backend);
    CHECK(!take(0) && asked == 1);
    CHECK(!give_back(0) && swn_device_way(0, weights[0].own, WEIGHT_BYTES, 1) == SWN_WAY_ALIAS);
    standin_fail(1); /* refused, it can be shared again */
    CHECK(take(0) && asked == 2 && swn_device_way(0, weights[0].own, WEIGHT_BYTES, 1) == SWN_WAY_ALIAS);
    finish();
}

/* The call finds the runtime that the caller is linked with, or any that is there. */
static void forwarded(void *device)
{
    (void)device;
    void *runtime;
    CHECK(!swn_cuda_runtime_symbol("cudaHostRegister", &runtime) && runtime != (void *)&cudaHostRegister);
    CHECK(swn_cuda_next("libcudart", "cudaHostRegister", (void *)&forwarded) == runtime);
    CHECK(swn_cuda_next("libcudart", "cudaHostRegister", (void *)&qsort) == runtime); /* libc knows none */
    CHECK(!swn_cuda_next("libcuda", "cuMemHostRegister_v2", (void *)&forwarded));
    CHECK(cuMemHostRegister_v2(&runtime, 1, 0) == 3 && cuMemHostUnregister(&runtime) == 3);
    /* Before there is an engine it is only forwarded. */
    static _Alignas(4096) char bytes[4096];
    CHECK(!cudaHostRegister(bytes, sizeof bytes, 0) && standin_live(STANDIN_REGISTERED) == 1);
    CHECK(!cudaHostUnregister(bytes) && standin_live(STANDIN_REGISTERED) == 0);
}

static const struct device_case cases[] = {
    {"stays", stays, DEVICES},
    {"beyond", beyond, DEVICES},
    {"larger", larger, "orin"},
    {"stuck", stuck, "orin"},
    {"refused", refused, "nano orin"},
    {"freed", freed, DEVICES},
    {"forked", forked, DEVICES},
    {"in_parts", in_parts, "orin"},
    {"mapped", mapped, "orin"},
    {"shared", shared, "xavier orin"},
    {"announced", announced, "xavier orin thor"},
    {"forwarded", forwarded, "orin"},
};

int main(void)
{
    return run_device_cases(cases, sizeof cases / sizeof cases[0]);
}
