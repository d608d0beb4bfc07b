/* Description: a checkpoint that is loaded by reference is read ahead in the order of its store in the first pass, as
 * long as that is the order in which it is used. */
#define _GNU_SOURCE
#include "swn_engine_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "swn_load.h"

#define WEIGHTS 24
#define WEIGHT_BYTES MIB
#define BUDGET (8 * MIB)
#define AGED 80 /* operators after which a tensor is taken for a weight */

static struct swn_engine *const e = &swn_engine_one;
static struct tensor weights[WEIGHTS], *small;
static uint64_t data_off;
static char path[256];

/* A safetensors file; tensors are sorted by name as its writers do. */
static int write_checkpoint(void)
{
    static char header[16384];
    size_t n = 8;
    n += (size_t)sprintf(header + n, "{");
    for (unsigned i = 0; i < WEIGHTS; i++)
        n += (size_t)sprintf(header + n,
                             "%s\"layer%02u.weight\":{\"dtype\":\"F32\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}",
                             i ? "," : "", i, WEIGHT_BYTES / 4, i * WEIGHT_BYTES, (i + 1) * WEIGHT_BYTES);
    n += (size_t)sprintf(header + n, "}");
    while (n % 64)
        header[n++] = ' ';
    uint64_t bytes = n - 8;
    memcpy(header, &bytes, 8);
    data_off = n;
    snprintf(path, sizeof path, "/var/tmp/t_firstpass-%ld.safetensors", (long)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    unlink(path);
    CHECK(fd >= 0 && write(fd, header, n) == (ssize_t)n);
    void *bytes_of = aligned_alloc(4096, WEIGHT_BYTES);
    for (unsigned i = 0; i < WEIGHTS; i++) {
        struct tensor t = {.len = WEIGHT_BYTES};
        memset(bytes_of, 0, WEIGHT_BYTES);
        tensor_stamp(&t, (uintptr_t)bytes_of, i + 100);
        CHECK(write(fd, bytes_of, WEIGHT_BYTES) == (ssize_t)WEIGHT_BYTES);
    }
    free(bytes_of);
    return fd;
}

static void load_all(int fd)
{
    for (unsigned i = 0; i < WEIGHTS; i++) {
        CHECK(tensor_make(&weights[i], WEIGHT_BYTES, i + 1));
        off_t off = (off_t)(data_off + i * WEIGHT_BYTES);
        CHECK(swn_load_read(fd, (void *)weights[i].own, WEIGHT_BYTES, off) == (ssize_t)WEIGHT_BYTES);
        weights[i].stamp = i + 100;
    }
    CHECK(e->deferred == WEIGHTS * WEIGHT_BYTES);
    swn_engine_after_alloc();
    static struct tensor other;
    small = &other;
    CHECK(tensor_make(small, 64 << 10, 1));
    for (unsigned i = 0; i < AGED; i++)
        op_read(small);
}

static int has_frame(unsigned i)
{
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = swn_arena_find(e->arena, weights[i].own);
    int has = r->frame != NULL;
    pthread_mutex_unlock(&e->lock);
    return has;
}

static void in_store_order(void *arg)
{
    (void)arg;
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    load_all(write_checkpoint());
    size_t window = 0;
    for (unsigned i = 0; i < WEIGHTS; i++) {
        op_read(&weights[i]);
        CHECK(i + 1 == WEIGHTS || has_frame(i + 1));
        window = swn_pool_window(e->pool) > window ? swn_pool_window(e->pool) : window;
        CHECK(swn_engine_resident(e) <= BUDGET);
    }
    CHECK(window > 2 * MIB); /* lent, up to a third */
    CHECK(window <= BUDGET / 3 + SWN_GRANULE);
    /* Room that something else needs is given back before anything leaves. */
    uint64_t spilled = e->spill->written_bytes;
    struct tensor large;
    CHECK(tensor_make(&large, BUDGET - 3 * MIB, 5));
    CHECK(swn_engine_resident(e) <= BUDGET && e->spill->written_bytes <= spilled + small->len);
    tensor_free(&large);
    for (unsigned pass = 0; pass < 4; pass++)
        for (unsigned i = 0; i < WEIGHTS; i++)
            op_read(&weights[i]);
    CHECK(e->planned && !e->over_budget_peak);
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
    load_all(write_checkpoint());
    for (unsigned i = 0; i < WEIGHTS; i++)
        op_read(&weights[WEIGHTS - 1 - i]);
    struct swn_stats stats;
    swn_engine_stats(&stats);
    CHECK(stats.streamed_bytes <= (WEIGHTS + 1) * WEIGHT_BYTES);
}

static void reads_arrive(void)
{
    for (int filling = 1; filling; usleep(1000)) {
        pthread_mutex_lock(&e->lock);
        filling = 0;
        for (struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
            filling += f->state == SWN_FRAME_FILLING;
        pthread_mutex_unlock(&e->lock);
    }
}

/* A budget that shrinks takes lent room back before it writes anything, and it is not lent again over the new one. */
static void budget_shrinks(void *arg)
{
    (void)arg;
    size_t before = 16 * MIB, after = 14 * MIB;
    CHECK(engine_begin(before, SWN_CONFIG_AUTO, NULL) == 0);
    load_all(write_checkpoint());
    struct tensor cache;
    CHECK(tensor_make(&cache, 11 * MIB, 5));
    unsigned i = 0;
    for (; i < WEIGHTS / 2; i++)
        op_read(&weights[i]);
    reads_arrive();
    CHECK(e->lent_from && swn_pool_window(e->pool) > e->lent_from);
    CHECK(swn_engine_resident(e) > after);
    uint64_t spilled = e->spill->written_bytes;
    struct swn_budget_change change;
    CHECK(swn_engine_set_budget(after, 20000, &change) == 0 && change.bound);
    CHECK(e->spill->written_bytes == spilled);
    for (; i < WEIGHTS; i++) {
        CHECK(swn_engine_resident(e) <= after);
        op_read(&weights[i]);
    }
    CHECK(swn_engine_resident(e) <= after && !e->over_budget_peak);
    CHECK(tensor_right(&cache, cache.own));
}

#define ALONE(name)                                                                                                    \
    static void name##_alone(void **state)                                                                             \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        assert_int_equal(run_alone(name, NULL, 120), 0);                                                               \
    }

ALONE(in_store_order)
ALONE(in_another_order)
ALONE(budget_shrinks)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_store_order_alone),
        cmocka_unit_test(in_another_order_alone),
        cmocka_unit_test(budget_shrinks_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
