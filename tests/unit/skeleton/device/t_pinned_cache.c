/* Description: copies in pinned memory of weights that come and go on a card: made as far as the budget has room that
 * nobody else wants, sent from there, and given up for whoever wants it. */
#define _GNU_SOURCE
#include "tests/unit/support/swapped_weights.h"

#include <stdlib.h>
#include <unistd.h>

/* What comes again and again is sent from pinned memory, for which the budget has room; and nothing else is read. */
static void copied(void *device)
{
    static const size_t size = WEIGHT_BYTES;
    begin_with(device, 96 * MIB, MAPPED_BUDGET, &size, 1);
    give_all();
    pass();
    CHECK(counters().device_pinned_bytes == 0); /* it might all be here to stay */
    for (int i = 0; i < 4; i++)
        pass();
    struct swn_stats before = counters();
    CHECK(before.device_pinned_bytes > 4 * MIB && before.device_pinned_bytes <= WEIGHTS * MIB);
    CHECK(standin_live(STANDIN_REGISTERED) > 2); /* stages are */
    unsigned changes = standin_changes();
    pass();
    CHECK(counters().device_swap_ins > before.device_swap_ins);
    CHECK(standin_changes() == changes);
    CHECK(counters().over_budget_bytes == 0);
    cudaDeviceSynchronize();
    take_all();
    settle();
    CHECK(counters().device_pinned_bytes == 0 && standin_live(STANDIN_REGISTERED) == 2);
}

static void until_pinned(int any)
{
    for (int i = 0; i < 100 && (counters().device_pinned_bytes > 0) != any; i++)
        any ? pass() : (void)usleep(10000);
    CHECK((counters().device_pinned_bytes > 0) == any);
}

/* Others who want the room have it: a smaller budget, a tensor; no copy is made where there is none to spare. */
static void copies_go(void *device)
{
    static const size_t size = WEIGHT_BYTES;
    struct swn_budget_change change;
    struct tensor other;
    begin_with(device, 96 * MIB, MAPPED_BUDGET, &size, 1);
    give_all();
    until_pinned(1);
    CHECK(counters().small_bytes < 8 * MIB && counters().demand_bytes < 48 * MIB); /* nobody's need */
    uint64_t spilled = counters().spilled_bytes;
    CHECK(!swn_engine_set_budget(30 * MIB, 10000, &change) && change.bound);
    CHECK(counters().resident_bytes <= 30 * MIB && counters().spilled_bytes == spilled);
    until_pinned(0);
    pass();
    pass();
    CHECK(counters().device_pinned_bytes == 0);
    CHECK(!swn_engine_set_budget(96 * MIB, 10000, &change) && change.bound);
    until_pinned(1);
    for (int i = 0; i < 3; i++)
        pass();
    uint64_t pinned = counters().device_pinned_bytes;
    CHECK(tensor_make(&other, 68 * MIB, 99));
    CHECK(counters().device_pinned_bytes < pinned);
    for (int i = 0; i < 3; i++)
        pass();
    CHECK(tensor_right(&other, other.own));
    CHECK(counters().over_budget_bytes == 0);
    tensor_free(&other);
    until_pinned(1);
    cudaDeviceSynchronize();
    take_all();
}

/* A copy that the driver does not let go of is lost, and counts; nobody waits for it, and there are others. */
static void copy_lost(void *device)
{
    static const size_t size = WEIGHT_BYTES;
    struct swn_budget_change change;
    begin_with(device, 96 * MIB, MAPPED_BUDGET, &size, 1);
    give_all();
    for (int i = 0; i < 5; i++)
        pass();
    until_pinned(1);
    cudaDeviceSynchronize();
    wait_for_quiet();
    uint64_t small = counters().small_bytes, spilled = counters().spilled_bytes;
    standin_fail(1);
    CHECK(!swn_engine_set_budget(33 * MIB, 10000, &change) && change.bound);
    standin_fail(0);
    CHECK(counters().small_bytes > small && counters().spilled_bytes == spilled);
    until_pinned(0);
    pass();
    CHECK(!swn_engine_set_budget(96 * MIB, 10000, &change) && change.bound);
    until_pinned(1);
    cudaDeviceSynchronize();
    _exit(0); /* what is lost stays */
}

static const struct device_case cases[] = {
    {"copied", copied, "discrete"},
    {"copies_go", copies_go, "discrete"},
    {"copy_lost", copy_lost, "discrete"},
};

int main(void)
{
    return run_device_cases(cases, sizeof cases / sizeof cases[0]);
}
