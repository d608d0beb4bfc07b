/* Description: of models that are used in any order, the one that is asked has what it needs in memory, and an idle one
 * gives its memory. Plans go by the clock of plan_clock.h. */
/* wraps: swn_now_ns swn_cond_wait_until swn_spin_wait_wait swn_disk_speed_get swn_engine_op_end */
#define _GNU_SOURCE
#include "tests/unit/support/sliced_op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "skeleton/core/residency_steps.h"
#include "skeleton/core/ring_size.h"
#include "skeleton/core/serving.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/load/load.h"

#define MODELS 4
#define MOST 14 /* weights of a model */
#define WEIGHT_BYTES MIB
#define BUDGET (8 * MIB)
#define LARGE_BYTES (5 * MIB)
#define ROW_BYTES ((size_t)4096)
#define ACTIVATION (MIB + MIB / 2)
#define ROUNDS 8
/* What a model's first and last chunk share with others. */
#define SLACK MIB

static struct swn_engine *const e = &swn_engine_one;

static struct model {
    unsigned n;
    struct tensor weights[MOST];
    struct tensor *shared; /* another model's, which this one reads first */
} models[MODELS];

static void name_in_a_row(char *name, unsigned i)
{
    sprintf(name, "layer%02u.weight", i);
}

/* Each model has a file of its own. */
static void begin(const unsigned sizes[MODELS])
{
    CHECK(engine_begin(BUDGET, SWN_CONFIG_AUTO, NULL) == 0);
    e->config.stores |= SWN_MANY_MODELS;
    for (struct model *m = models; m < models + MODELS; m++) {
        uint64_t data_off;
        int fd = weights_file(sizes[m - models], WEIGHT_BYTES, name_in_a_row, &data_off);
        m->n = sizes[m - models];
        for (unsigned i = 0; i < m->n; i++) {
            struct tensor *t = &m->weights[i];
            CHECK(tensor_make(t, WEIGHT_BYTES, i + 1));
            off_t off = (off_t)(data_off + i * WEIGHT_BYTES);
            CHECK(swn_load_read(fd, (void *)t->own, WEIGHT_BYTES, off) == (ssize_t)WEIGHT_BYTES);
            t->stamp = i + 100;
        }
    }
    swn_engine_after_alloc();
}

static void end(void)
{
    CHECK(engine_counters().over_budget_peak == 0 && engine_counters().peak_resident <= BUDGET);
    CHECK(swn_spilled_so_far(e) == 0);
}

struct answer {
    uint64_t read, stalls;
};

/* An answer of the model, whose weights the server announces if it has to read any; the disk is faster than operators.
 */
static struct answer ask(unsigned which, int is_told)
{
    struct model *m = &models[which];
    struct tensor *all[MOST + 1];
    struct swn_serving_weight list[MOST + 1];
    struct tensor activation;
    struct answer a = {0};
    unsigned n = 0;
    uint64_t wait_ns, before;

    swn_serving_progress(&before, &wait_ns);
    a.stalls = engine_counters().stalls;
    if (m->shared)
        all[n++] = m->shared;
    for (unsigned i = 0; i < m->n; i++)
        all[n++] = &m->weights[i];
    for (unsigned i = 0; i < n; i++)
        list[i] = (struct swn_serving_weight){all[i]->own, WEIGHT_BYTES, m->weights[0].own};
    if (is_told)
        swn_serving_announce(list, swn_serving_missing(list, n) ? n : 0, m->weights[0].own);
    engine_reads_arrive();
    for (unsigned i = 0; i < n; i++) {
        CHECK(tensor_make(&activation, ACTIVATION, 7));
        op_read(all[i]);
        engine_reads_arrive();
        CHECK(tensor_right(&activation, activation.own));
        tensor_free(&activation);
    }
    swn_serving_progress(&a.read, &wait_ns);
    a.read -= before;
    a.stalls = engine_counters().stalls - a.stalls;
    return a;
}

/* Each fits; two do not. The first answer of an idle model reads what is missing of it and nothing else, ahead of its
 * operators, and the second one in a row reads nothing, in whatever order models were asked before. */
static void asked_again(void *arg)
{
    static const unsigned sizes[MODELS] = {5, 6, 4, 5};
    uint64_t chance = 3;

    (void)arg;
    begin(sizes);
    for (unsigned i = 0; i < 8 * MODELS; i++) /* an order that can be learned */
        ask(i % MODELS, 1);
    for (unsigned i = 0; i < 60; i++) {
        unsigned which = (unsigned)(next_random(&chance) % MODELS);
        struct answer first = ask(which, 1);
        CHECK(first.read <= sizes[which] * WEIGHT_BYTES + SLACK && first.stalls <= 1);
        for (unsigned again = 0; again < 2; again++) {
            struct answer second = ask(which, 1);
            CHECK(second.read == 0 && second.stalls == 0);
        }
    }
    CHECK(!e->plan.planned && engine_kept_bytes() == 0);
    end();
}

/* A weight that is the larger part of the memory, whose operator takes slices, is read ahead as any other: its reads
 * are over when its operator comes, but for what other weights need sooner. */
static void large_one_is_read_ahead(void *arg)
{
    static const unsigned sizes[MODELS] = {3, 3, 3, 3};
    struct swn_serving_weight list[4];
    struct tensor large;
    uint64_t data_off, before, read, wait_ns;
    int fd;

    (void)arg;
    begin(sizes);
    fd = weights_file(1, LARGE_BYTES, name_in_a_row, &data_off);
    CHECK(tensor_make(&large, LARGE_BYTES, 1));
    CHECK(swn_load_read(fd, (void *)large.own, LARGE_BYTES, (off_t)data_off) == (ssize_t)LARGE_BYTES);
    large.stamp = 100;
    for (unsigned i = 0; i < 3; i++) {
        CHECK(op_sliced(&large, ROW_BYTES, SIZE_MAX) > 1 || i == 0); /* at first nothing has left */
        for (unsigned m = 0; m < MODELS; m++)
            ask(m, 1);
    }
    for (unsigned i = 0; i < 3; i++)
        list[i] = (struct swn_serving_weight){.address = models[3].weights[i].own, .bytes = WEIGHT_BYTES};
    list[3] = (struct swn_serving_weight){.address = large.own, .bytes = LARGE_BYTES};
    CHECK(swn_serving_missing(&list[3], 1) > LARGE_BYTES - SLACK);
    swn_serving_announce(list, 4, large.own);
    for (unsigned i = 0; i < 3; i++) {
        op_read(&models[3].weights[i]);
        engine_reads_arrive();
    }
    swn_serving_progress(&before, &wait_ns);
    CHECK(op_sliced(&large, ROW_BYTES, SIZE_MAX) > 1);
    swn_serving_progress(&read, &wait_ns);
    CHECK(read - before <= LARGE_BYTES / 4);
    end();
}

/* Without announcements the learned order is all there is, and may lead on to another model. */
static void asked_again_untold(void *arg)
{
    static const unsigned sizes[MODELS] = {5, 6, 4, 5};
    uint64_t read = 0;

    (void)arg;
    begin(sizes);
    for (unsigned i = 0; i < 8 * MODELS; i++)
        ask(i % MODELS, 0);
    for (unsigned i = 0; i < 12; i++) {
        ask(i % MODELS, 0);
        for (unsigned again = 0; again < 3; again++)
            read = ask(i % MODELS, 0).read;
        CHECK(read == 0);
    }
    CHECK(!e->plan.planned);
    end();
}

/* The first of the models does not fit, and has a plan. While it is idle others get all of the memory that they need;
 * then it streams as little as before. */
static void one_that_does_not_fit(void *arg)
{
    static const unsigned sizes[MODELS] = {14, 5, 4, 4};
    uint64_t planned = 0, back = 0;

    (void)arg;
    begin(sizes);
    for (unsigned i = 0; i < 12; i++)
        planned = ask(0, 1).read;
    CHECK(e->plan.planned && engine_kept_bytes() > 0);
    CHECK(planned < 14 * WEIGHT_BYTES);
    for (unsigned which = 1; which < MODELS; which++) {
        for (unsigned i = 0; i < 3; i++)
            ask(which, 1);
        CHECK(ask(which, 1).read == 0);
    }
    for (unsigned which = 1; which < MODELS; which++)
        CHECK(ask(which, 1).read <= sizes[which] * WEIGHT_BYTES + SLACK);
    for (unsigned i = 0; i < 40; i++) { /* the next plan wants some passes */
        back = ask(0, 1).read;
        if (i >= 7 && back <= planned + planned / 4)
            break;
    }
    CHECK(back <= planned + planned / 4);
    end();
}

/* Two models in turns, as one answer after the other needs both: before each weight all that is read until it is read
 * again is announced. Bytes that were read. */
static uint64_t go_round(unsigned first, unsigned second)
{
    struct swn_serving_weight list[2 * MOST + 1];
    struct model *both[] = {&models[first], &models[second]};
    uint64_t before, read, wait_ns;
    struct tensor *all[2 * MOST], activation;
    unsigned n = 0;

    for (unsigned m = 0; m < 2; m++)
        for (unsigned i = 0; i < both[m]->n; i++)
            all[n++] = &both[m]->weights[i];
    swn_serving_progress(&before, &wait_ns);
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; k <= n; k++)
            list[k] = (struct swn_serving_weight){all[(i + k) % n]->own, WEIGHT_BYTES,
                                                  both[(i + k) % n >= both[0]->n]->weights[0].own};
        swn_serving_announce(list, n + 1, both[i >= both[0]->n]->weights[0].own);
        engine_reads_arrive();
        CHECK(tensor_make(&activation, ACTIVATION, 7));
        op_read(all[i]);
        engine_reads_arrive();
        CHECK(tensor_right(&activation, activation.own));
        tensor_free(&activation);
    }
    swn_serving_progress(&read, &wait_ns);
    return read - before;
}

/* One of them does not fit, and has a plan. Of both together as much stays as there is memory for, and not what the
 * plan keeps: that would leave for the other model in each round. Alone, the model streams as little as before. */
static void turns_with_a_plan(void *arg)
{
    static const unsigned sizes[MODELS] = {8, 4, 4, 4};
    uint64_t planned = 0, back = 0, read = 0;

    (void)arg;
    begin(sizes);
    for (unsigned i = 0; i < 12; i++)
        planned = ask(0, 1).read;
    CHECK(e->plan.planned && engine_kept_bytes() > 0);
    for (unsigned i = 0; i < 2; i++)
        go_round(0, 1);
    for (unsigned i = 0; i < ROUNDS; i++)
        read += go_round(0, 1);
    CHECK(e->plan.planned && swn_announced_is_round(e));
    CHECK(read <= ROUNDS * 15 * WEIGHT_BYTES / 2);
    for (unsigned i = 0; i < 40; i++) {
        back = ask(0, 1).read;
        if (i >= 7 && back <= planned + planned / 4)
            break;
    }
    CHECK(back <= planned + planned / 4);
    end();
}

static void make_plan(void)
{
    for (unsigned i = 0; i < 12; i++)
        ask(0, 1);
    CHECK(e->plan.planned && e->nonweight.planned && engine_kept_bytes() > 0);
}

/* The model that does not fit has a weight in common with one that was there before it. What the plan keeps of it is
 * not read again, neither in passes of its own nor behind a read of that weight. */
static void one_that_shares_a_weight(void *arg)
{
    static const unsigned sizes[MODELS] = {14, 5, 4, 4};
    struct answer a = {0};

    (void)arg;
    begin(sizes);
    models[0].shared = &models[1].weights[0];
    make_plan();
    for (unsigned i = 0; i < 3; i++)
        a = ask(0, 1);
    CHECK(!swn_announced_is_round(e)); /* all of it is this model's */
    CHECK(a.read + engine_kept_bytes() <= 15 * WEIGHT_BYTES + SLACK);
    for (unsigned i = 0; i < 3; i++)
        ask(1, 1);
    CHECK(ask(1, 1).read == 0);
    for (unsigned i = 0; i < 40; i++) {
        a = ask(0, 1);
        if (i >= 7 && a.read + engine_kept_bytes() <= 15 * WEIGHT_BYTES + SLACK)
            break;
    }
    CHECK(engine_kept_bytes() && a.read + engine_kept_bytes() <= 15 * WEIGHT_BYTES + SLACK);
    end();
}

/* Models that fit each, and take turns, have no plan, whatever part of the turn is one model's. */
static void turns_are_no_model(void *arg)
{
    static const unsigned sizes[MODELS] = {6, 4, 3, 2};

    (void)arg;
    begin(sizes);
    for (unsigned i = 0; i < 20; i++) {
        ask(0, 1);
        ask(1, 1);
    }
    CHECK(!e->plan.planned && engine_kept_bytes() == 0);
    end();
}

static void plan_is_over(void)
{
    CHECK(!e->plan.planned && !e->plan.in_force.n && !e->plan.in_force.file);
    CHECK(e->nonweight.planned == 0 && engine_kept_bytes() == 0);
    CHECK(e->plan.ring_goal == swn_round_up(swn_ring_first(e), swn_pool_unit(e->pool)));
}

/* The model that does not fit is unloaded: nothing stays reserved for it, and others are served as if it had never been
 * there. */
static void its_plan_ends_with_it(void *arg)
{
    static const unsigned sizes[MODELS] = {14, 5, 6, 4};

    (void)arg;
    begin(sizes);
    make_plan();
    for (unsigned i = 0; i < models[0].n; i++)
        tensor_free(&models[0].weights[i]);
    plan_is_over();
    for (unsigned i = 0; i < 8; i++)
        for (unsigned which = 1; which < MODELS; which++) {
            ask(which, 1);
            CHECK(ask(which, 1).read == 0);
        }
    plan_is_over();
    end();
}

/* A model that is asked while the plan is in force for another one does not end it, nor does its end. */
static void others_do_not_end_it(void *arg)
{
    static const unsigned sizes[MODELS] = {14, 5, 4, 4};

    (void)arg;
    begin(sizes);
    make_plan();
    for (unsigned i = 0; i < 6; i++)
        ask(1, 1);
    for (unsigned i = 0; i < models[1].n; i++)
        tensor_free(&models[1].weights[i]);
    CHECK(e->plan.planned && e->nonweight.planned);
    end();
}

/* The budget is raised until the model fits. */
static void plan_ends_when_it_fits(void *arg)
{
    static const unsigned sizes[MODELS] = {14, 5, 4, 4};

    (void)arg;
    begin(sizes);
    make_plan();
    struct swn_budget_change change;
    CHECK(swn_engine_set_budget(3 * BUDGET, 20000, &change) == 0);
    for (unsigned i = 0; i < 8; i++)
        ask(0, 1);
    plan_is_over();
    CHECK(ask(0, 1).read == 0);
    CHECK(swn_spilled_so_far(e) == 0);
}

IN_A_CHILD(asked_again, 120)
IN_A_CHILD(its_plan_ends_with_it, 120)
IN_A_CHILD(others_do_not_end_it, 120)
IN_A_CHILD(plan_ends_when_it_fits, 120)
IN_A_CHILD(asked_again_untold, 120)
IN_A_CHILD(large_one_is_read_ahead, 120)
IN_A_CHILD(one_that_does_not_fit, 120)
IN_A_CHILD(one_that_shares_a_weight, 120)
IN_A_CHILD(turns_are_no_model, 120)
IN_A_CHILD(turns_with_a_plan, 120)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asked_again),
        cmocka_unit_test(test_asked_again_untold),
        cmocka_unit_test(test_large_one_is_read_ahead),
        cmocka_unit_test(test_one_that_does_not_fit),
        cmocka_unit_test(test_its_plan_ends_with_it),
        cmocka_unit_test(test_others_do_not_end_it),
        cmocka_unit_test(test_plan_ends_when_it_fits),
        cmocka_unit_test(test_one_that_shares_a_weight),
        cmocka_unit_test(test_turns_are_no_model),
        cmocka_unit_test(test_turns_with_a_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
