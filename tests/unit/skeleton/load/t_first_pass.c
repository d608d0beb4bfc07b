/* Description: in the first pass a checkpoint that is loaded by reference is read ahead in the order of its store, as
 * long as that is the order in which it is used; a mapped one in the order that its layers have in common. */
#define _GNU_SOURCE
#include "tests/unit/support/engine_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "skeleton/load/mapped_file.h"
#include "skeleton/load/load.h"
#include "skeleton/core/op_window.h"
#include "skeleton/engine/accounting.h"

#define WEIGHTS 24
#define WEIGHT_BYTES MIB
#define BUDGET (8 * MIB)
#define AGED 80 /* operators after which a tensor is taken for a weight */

static struct swn_engine *const e = &swn_engine_one;
static struct tensor weights[WEIGHTS], *small;
static unsigned count = WEIGHTS; /* of the checkpoint */
static size_t each = WEIGHT_BYTES;
static uint64_t data_off;

/* How weight i is called. */
static void name_in_a_row(char *name, unsigned i)
{
    sprintf(name, "layer%02u.weight", i);
}

static int write_checkpoint(void (*name_of)(char *name, unsigned i))
{
    return weights_file(count, each, name_of, &data_off);
}

/* Tensors become weights when they are this old. */
static void grow_old(void)
{
    static struct tensor other;
    small = &other;
    CHECK(tensor_make(small, 64 << 10, 1));
    for (unsigned i = 0; i < AGED; i++)
        op_read(small);
}

static void load_all(int fd)
{
    for (unsigned i = 0; i < count; i++) {
        CHECK(tensor_make(&weights[i], each, i + 1));
        off_t off = (off_t)(data_off + i * each);
        CHECK(swn_load_read(fd, (void *)weights[i].own, each, off) == (ssize_t)each);
        weights[i].stamp = i + 100;
    }
    CHECK(engine_counters().deferred == count * each);
    swn_engine_after_alloc();
    grow_old();
}

static int has_frame(unsigned i)
{
    return tensor_in_frames(&weights[i]);
}

/* Models that are used in any order, so that there is no plan: what was read last is in memory, as much of it as the
 * budget holds, and not the few frames of a ring only. */
static void many_models(void *arg)
{
    enum { MODEL = 5 };
    unsigned missing = 0, model = 0;
    uint32_t state = 1;
    (void)arg;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    e->config.stores |= SWN_MANY_MODELS;
    load_all(write_checkpoint(name_in_a_row));
    for (unsigned round = 0; round < 40; round++) {
        state = state * 1664525u + 1013904223u;
        model = (model + 1 + state / 65536u % (WEIGHTS / MODEL - 1)) % (WEIGHTS / MODEL);
        for (unsigned i = 0; i < 2 * MODEL; i++) {
            unsigned k = model * MODEL + i % MODEL;
            missing += i >= MODEL && !has_frame(k);
            op_read(&weights[k]);
            CHECK(swn_engine_resident(e) <= BUDGET);
        }
    }
    CHECK(missing <= MODEL);
}

static void in_store_order(void *arg)
{
    (void)arg;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    load_all(write_checkpoint(name_in_a_row));
    size_t window = 0;
    for (unsigned i = 0; i < WEIGHTS; i++) {
        op_read(&weights[i]);
        CHECK(i + 1 == WEIGHTS || has_frame(i + 1));
        window = engine_window_bytes() > window ? engine_window_bytes() : window;
        CHECK(swn_engine_resident(e) <= BUDGET);
    }
    CHECK(window > 2 * MIB); /* lent, up to a third */
    CHECK(window <= BUDGET / 3 + 2 * swn_pool_unit(e->pool));
    /* Room that something else needs is given back before anything leaves. */
    uint64_t spilled = e->writes.spill->written_bytes;
    struct tensor large;
    CHECK(tensor_make(&large, BUDGET - 3 * MIB, 5));
    CHECK(swn_engine_resident(e) <= BUDGET && e->writes.spill->written_bytes <= spilled + small->len);
    tensor_free(&large);
    CHECK(!e->plan.planned);
    for (unsigned pass = 0; pass < 4; pass++)
        for (unsigned i = 0; i < WEIGHTS; i++) {
            op_read(&weights[i]);
            CHECK(e->plan.planned || (!pass && i < 2)); /* one pass is enough */
        }
    CHECK(!engine_counters().over_budget_peak);
    tensor_free(small);
    for (unsigned i = 0; i < WEIGHTS; i++)
        tensor_free(&weights[i]);
    engine_is_empty();
}

/* Used in another order: nothing is read for nothing. */
static void in_another_order(void *arg)
{
    (void)arg;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    load_all(write_checkpoint(name_in_a_row));
    for (unsigned i = 0; i < WEIGHTS; i++)
        op_read(&weights[WEIGHTS - 1 - i]);
    struct swn_stats stats;
    swn_engine_stats(&stats);
    CHECK(stats.streamed_bytes <= (WEIGHTS + 1) * WEIGHT_BYTES);
}

/* Three weights a layer, which are in the file in another order than they are used in. */
#define PER_LAYER 3
static void name_in_a_layer(char *name, unsigned i)
{
    sprintf(name, "m.layers.%u.%c.weight", i / PER_LAYER, 'a' + (int)(i % PER_LAYER));
}

static void map_all(int fd)
{
    size_t len = data_off + count * each;
    char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(at != MAP_FAILED);
    swn_mapped_file_begin(at, len, fd, 0);
    for (unsigned i = 0; i < count; i++)
        weights[i] = (struct tensor){.own = (uintptr_t)at + data_off + i * each, .len = each, .stamp = i + 100};
    swn_engine_after_alloc();
    grow_old();
}

/* An operator on a tensor in the mapping, which has no word that is its own. */
static void read_mapped(unsigned i)
{
    struct swn_op op = {.name = "aten::test", .n = 1};
    op.args[0] = (struct swn_arg){.mapped = 1, .data = weights[i].own, .bytes = weights[i].len, .use = SWN_USE_WEIGHT};
    swn_engine_op_begin(&op);
    CHECK(tensor_right(&weights[i], weights[i].own));
    swn_engine_op_end(&op);
}

static void as_in_the_layer_before(void *arg)
{
    static const unsigned used[PER_LAYER] = {2, 0, 1};
    (void)arg;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    map_all(write_checkpoint(name_in_a_layer));
    for (unsigned step = 0; step < WEIGHTS; step++) {
        unsigned next = step + 1, i = (next / PER_LAYER) * PER_LAYER + used[next % PER_LAYER];
        read_mapped(step / PER_LAYER * PER_LAYER + used[step % PER_LAYER]);
        if (next > PER_LAYER && next < WEIGHTS)
            CHECK(has_frame(i));
        CHECK(swn_engine_resident(e) <= BUDGET);
    }
    struct swn_stats stats;
    swn_engine_stats(&stats);
    /* Where a slow machine reads ahead late, what a weight shares with its neighbour may be read once more. */
    CHECK(stats.streamed_bytes <= WEIGHTS * WEIGHT_BYTES * 9 / 8 && !stats.window_misses);
    /* Another order than that of the layers: the bytes are right all the same. */
    for (unsigned i = 0; i < WEIGHTS; i++)
        read_mapped(WEIGHTS - 1 - i);
    CHECK(swn_engine_resident(e) <= BUDGET && !engine_counters().over_budget_peak);
}

/* Weights of more than half of the budget, which have room: a mapped one cannot come in slices, and another one whose
 * operator has not asked for any is not going to. Neither is read by page faults. */
enum { LARGE = 3, LARGE_BUDGET = 12 * MIB };
static void read_large(void (*use)(unsigned i), unsigned first)
{
    uint64_t by_faults = 0;
    for (unsigned pass = 0; pass < first + 2; pass++) {
        by_faults = e->res.fallback_pages;
        for (unsigned i = 0; i < LARGE; i++)
            use(i);
        CHECK(swn_engine_resident(e) <= LARGE_BUDGET);
        /* Where a tensor of a mapped file begins and ends its page is its neighbour's, too; the kernel maps some more.
         */
        CHECK(pass < first || e->res.fallback_pages - by_faults <= LARGE * each / SWN_PAGE / 32);
    }
    CHECK(!engine_counters().over_budget_peak);
}

static void read_loaded(unsigned i)
{
    op_read(&weights[i]);
}

static void large(int is_mapped)
{
    count = LARGE;
    each = 13 * MIB / 2;
    CHECK(engine_begin(LARGE_BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    int fd = write_checkpoint(name_in_a_row);
    (is_mapped ? map_all : load_all)(fd);
    read_large(is_mapped ? read_mapped : read_loaded, !is_mapped);
}

static void large_and_mapped(void *arg)
{
    (void)arg;
    large(1);
}

static void large_and_loaded(void *arg)
{
    (void)arg;
    large(0);
}

static void write_mapped(unsigned i)
{
    struct swn_op op = {.name = "aten::test_", .n = 1};
    op.args[0] = (struct swn_arg){.mapped = 1, .data = weights[i].own, .bytes = weights[i].len, .use = SWN_USE_WRITE};
    swn_engine_op_begin(&op);
    swn_engine_op_end(&op);
}

/* Layers that use their first weight again at the end. What followed it is known from its last use but one, so what is
 * foreseen goes round in a circle, here one of weights that are resident and need no room: it ends all the same. */
static void in_circles(void *arg)
{
    static const unsigned used[] = {0, 1, 0};
    (void)arg;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    map_all(write_checkpoint(name_in_a_layer));
    write_mapped(2 * PER_LAYER + used[0]);
    write_mapped(2 * PER_LAYER + used[1]);
    for (unsigned layer = 0; layer < WEIGHTS / PER_LAYER; layer++)
        for (unsigned i = 0; i < 3; i++)
            read_mapped(layer * PER_LAYER + used[i]);
    CHECK(swn_engine_resident(e) <= BUDGET);
}

/* A budget that shrinks takes lent room back before it writes anything, and it is not lent again over the new one. */
static void budget_shrinks(void *arg)
{
    (void)arg;
    size_t before = 16 * MIB, after = 14 * MIB;
    CHECK(engine_begin(before, SWN_CONFIG_AUTO, NULL) == 0);
    load_all(write_checkpoint(name_in_a_row));
    struct tensor cache;
    CHECK(tensor_make(&cache, 11 * MIB, 5));
    unsigned i = 0;
    for (; i < WEIGHTS / 2; i++)
        op_read(&weights[i]);
    engine_reads_arrive();
    CHECK(e->plan.lent_from && engine_window_bytes() > e->plan.lent_from);
    CHECK(swn_engine_resident(e) > after);
    uint64_t spilled = e->writes.spill->written_bytes;
    struct swn_budget_change change;
    CHECK(swn_engine_set_budget(after, 20000, &change) == 0 && change.bound);
    CHECK(e->writes.spill->written_bytes == spilled);
    for (; i < WEIGHTS; i++) {
        CHECK(swn_engine_resident(e) <= after);
        op_read(&weights[i]);
    }
    CHECK(swn_engine_resident(e) <= after && !engine_counters().over_budget_peak);
    CHECK(tensor_right(&cache, cache.own));
}

IN_A_CHILD(many_models, 60)
IN_A_CHILD(in_store_order, 120)
IN_A_CHILD(in_another_order, 120)
IN_A_CHILD(as_in_the_layer_before, 120)
IN_A_CHILD(in_circles, 120)
IN_A_CHILD(budget_shrinks, 120)
IN_A_CHILD(large_and_mapped, 60)
IN_A_CHILD(large_and_loaded, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_models),      cmocka_unit_test(test_in_store_order),
        cmocka_unit_test(test_in_another_order), cmocka_unit_test(test_as_in_the_layer_before),
        cmocka_unit_test(test_in_circles),       cmocka_unit_test(test_budget_shrinks),
        cmocka_unit_test(test_large_and_mapped), cmocka_unit_test(test_large_and_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
