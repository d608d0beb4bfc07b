/* Description: weights that a serving process announces are read ahead in that order, and those leave first that it
 * needs last. */
#define _GNU_SOURCE
#include "blocks/memory/publish.h"
#include "tests/unit/support/engine_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "blocks/memory/frame_pool.h"
#include "skeleton/core/prefetch.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/core/serving.h"

#define WEIGHTS 24
#define WEIGHT_BYTES ((size_t)512 << 10)
#define BUDGET (6 * MIB)
#define GROUP 8 /* weights */

static struct swn_engine *const e = &swn_engine_one;
static struct tensor weights[WEIGHTS];

/* All of them are on the disk, and no order is learned: as in an engine that runs its models in any order. */
static void begin(void)
{
    uint64_t chance = 3;

    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    e->config.stores |= SWN_MANY_MODELS;
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], WEIGHT_BYTES, i + 1));
    pthread_mutex_lock(&e->lock);
    CHECK(swn_open_pool(e) == 0);
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next)
        CHECK(atomic_load(&r->state) != SWN_RESIDENT || swn_spill_range(e, r) == 0);
    pthread_mutex_unlock(&e->lock);
    for (unsigned i = 0; i < 8 * WEIGHTS; i++)
        op_read(&weights[next_random(&chance) % WEIGHTS]);
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(atomic_load(&swn_arena_find(e->arena, weights[i].own)->state) == SWN_FILE_BACKED);
    CHECK(!e->plan.planned);
}

static void end(void)
{
    CHECK(engine_counters().over_budget_peak == 0 && engine_counters().peak_resident <= BUDGET);
    for (unsigned i = 0; i < WEIGHTS; i++)
        tensor_free(&weights[i]);
    engine_is_empty();
}

static void announce(const unsigned *order, size_t n)
{
    struct swn_serving_weight list[4 * WEIGHTS];

    CHECK(n <= 4 * WEIGHTS);
    for (size_t i = 0; i < n; i++)
        list[i] = (struct swn_serving_weight){.address = weights[order[i]].own, .bytes = WEIGHT_BYTES};
    swn_serving_announce(list, n, 0);
}

/* An order that no pass had is read ahead before its first operator, and its operators wait for nothing. */
static void is_read_ahead(void *arg)
{
    static const unsigned order[] = {19, 3, 11, 7, 15, 1};
    uint64_t stalls;

    (void)arg;
    begin();
    announce(order, 6);
    engine_reads_arrive();
    for (unsigned i = 0; i < 6; i++)
        CHECK(tensor_in_frames(&weights[order[i]]));
    stalls = engine_counters().stalls;
    for (unsigned i = 0; i < 6; i++)
        op_read(&weights[order[i]]);
    CHECK(engine_counters().stalls == stalls);
    end();
}

/* As much as there is memory for: the reads that are to come take the place of those that are over. */
static void goes_on_as_memory_is_free(void *arg)
{
    unsigned order[2 * WEIGHTS], first = 0;

    (void)arg;
    begin();
    for (unsigned i = 0; i < 2 * WEIGHTS; i++)
        order[i] = i * 7 % WEIGHTS; /* 7 and 24 have no divisor in common */
    announce(order, 2 * WEIGHTS);
    engine_reads_arrive();
    for (; tensor_in_frames(&weights[order[first]]); first++)
        CHECK(first < WEIGHTS);
    CHECK(first >= 3);
    uint64_t stalls = engine_counters().stalls;
    for (unsigned i = 0; i < 2 * WEIGHTS; i++) {
        op_read(&weights[order[i]]);
        engine_reads_arrive();
    }
    CHECK(engine_counters().stalls == stalls);
    end();
}

/* What the order needs soon stays, whenever it was used; what it needs last leaves for what comes before. */
static void last_needed_leaves_first(void *arg)
{
    static const unsigned soon[] = {2, 5, 8}, late[] = {2, 5, 8, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 0};

    (void)arg;
    begin();
    announce(soon, 3);
    engine_reads_arrive();
    announce(late, 16);
    engine_reads_arrive();
    for (unsigned i = 0; i < 3; i++)
        CHECK(tensor_in_frames(&weights[soon[i]]));
    announce((const unsigned[]){0}, 1);
    engine_reads_arrive();
    CHECK(tensor_in_frames(&weights[0]));
    announce((const unsigned[]){14, 0, 2}, 3);
    engine_reads_arrive();
    CHECK(tensor_in_frames(&weights[14]) && tensor_in_frames(&weights[0]) && tensor_in_frames(&weights[2]));
    end();
}

/* The same weights for one request after the other: none leaves in between. */
static void repeated_reads_hold_weights(void *arg)
{
    static const unsigned order[] = {4, 9, 17, 4, 9, 17, 4, 9, 17, 20, 21, 22, 23, 0, 1, 2, 3, 5, 6};

    (void)arg;
    begin();
    announce(order, 19);
    engine_reads_arrive();
    for (unsigned i = 0; i < 3; i++)
        op_read(&weights[order[i]]);
    engine_reads_arrive();
    for (unsigned i = 3; i < 9; i++) {
        CHECK(tensor_in_frames(&weights[order[i]]));
        op_read(&weights[order[i]]);
    }
    end();
}

/* Runs the group of weights from `first` on for each of `turns` requests, one after the other, as a server announces
 * it: the group once more as long as a turn is left, and then the groups behind it. */
static void run_in_turns(unsigned first, unsigned turns)
{
    for (unsigned turn = 0; turn < turns; turn++) {
        unsigned order[2 * WEIGHTS], n = 0;
        for (unsigned i = first; i < first + GROUP; i++)
            order[n++] = i;
        for (unsigned i = turn + 1 < turns ? first : first + GROUP; i < WEIGHTS; i++)
            order[n++] = i;
        announce(order, n);
        for (unsigned i = first; i < first + GROUP; i++) {
            op_read(&weights[i]);
            engine_reads_arrive();
        }
    }
}

static uint64_t bytes_of_pass(unsigned turns)
{
    uint64_t before, after, wait_ns;

    swn_serving_progress(&before, &wait_ns);
    for (unsigned first = 0; first < WEIGHTS; first += GROUP)
        run_in_turns(first, turns);
    swn_serving_progress(&after, &wait_ns);
    return after - before;
}

/* A plan keeps most of the budget for the weights of all groups, and its ring is narrower than a group. Requests in
 * lockstep read each weight at most once all the same, and one request alone afterwards reads about what it did before.
 */
static void kept_frames_make_room_for_turns(void *arg)
{
    uint64_t alone = 0, together = 0;

    (void)arg;
    begin();
    for (unsigned pass = 0; pass < 30 && !e->plan.planned; pass++)
        for (unsigned i = 0; i < WEIGHTS; i++)
            op_read(&weights[i]);
    CHECK(e->plan.planned && e->plan.ring_goal < GROUP * WEIGHT_BYTES && engine_kept_bytes() > 0);
    for (unsigned pass = 0; pass < 4; pass++)
        alone = bytes_of_pass(1);
    for (unsigned pass = 0; pass < 3; pass++) {
        together = bytes_of_pass(5);
        CHECK(together <= WEIGHTS * WEIGHT_BYTES);
    }
    for (unsigned pass = 0; pass < 6; pass++)
        together = bytes_of_pass(1);
    CHECK(together <= alone + alone / 2);
    end();
}

/* Tensors that are alive, and the most since the last look: what a request takes is told by these. */
static void living_tensors_are_counted(void *arg)
{
    struct tensor a, b;
    uint64_t peak, before, now;

    (void)arg;
    begin();
    before = swn_serving_tensors(&peak);
    CHECK(before >= WEIGHTS * WEIGHT_BYTES && peak >= before);
    CHECK(tensor_make(&a, MIB, 1) && tensor_make(&b, MIB, 2));
    tensor_free(&a);
    now = swn_serving_tensors(&peak);
    CHECK(now == before + MIB && peak == before + 2 * MIB);
    CHECK(swn_serving_tensors(&peak) == now && peak == now);
    swn_engine_count_small(5000);
    CHECK(swn_serving_tensors(&peak) == now + 5000 && peak == now + 5000);
    swn_engine_count_small(-5000);
    tensor_free(&b);
    for (unsigned i = 0; i < WEIGHTS; i++)
        op_read(&weights[i]); /* weights come and go, and stay alive */
    CHECK(swn_serving_tensors(&peak) == before);
    end();
}

/* Operators that read something else, tensors that are gone, and addresses of nothing do no harm. */
static void wrong_orders_do_no_harm(void *arg)
{
    static const struct swn_serving_weight nothing[] = {
        {0, 4096, 0}, {UINTPTR_MAX, SIZE_MAX, UINTPTR_MAX}, {(uintptr_t)nothing, 1, (uintptr_t)nothing}};
    static struct swn_serving_weight many[SWN_ANNOUNCED_MOST + 64];
    static const unsigned order[] = {1, 2, 3, 4, 5, 6};

    (void)arg;
    begin();
    swn_serving_announce(nothing, 3, 0);
    CHECK(e->ops.announced.count == 0);
    announce(order, 6);
    for (unsigned i = 10; i < WEIGHTS; i++)
        op_read(&weights[i]);
    CHECK(e->ops.announced.count == 6 && e->ops.announced.first == 0);
    tensor_free(&weights[1]);
    op_read(&weights[2]);
    CHECK(tensor_make(&weights[1], WEIGHT_BYTES, 77)); /* maybe at the same address */
    for (unsigned i = 0; i < WEIGHTS; i++)
        op_read(&weights[i]);
    for (size_t i = 0; i < SWN_ANNOUNCED_MOST + 64; i++)
        many[i] = (struct swn_serving_weight){.address = weights[i % WEIGHTS].own, .bytes = WEIGHT_BYTES};
    swn_serving_announce(many, SWN_ANNOUNCED_MOST + 64, 0);
    CHECK(e->ops.announced.count <= SWN_ANNOUNCED_MOST && e->ops.announced.count > SWN_ANNOUNCED_MOST / 4);
    for (unsigned i = WEIGHTS; i-- > 0;)
        op_read(&weights[i]);
    end();
}

/* A large model has thousands of weights, and is read ahead to its end, be it asked after another one. */
static void many_weights_are_read_ahead(void *arg)
{
    enum { MANY = 1500 };
    static struct tensor many[MANY];
    static struct swn_serving_weight list[MANY];

    (void)arg;
    CHECK(engine_begin(2 * MANY * SWN_GRANULE + 32 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    e->config.stores |= SWN_MANY_MODELS;
    for (size_t i = 0; i < MANY; i++) {
        CHECK(tensor_make(&many[i], SWN_GRANULE, i + 1));
        list[i] = (struct swn_serving_weight){.address = many[i].own, .bytes = SWN_GRANULE};
    }
    pthread_mutex_lock(&e->lock);
    CHECK(swn_open_pool(e) == 0);
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next)
        CHECK(atomic_load(&r->state) != SWN_RESIDENT || swn_spill_range(e, r) == 0);
    pthread_mutex_unlock(&e->lock);
    op_read(&many[0]); /* a thread that has computed */
    swn_serving_announce(list, MANY, 0);
    engine_reads_arrive();
    CHECK(tensor_in_frames(&many[MANY / 2]) && tensor_in_frames(&many[MANY - 1]));
    uint64_t stalls = engine_counters().stalls;
    for (size_t i = 0; i < MANY; i++)
        op_read(&many[i]);
    CHECK(engine_counters().stalls == stalls);
    for (size_t i = 0; i < MANY; i++)
        tensor_free(&many[i]);
    engine_is_empty();
}

/* No order: as if there had been none. */
static void empty_order_ends_it(void *arg)
{
    static const unsigned order[] = {19, 3, 11};

    (void)arg;
    begin();
    announce(order, 3);
    engine_reads_arrive();
    announce(NULL, 0);
    pthread_mutex_lock(&e->lock);
    for (struct swn_frame *f = swn_pool_first(e->pool); f; f = f->next)
        CHECK(swn_frame_use(f)->next == 0);
    pthread_mutex_unlock(&e->lock);
    for (unsigned i = 0; i < WEIGHTS; i++)
        op_read(&weights[i]);
    end();
}

static _Atomic int is_done;

static void *announcer(void *unused)
{
    uint64_t chance = 5;

    (void)unused;
    while (!atomic_load(&is_done)) {
        unsigned order[40], n = (unsigned)(next_random(&chance) % 41);
        for (unsigned i = 0; i < n; i++)
            order[i] = (unsigned)(next_random(&chance) % WEIGHTS);
        announce(order, n);
        usleep(200);
    }
    return NULL;
}

/* Another thread announces at any time, and operators read what they want: each sees its bytes, within the budget. */
static void from_another_thread(void *arg)
{
    pthread_t thread;
    uint64_t chance = 11;

    (void)arg;
    begin();
    CHECK(!pthread_create(&thread, NULL, announcer, NULL));
    for (unsigned i = 0; i < 600; i++)
        op_read(&weights[next_random(&chance) % WEIGHTS]);
    atomic_store(&is_done, 1);
    CHECK(!pthread_join(thread, NULL));
    end();
}

IN_A_CHILD(is_read_ahead, 120)
IN_A_CHILD(goes_on_as_memory_is_free, 120)
IN_A_CHILD(last_needed_leaves_first, 120)
IN_A_CHILD(repeated_reads_hold_weights, 120)
IN_A_CHILD(kept_frames_make_room_for_turns, 120)
IN_A_CHILD(wrong_orders_do_no_harm, 120)
IN_A_CHILD(living_tensors_are_counted, 120)
IN_A_CHILD(many_weights_are_read_ahead, 120)
IN_A_CHILD(empty_order_ends_it, 120)
IN_A_CHILD(from_another_thread, 120)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_read_ahead),
        cmocka_unit_test(test_goes_on_as_memory_is_free),
        cmocka_unit_test(test_last_needed_leaves_first),
        cmocka_unit_test(test_repeated_reads_hold_weights),
        cmocka_unit_test(test_kept_frames_make_room_for_turns),
        cmocka_unit_test(test_wrong_orders_do_no_harm),
        cmocka_unit_test(test_living_tensors_are_counted),
        cmocka_unit_test(test_many_weights_are_read_ahead),
        cmocka_unit_test(test_empty_order_ends_it),
        cmocka_unit_test(test_from_another_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
