#define _GNU_SOURCE
#include "tests/unit/support/swapped_weights.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tensor weights[WEIGHTS];
struct swn_device_memory *held[WEIGHTS];
void *closed[WEIGHTS];
void *const stream = (void *)0x10;

struct swn_stats counters(void)
{
    struct swn_stats stats;
    swn_engine_stats(&stats);
    return stats;
}

int is_card(const char *device)
{
    return !strcmp(device, "discrete");
}

void begin_with(const char *device, size_t budget, size_t card, const size_t *sizes, size_t kinds)
{
    struct swn_runtime_services host;
    standin_be(device);
    engine_device_budget = is_card(device) ? card : 0;
    CHECK(!engine_begin(budget, SWN_CONFIG_PREAD, NULL));
    swn_engine_services(&host);
    CHECK(host.device_type == SWN_DEVICE_CUDA);
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], sizes[i % kinds], i + 1));
}

void begin(const char *device)
{
    static const size_t size = WEIGHT_BYTES;
    begin_with(device, SHARED_BUDGET, MAPPED_BUDGET, &size, 1);
}

void give(unsigned i)
{
    enum swn_way way = (enum swn_way)swn_device_way(0, weights[i].own, weights[i].len, 1);
    CHECK(way != SWN_WAY_COPY);
    held[i] = swn_device_open(0, way, weights[i].own, weights[i].len, &closed[i]);
    CHECK(held[i]);
}

unsigned give_all(void)
{
    unsigned come_and_go = 0;
    for (unsigned i = 0; i < WEIGHTS; i++) {
        give(i);
        come_and_go += swn_device_swaps(held[i]) != 0;
    }
    return come_and_go;
}

void settle(void)
{
    for (int i = 0; i < 5000 && (counters().device_resident_bytes || standin_live(STANDIN_RESERVED)); i++)
        usleep(1000);
}

void take_all(void)
{
    for (unsigned i = 0; i < WEIGHTS; i++) {
        if (held[i])
            CHECK(!device_let_go(held[i]));
        held[i] = NULL;
        tensor_free(&weights[i]);
    }
    engine_is_empty();
}

int read_on(unsigned i, void *on, unsigned us)
{
    void *at = closed[i];
    int captured = 0, err = swn_device_swaps(held[i]) ? swn_device_begin(&held[i], 1, on, &at, &captured) : 0;
    if (err)
        return err;
    standin_await(on);
    CHECK(tensor_right(&weights[i], (uintptr_t)standin_view(at)));
    const void *stretch = at;
    standin_launch(on, us, &stretch, &weights[i].len, 1);
    if (swn_device_swaps(held[i]))
        swn_device_end(&held[i], 1, on, captured);
    return 0;
}

void pass(void)
{
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(!read_on(i, stream, 500));
}

void wait_for_quiet(void)
{
    uint64_t before = UINT64_MAX, now;
    for (int i = 0; i < 100 && (now = counters().device_swap_ins) != before; i++) {
        before = now;
        usleep(20000);
    }
}
