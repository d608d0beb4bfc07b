/* Description: whatever is mapped there, an operator's weights have the right bytes at their own address, while other
 * threads evict, prefetch, write, free and change the order. */
/* wraps: swn_now_ns swn_cond_wait_until swn_spin_wait_wait swn_disk_speed_get swn_engine_op_end */
#define _GNU_SOURCE
#include "blocks/memory/publish.h"
#include "tests/unit/support/engine_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#define WEIGHTS 24
#define WEIGHT_BYTES ((size_t)512 << 10)
#define BUDGET (6 * MIB)
#ifdef __SANITIZE_THREAD__
#define STORM_OPS 400
#else
#define STORM_OPS 800
#endif

static struct tensor weights[WEIGHTS];
static struct swn_engine *const e = &swn_engine_one;

static void make_weights(void)
{
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], WEIGHT_BYTES, i + 1));
}

static void free_weights(void)
{
    for (unsigned i = 0; i < WEIGHTS; i++)
        tensor_free(&weights[i]);
    engine_is_empty();
}

static void passes(unsigned n)
{
    for (unsigned pass = 0; pass < n; pass++)
        for (unsigned i = 0; i < WEIGHTS; i++)
            op_read(&weights[i]);
}

/* Weights count as such when they are old enough; then two passes to learn the order. */
static void settle_in(void)
{
    passes(6);
}

static void begin(void *arg)
{
    CHECK(engine_begin(BUDGET, *(enum swn_config_fetch *)arg, NULL) == 0);
    make_weights();
}

/* Frames are mapped at the weights' own addresses: nobody ever gets another one. */
static void at_its_own_address(void *arg)
{
    begin(arg);
    settle_in();
    static const enum swn_use uses[] = {SWN_USE_WEIGHT, SWN_USE_INPUT, SWN_USE_WEIGHT};
    uint64_t chance = 7;
    unsigned mapped = 0;
    for (unsigned op_number = 0; op_number < 20 * WEIGHTS; op_number++) {
        struct tensor *args[3];
        /* Three passes in a row, then at random; the same weight may come twice. */
        for (unsigned i = 0; i < 3; i++)
            args[i] = &weights[op_number < 3 * WEIGHTS ? (op_number + i) % WEIGHTS : next_random(&chance) % WEIGHTS];
        struct swn_op op;
        op_open(&op, args, uses, 3);
        for (unsigned i = 0; i < 3; i++) {
            mapped += tensor_mapped(args[i]) != 0;
            CHECK(op.args[i].data == args[i]->own);
            CHECK(tensor_right(args[i], args[i]->own));
        }
        op_close(&op);
    }
    CHECK(mapped > 10 * WEIGHTS);
    CHECK(engine_counters().over_budget_peak == 0);
    CHECK(engine_counters().peak_resident <= BUDGET);
    free_weights();
}

/* An input that left while the weights were made, and is read once in every pass, is there when it is read, and stays
 * there without a new plan each time. */
static void input_comes_back(void *arg)
{
    struct tensor input;
    CHECK(engine_begin(BUDGET, *(enum swn_config_fetch *)arg, NULL) == 0);
    CHECK(tensor_make(&input, (size_t)128 << 10, 77));
    make_weights();
    struct swn_range *r = swn_arena_find(e->arena, input.own);
    CHECK(atomic_load(&r->state) == SWN_FILE_BACKED);
    static const enum swn_use uses[] = {SWN_USE_INPUT, SWN_USE_WEIGHT};
    uint64_t plans = 0;
    for (unsigned pass = 0; pass < 24; pass++) {
        for (unsigned i = 0; i < WEIGHTS; i++) {
            struct tensor *args[2] = {&input, &weights[i]};
            struct swn_op op;
            op_open(&op, &args[i > 0], &uses[i > 0], 2 - (i > 0));
            CHECK(i || tensor_right(&input, (uintptr_t)input.word));
            CHECK(tensor_right(&weights[i], (uintptr_t)weights[i].word));
            op_close(&op);
        }
        if (pass == 16)
            plans = e->plan.made;
        CHECK(pass <= 16 || atomic_load(&r->state) == SWN_RESIDENT);
    }
    CHECK(e->plan.planned && e->plan.made == plans && engine_counters().over_budget_peak == 0);
    tensor_free(&input);
    free_weights();
}

/* A plan that is made when activations are at their least leaves room for their most all the same. */
static void plan_in_mid_pass(void *arg)
{
    begin(arg);
    struct tensor large;
    for (unsigned pass = 0; pass < 24; pass++)
        for (unsigned i = 0; i < WEIGHTS; i++) {
            if (i == 1)
                CHECK(tensor_make(&large, 2 * MIB, 99));
            op_read(&weights[i]);
            if (i == 3)
                tensor_free(&large);
            if (pass >= 8 && i > 4) /* as a new budget does */
                e->plan.dirty = 1;
            CHECK(pass < 8 || (e->plan.planned && e->nonweight.planned >= 2 * MIB));
        }
    CHECK(e->plan.made > 10 && engine_counters().over_budget_peak == 0);
    free_weights();
}

/* A tensor of the pass that many operators read, as a dense block's features are, does not become part of the order:
 * its successor in the next pass is another one, and there would never be a plan. */
static void features_are_no_weights(void *arg)
{
    begin(arg);
    enum swn_use use[] = {SWN_USE_WEIGHT};
    uint64_t misses = 0;
    for (unsigned pass = 0; pass < 16; pass++) {
        struct tensor features, *args[] = {&features};
        if (pass == 8)
            misses = e->ops.threads->cursor.misses;
        CHECK(tensor_make(&features, 256 << 10, pass));
        for (unsigned i = 0; i < WEIGHTS; i++) {
            op_read(&weights[i]);
            for (unsigned k = 0; k < 3 * SWN_AGED_OPS / WEIGHTS; k++) {
                struct swn_op op;
                op_open(&op, args, use, 1);
                CHECK(tensor_right(&features, features.own));
                op_close(&op);
            }
        }
        tensor_free(&features);
    }
    CHECK(e->plan.planned && e->weights.live == WEIGHTS && e->ops.threads->cursor.misses == misses);
    free_weights();
}

/* Raw stores, in whatever state the weight is: streamed, in the window, on its way, kept. */
static void writes_from_outside(void *arg)
{
    begin(arg);
    settle_in();
    uint64_t chance = 3;
    for (unsigned i = 0; i < 12 * WEIGHTS; i++) {
        struct tensor *t = &weights[next_random(&chance) % WEIGHTS];
        if (i % 3 == 0)
            tensor_stamp(t, t->own, 1000 + i);
        op_read(&weights[i % WEIGHTS]);
        CHECK(tensor_right(t, t->own));
    }
    free_weights();
}

/* An operator that writes what its schema calls an input: the bytes become resident. */
static void store_into_a_frame(void *arg)
{
    begin(arg);
    settle_in();
    static const enum swn_use use = SWN_USE_WEIGHT;
    unsigned mapped = 0;
    for (unsigned i = 0; i < 3 * WEIGHTS; i++) {
        struct tensor *t = &weights[i % WEIGHTS];
        struct swn_op op;
        op_open(&op, &t, &use, 1);
        mapped += tensor_mapped(t) != 0;
        if (i % 5 == 0)
            tensor_stamp(t, t->own, 5000 + i);
        op_close(&op);
        CHECK(tensor_right(t, t->own));
    }
    CHECK(mapped > 0);
    passes(2);
    free_weights();
}

/* resize_ and set_ inside an operator: the storage has other memory when the window closes, or none. */
static void storage_moves_inside(void *arg)
{
    begin(arg);
    settle_in();
    static const enum swn_use use = SWN_USE_WEIGHT;
    unsigned mapped = 0;
    for (unsigned i = 0; i < 6 * WEIGHTS; i++) {
        struct tensor *t = &weights[i % WEIGHTS];
        struct swn_op op;
        op_open(&op, &t, &use, 1);
        CHECK(tensor_right(t, (uintptr_t)t->word));
        if (i % 5 == 0) {
            mapped += tensor_mapped(t) != 0;
            struct tensor old = *t;
            if (i % 2)
                CHECK(tensor_make(t, WEIGHT_BYTES, 7000 + i));
            CHECK(swn_engine_free((void *)old.own) == 1); /* by its deleter, which knows the own address */
            /* The next tensor may get the same address and the same descriptor. */
            if (i % 2 == 0)
                CHECK(tensor_make(t, WEIGHT_BYTES, 7000 + i));
        }
        op_close(&op);
        CHECK((uintptr_t)t->word == t->own);
        CHECK(tensor_right(t, t->own));
        const struct swn_range *r = swn_arena_find(e->arena, t->own);
        CHECK(swn_tensor_of(r)->readers == 0 && r->pins == 0);
    }
    CHECK(mapped > 0);
    passes(2);
    free_weights();
}

/* Written by operators: announced, in part and as a whole, through one storage and through two. */
static void writes_by_operators(void *arg)
{
    begin(arg);
    settle_in();
    uint64_t chance = 11;
    for (unsigned i = 0; i < 8 * WEIGHTS; i++) {
        struct tensor *from = &weights[i % WEIGHTS];
        struct tensor *to = i % 4 == 2 ? from : &weights[next_random(&chance) % WEIGHTS]; /* add_(w, w), too */
        struct tensor *args[] = {from, to};
        enum swn_use uses[] = {SWN_USE_WEIGHT, i % 2 ? SWN_USE_WRITE : SWN_USE_OVERWRITE};
        struct swn_op op;
        op_open(&op, args, uses, 2);
        CHECK((uintptr_t)to->word == to->own);
        CHECK(!tensor_mapped(to)); /* never a frame for a writer */
        CHECK(tensor_right(from, (uintptr_t)from->word));
        if (uses[1] == SWN_USE_WRITE)
            CHECK(tensor_right(to, to->own));
        if (from != to || uses[1] == SWN_USE_WRITE)
            tensor_stamp(to, to->own, 9000 + i);
        else
            tensor_stamp(to, to->own, to->stamp);
        op_close(&op);
    }
    passes(2);
    free_weights();
}

static pthread_rwlock_t guards[WEIGHTS];
static _Atomic unsigned stamps;

/* One thread of a program: its own order, changed now and then; every weight's users are ordered by its lock, as a
 * correct program's are, and nothing else is ordered. */
static void *storm_thread(void *arg)
{
    uint64_t chance = 88172645463325252ULL ^ (uint64_t)(uintptr_t)arg * 0x9E3779B97F4A7C15ULL;
    unsigned order[WEIGHTS];
    for (unsigned i = 0; i < WEIGHTS; i++)
        order[i] = i;
    for (unsigned n = 0; n < STORM_OPS; n++) {
        if (n % (5 * WEIGHTS) == 0)
            for (unsigned i = WEIGHTS - 1; i; i--) {
                unsigned j = (unsigned)(next_random(&chance) % (i + 1)), swap = order[i];
                order[i] = order[j];
                order[j] = swap;
            }
        unsigned k = order[n % WEIGHTS];
        struct tensor *t = &weights[k];
        unsigned what = (unsigned)(next_random(&chance) % 64);
        if (what > 3) {
            pthread_rwlock_rdlock(&guards[k]);
            op_read(t);
            if (what % 16 == 5)
                CHECK(tensor_right(t, t->own));
            pthread_rwlock_unlock(&guards[k]);
            continue;
        }
        pthread_rwlock_wrlock(&guards[k]);
        uint64_t stamp = 100 + atomic_fetch_add(&stamps, 1);
        static const enum swn_use use = SWN_USE_WRITE;
        struct swn_op op;
        switch (what) {
        case 0:
            tensor_stamp(t, t->own, stamp);
            break;
        case 1:
            op_open(&op, &t, &use, 1);
            CHECK(tensor_right(t, t->own));
            tensor_stamp(t, t->own, stamp);
            op_close(&op);
            break;
        case 2:
            tensor_free(t);
            CHECK(tensor_make(t, WEIGHT_BYTES, stamp));
            break;
        default: /* by the kernel, as a receive would */
            swn_engine_pin((void *)t->own, t->len);
            tensor_stamp(t, t->own, stamp);
            swn_engine_unpin((void *)t->own, t->len);
        }
        pthread_rwlock_unlock(&guards[k]);
    }
    return NULL;
}

static void storm(void *arg)
{
    begin(arg);
    settle_in();
    pthread_t threads[4];
    for (unsigned i = 0; i < WEIGHTS; i++)
        pthread_rwlock_init(&guards[i], NULL);
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, storm_thread, (void *)(i + 1)) == 0);
    for (unsigned i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    struct swn_stats stats;
    swn_engine_stats(&stats);
    CHECK(stats.swap_ins > WEIGHTS);
    CHECK(e->ops.open == NULL);
    passes(3); /* alone again */
    free_weights();
}

static struct tensor *streamed(void)
{
    for (unsigned i = 0; i < WEIGHTS; i++) {
        struct swn_range *r = swn_arena_find(e->arena, weights[i].own);
        if (atomic_load(&r->state) == SWN_FILE_BACKED && !tensor_in_frames(&weights[i]))
            return &weights[i];
    }
    return NULL;
}

static void *read_one(void *t)
{
    op_read(t);
    return NULL;
}

/* A thread waits for a read that has not begun while another overwrites the weight: the read is called off, and its
 * place in the window is free again. */
static void overwritten_while_awaited(void *arg)
{
    begin(arg);
    settle_in();
    struct tensor *t = streamed();
    CHECK(t != NULL);
    struct swn_range *r = swn_arena_find(e->arena, t->own);
    pthread_t reader;
    swn_fetch_pause(e->fetch);
    CHECK(pthread_create(&reader, NULL, read_one, t) == 0);
    for (int waiting = 0; !waiting; usleep(1000)) {
        pthread_mutex_lock(&e->lock);
        const struct swn_chunk *c = swn_pool_chunk(e->pool, swn_residency_chunks(&e->res, r).first);
        waiting = c->frame && c->users;
        pthread_mutex_unlock(&e->lock);
    }
    static const enum swn_use use = SWN_USE_OVERWRITE;
    struct swn_op op;
    op_open(&op, &t, &use, 1);
    tensor_stamp(t, t->own, t->stamp); /* the same, so that the reader is right whenever it looks */
    op_close(&op);
    swn_fetch_resume(e->fetch);
    CHECK(pthread_join(reader, NULL) == 0);
    passes(2);
    free_weights();
}

/* A Python operator may fork. In the child it ends, too: with nothing of what it held in the parent. */
static void fork_inside_an_operator(void *arg)
{
    begin(arg);
    settle_in();
    static const enum swn_use uses[] = {SWN_USE_WEIGHT, SWN_USE_WRITE};
    for (unsigned i = 0; i < 6; i++) {
        struct tensor *args[] = {&weights[4 * i], &weights[4 * i + 1]};
        struct swn_op op;
        op_open(&op, args, uses, 2);
        swn_engine_prefork();
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (!pid) {
            swn_engine_postfork_child();
            for (unsigned k = 0; k < 2; k++)
                CHECK(tensor_right(args[k], (uintptr_t)args[k]->word));
            op_close(&op);
            for (unsigned k = 0; k < 2; k++) {
                const struct swn_range *r = swn_arena_find(e->arena, args[k]->own);
                CHECK((uintptr_t)args[k]->word == args[k]->own);
                CHECK(swn_tensor_of(r)->readers == 0 && r->pins == 0);
            }
#ifndef __SANITIZE_THREAD__ /* it allows no new thread after a fork, and computing needs a queue */
            passes(2);
            free_weights();
#endif
            _exit(0);
        }
        swn_engine_postfork_parent();
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        op_close(&op);
        passes(1);
    }
}

static enum swn_config_fetch every_path[] = {SWN_CONFIG_AUTO, SWN_CONFIG_PREAD, SWN_CONFIG_BUFFERED};

static void on_every_path(void (*test)(void *arg))
{
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(run_alone(test, &every_path[i], 60), 0);
}

#define ON_EVERY_PATH(test)                                                                                            \
    static void test##_on_every_path(void **state)                                                                     \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        on_every_path(test);                                                                                           \
    }
ON_EVERY_PATH(at_its_own_address)
ON_EVERY_PATH(input_comes_back)
ON_EVERY_PATH(plan_in_mid_pass)
ON_EVERY_PATH(features_are_no_weights)
ON_EVERY_PATH(writes_from_outside)
ON_EVERY_PATH(store_into_a_frame)
ON_EVERY_PATH(storage_moves_inside)
ON_EVERY_PATH(writes_by_operators)
ON_EVERY_PATH(overwritten_while_awaited)
ON_EVERY_PATH(fork_inside_an_operator)
ON_EVERY_PATH(storm)

/* An attention layer reads two weights in one operator, 3.4 and 1.1 MiB: the window holds both, whatever the budget. */
static void two_in_one_operator(void *arg)
{
    enum { LAYERS = 4, EACH = 4 };
    static const size_t sizes[EACH] = {27 * MIB / 8, 9 * MIB / 8, 9 * MIB / 2, 9 * MIB / 2};
    static const enum swn_use uses[] = {SWN_USE_WEIGHT, SWN_USE_WEIGHT};
    struct tensor all[LAYERS * EACH];
    CHECK(engine_begin(*(size_t *)arg, SWN_CONFIG_AUTO, NULL) == 0);
    for (unsigned i = 0; i < LAYERS * EACH; i++)
        CHECK(tensor_make(&all[i], sizes[i % EACH], i + 1));
    uint64_t misses = 0;
    for (unsigned pass = 0; pass < 12; pass++) {
        misses = pass < 9 ? engine_counters().window_misses : misses;
        for (unsigned i = 0; i < LAYERS * EACH; i += EACH) {
            struct tensor *both[] = {&all[i], &all[i + 1]};
            struct swn_op op;
            op_open(&op, both, uses, 2);
            for (unsigned k = 0; k < 2; k++)
                CHECK(tensor_right(both[k], (uintptr_t)__atomic_load_n(&both[k]->word, __ATOMIC_ACQUIRE)));
            op_close(&op);
            op_read(&all[i + 2]);
            op_read(&all[i + 3]);
        }
    }
    CHECK(e->plan.planned && engine_counters().window_misses == misses);
}

static void two_in_one_operator_at_any_budget(void **state)
{
    (void)state;
    for (size_t budget = 18 * MIB; budget < 54 * MIB; budget += 6 * MIB * 4 / rounds_of(4))
        assert_int_equal(run_alone(two_in_one_operator, &budget, 60), 0);
}

/* The same input over and over, which left while the model was made. Nobody plans to keep it, and where everything else
 * just fits there is no window for it either: the next plan leaves room for it, and is the last one. */
static void input_beside_the_plan(void *arg)
{
    static const enum swn_use input_use[] = {SWN_USE_INPUT};
    struct tensor input, activation, *in = &input;
    uint64_t plans = 0;
    CHECK(engine_begin(*(size_t *)arg, SWN_CONFIG_AUTO, NULL) == 0);
    CHECK(tensor_make(&input, 600 << 10, 99));
    make_weights();
    for (unsigned pass = 0; pass < 40; pass++) {
        plans = pass == 20 ? e->plan.made : plans;
        for (unsigned i = 0; i < WEIGHTS; i++) {
            CHECK(tensor_make(&activation, MIB, i));
            if (!i) {
                struct swn_op op;
                op_open(&op, &in, input_use, 1);
                CHECK(tensor_right(&input, input.own));
                op_close(&op);
            }
            op_read(&weights[i]);
            tensor_free(&activation);
        }
    }
    CHECK(!e->plan.planned || e->plan.made <= plans + 1);
}

static void input_beside_the_plan_at_any_budget(void **state)
{
    (void)state;
    for (size_t budget = 12 * MIB + MIB / 2; budget < 15 * MIB; budget += MIB / 2 * 4 / rounds_of(4))
        assert_int_equal(run_alone(input_beside_the_plan, &budget, 60), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(input_beside_the_plan_at_any_budget),
        cmocka_unit_test(two_in_one_operator_at_any_budget),
        cmocka_unit_test(at_its_own_address_on_every_path),
        cmocka_unit_test(input_comes_back_on_every_path),
        cmocka_unit_test(plan_in_mid_pass_on_every_path),
        cmocka_unit_test(features_are_no_weights_on_every_path),
        cmocka_unit_test(writes_from_outside_on_every_path),
        cmocka_unit_test(storage_moves_inside_on_every_path),
        cmocka_unit_test(store_into_a_frame_on_every_path),
        cmocka_unit_test(writes_by_operators_on_every_path),
        cmocka_unit_test(overwritten_while_awaited_on_every_path),
        cmocka_unit_test(fork_inside_an_operator_on_every_path),
        cmocka_unit_test(storm_on_every_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
