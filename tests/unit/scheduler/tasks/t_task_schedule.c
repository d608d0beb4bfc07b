/* Description: a schedule is what the policy does step by step, or of lookahead a plan with every layer of it in order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scheduler/tasks/lookahead.h"
#include "scheduler/tasks/schedule.h"
#include "tests/unit/support/random.h"
#include "tests/unit/support/task_fixture.h"

static struct swn_task_schedule schedule;

static void make(struct task_fixture *x, uint32_t networks)
{
    uint64_t most = 0, bytes;

    task_begin(x, 1, 0);
    x->s.machine.readers = 1;
    for (uint32_t n = 0; n < networks; n++) {
        task_add(x, 3);
        for (uint32_t l = 0; l < 3; l++)
            x->layers[n][l] = (struct swn_task_layer){
                .load_bytes = 100 + rnd_below(900), .compute_ns = 100 + rnd_below(900), .is_dense = l == 2};
        bytes = swn_task_largest(&x->networks[n], 1);
        most = bytes > most ? bytes : most;
    }
    x->s.machine.memory_bytes = 2 * most;
}

static void a_plan_has_every_layer_in_order(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        uint32_t loads[4] = {0}, computes[4] = {0};
        uint64_t before = 0;
        struct swn_task_decision first;
        struct task_fixture x;

        make(&x, 4);
        first = swn_task_decide(SWN_TASK_LOOKAHEAD, SWN_TASK_RESPONSE, &x.s);
        swn_task_schedule(SWN_TASK_LOOKAHEAD, &x.s, SWN_LOOKAHEAD_STEPS, &schedule);
        assert_true(schedule.count >= 24);
        assert_int_equal(schedule.events[0].kind, first.kind);
        assert_int_equal(schedule.events[0].pass, first.pass);
        for (uint32_t e = 0; e < schedule.count; e++) {
            const struct swn_task_event *event = &schedule.events[e];

            assert_true(event->begin_ns >= before);
            before = event->begin_ns;
            if (event->kind == SWN_TASK_LOAD) {
                loads[event->pass] |= UINT32_C(1) << event->layer;
                continue;
            }
            assert_int_equal(event->layer, computes[event->pass]++);
            assert_true(loads[event->pass] >> event->layer & 1);
        }
        for (uint32_t p = 0; p < 4; p++)
            assert_int_equal(computes[p], 3);
    }
}

/* All that begins before the first compute task has ended. */
static void others_do_it_step_by_step(void **state)
{
    (void)state;
    for (unsigned p = 0; p < SWN_TASK_LOOKAHEAD; p++)
        for (int i = 0; i < 40; i++) {
            struct task_fixture x, y;
            uint32_t e = 0, is_over = 0;

            make(&x, 4);
            y = x;
            y.s.networks = y.networks;
            y.s.passes = y.passes;
            y.s.copies = y.copies;
            for (uint32_t n = 0; n < 4; n++)
                y.networks[n].layers = y.layers[n];
            swn_task_schedule(p, &x.s, 0, &schedule);
            while (!is_over) {
                struct swn_task_decision d;

                while ((d = swn_task_decide(p, SWN_TASK_RESPONSE, &y.s)).kind) {
                    if (d.kind != SWN_TASK_DROP) {
                        assert_true(e < schedule.count);
                        assert_int_equal(schedule.events[e].kind, d.kind);
                        assert_int_equal(schedule.events[e].pass, d.pass);
                        assert_int_equal(schedule.events[e].layer, d.layer);
                        assert_int_equal(schedule.events[e++].begin_ns, y.s.now_ns);
                    }
                    swn_task_apply(&y.s, &d);
                }
                swn_task_advance(&y.s, swn_task_next_ns(&y.s));
                for (uint32_t n = 0; n < 4; n++)
                    is_over |= y.passes[n].next_layer > 0;
            }
            assert_int_equal(e, schedule.count);
            assert_int_equal(schedule.events[e ? 0 : 1].kind, SWN_TASK_LOAD);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_plan_has_every_layer_in_order),
                                       cmocka_unit_test(others_do_it_step_by_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
