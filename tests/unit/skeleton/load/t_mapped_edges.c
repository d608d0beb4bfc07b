/* Description: tensors of a mapped file that meet within a page leave no gap between their ranges, so that the chunk in
 * which they meet is mapped at once; and what is stored there, or on its way there, is in nobody's way. */
#define _GNU_SOURCE
#include "blocks/memory/publish.h"
#include "tests/unit/support/engine_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/page.h"
#include "skeleton/core/op_window.h"
#include "skeleton/engine/engine.h"
#include "skeleton/engine/section.h"
#include "skeleton/load/mapped_file.h"

#define WEIGHTS 24u
#define BYTES (3 * MIB + 5 * SWN_PAGE) /* one and a half chunks, and no whole number of granules */
#define BUDGET (24 * MIB)
#define TAIL 64u
#define GIB (UINT64_C(1) << 30)

static struct swn_engine *const e = &swn_engine_one;
static struct tensor weights[WEIGHTS];

static void name_of(char *name, unsigned i)
{
    sprintf(name, "layer%02u.weight", i);
}

static void map_at(void *at, int fd, size_t len, uint64_t data_off)
{
    CHECK(at != MAP_FAILED && data_off % SWN_PAGE > TAIL);
    swn_mapped_file_begin(at, len, fd, 0);
    for (unsigned i = 0; i < WEIGHTS; i++)
        weights[i] = (struct tensor){.own = (uintptr_t)at + data_off + i * BYTES, .len = BYTES, .stamp = i + 100};
    swn_engine_after_alloc();
}

static void begin(void)
{
    uint64_t data_off;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    int fd = weights_file(WEIGHTS, BYTES, name_of, &data_off);
    size_t len = data_off + WEIGHTS * BYTES;
    map_at(mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0), fd, len, data_off);
}

/* Where the kernel gives addresses from below, files lie above what was reserved before. 0: the thread sanitizer has
 * other plans for all addresses there. */
static int begin_above(void)
{
    uint64_t data_off;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    int fd = weights_file(WEIGHTS, BYTES, name_of, &data_off);
    size_t len = data_off + WEIGHTS * BYTES;
    void *at = MAP_FAILED;
    for (uintptr_t to = swn_round_up(swn_arena_hi(e->arena), GIB); at == MAP_FAILED && to < UINT64_C(1) << 47;
         to += GIB)
        at = mmap((void *)to, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0);
    if (at != MAP_FAILED)
        map_at(at, fd, len, data_off);
    return at != MAP_FAILED;
}

/* Whether the last `changed` bytes of the weight are `to`, and all before them are the file's. */
static int is_right(unsigned i, size_t changed, int to)
{
    const unsigned char *tail = (const unsigned char *)weights[i].own + BYTES - changed;
    for (size_t k = 0; k < changed; k++)
        if (tail[k] != to)
            return 0;
    return tensor_right_part(&weights[i], weights[i].own, 0, BYTES - changed);
}

static void use(unsigned i, enum swn_use as, size_t changed, int to)
{
    struct swn_op op = {.name = "aten::test", .n = 1};
    op.args[0] = (struct swn_arg){.mapped = 1, .data = weights[i].own, .bytes = BYTES, .use = as};
    swn_engine_op_begin(&op);
    CHECK(is_right(i, changed, to));
    swn_engine_op_end(&op);
}

static void pass(void)
{
    for (unsigned i = 0; i < WEIGHTS; i++)
        use(i, SWN_USE_WEIGHT, 0, 0);
}

static struct swn_range *range_of(unsigned i)
{
    return swn_arena_find(e->arena, weights[i].own);
}

/* The bytes in front of the weight are the last ones of the weight before it. */
static void no_gap(void *arg)
{
    (void)arg;
    begin();
    pass();
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(range_of(i) && range_of(i) == swn_arena_find(e->arena, weights[i].own + SWN_GRANULE));
    for (unsigned i = 1; i < WEIGHTS; i++) {
        CHECK(range_of(i - 1) != range_of(i) && range_of(i)->addr <= weights[i].own);
        CHECK(range_of(i - 1)->addr + range_of(i - 1)->len == range_of(i)->addr);
    }
    for (unsigned passes = 0; passes < 4; passes++)
        pass();
    /* Each frame is mapped at once: it has parts of two ranges, and no page in between. */
    unsigned shared = 0;
    swn_lock(&e->lock);
    for (const struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
        for (unsigned k = 1; !f->pending && k < f->n; k++, shared++)
            CHECK(f->parts[k - 1].at + f->parts[k - 1].bytes == f->parts[k].at);
    swn_unlock(&e->lock);
    CHECK(shared > 0 && engine_counters().window_misses == 0);
}

/* A store that nobody announces, into the page that two weights share: each keeps its bytes, the new ones too. */
static void stored_in_between(void *arg)
{
    enum { AT = 6 };
    (void)arg;
    begin();
    for (int to = 0; to < 3; to++) { /* while it comes and goes, while it is in a frame, and when that was noticed */
        for (unsigned i = 0; i < WEIGHTS; i++)
            use(i, SWN_USE_WEIGHT, i == AT && to ? TAIL : 0, to);
        memset((void *)(weights[AT].own + BYTES - TAIL), to + 1, TAIL);
        use(AT, SWN_USE_WEIGHT, TAIL, to + 1);
        use(AT + 1, SWN_USE_WEIGHT, 0, 0);
    }
    for (unsigned i = 0; i < WEIGHTS; i++)
        use(i, SWN_USE_WEIGHT, i == AT ? TAIL : 0, 3);
    CHECK(!engine_counters().over_budget_peak);
}

/* An operator that writes the whole tensor. */
static void written_in_between(void *arg)
{
    enum { AT = 9 };
    (void)arg;
    begin();
    pass();
    struct swn_op op = {.name = "aten::fill_", .n = 1};
    op.args[0] = (struct swn_arg){.mapped = 1, .data = weights[AT].own, .bytes = BYTES, .use = SWN_USE_OVERWRITE};
    swn_engine_op_begin(&op);
    memset((void *)weights[AT].own, 7, BYTES);
    swn_engine_op_end(&op);
    for (unsigned passes = 0; passes < 3; passes++)
        for (unsigned i = 0; i < WEIGHTS; i++)
            use(i, SWN_USE_WEIGHT, i == AT ? BYTES : 0, 7);
}

/* While the kernel writes the end of a weight, the page there is not made read-only for the next weight's sake. */
static void receive(void)
{
    use(3, SWN_USE_WEIGHT, 0, 0);
    void *tail = (void *)(weights[2].own + BYTES - TAIL);
    CHECK(!range_of(2) && range_of(3)->addr < weights[3].own);
    swn_engine_pin(tail, TAIL);
    CHECK(range_of(3)->receiving == 1 && range_of(3)->pins == 1);
    swn_engine_unpin(tail, TAIL);
    CHECK(range_of(3)->receiving == 0 && range_of(3)->pins == 0);
    /* The same from far before: the place between is no range's. Another thread's operator makes it one. */
    swn_engine_pin((void *)weights[2].own, BYTES);
    CHECK(range_of(3)->receiving == 1);
    use(2, SWN_USE_WEIGHT, 0, 0);
    swn_engine_unpin((void *)weights[2].own, BYTES);
    CHECK(range_of(3)->receiving == 0 && range_of(3)->pins == 0);
    CHECK(range_of(2)->receiving == 0 && range_of(2)->pins == 0);
    /* A length that is far more than there is. */
    swn_engine_pin((void *)weights[3].own, SIZE_MAX / 2);
    CHECK(range_of(3)->receiving == 1 && range_of(2)->receiving == 0);
    swn_engine_unpin((void *)weights[3].own, SIZE_MAX / 2);
    CHECK(range_of(3)->receiving == 0);
}

static void received_in_between(void *arg)
{
    (void)arg;
    begin();
    receive();
}

static void received_above(void *arg)
{
    (void)arg;
    if (begin_above())
        receive();
}

IN_A_CHILD(no_gap, 60)
IN_A_CHILD(stored_in_between, 60)
IN_A_CHILD(written_in_between, 60)
IN_A_CHILD(received_in_between, 60)
IN_A_CHILD(received_above, 60)

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_gap), cmocka_unit_test(test_stored_in_between),
                                       cmocka_unit_test(test_written_in_between),
                                       cmocka_unit_test(test_received_in_between),
                                       cmocka_unit_test(test_received_above)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
