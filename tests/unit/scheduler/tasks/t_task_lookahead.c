/* The look-ahead is near the optimum where that is known; with outputs that stay and little memory it exceeds nothing
 * and ends everything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scheduler/tasks/exact.h"
#include "tests/unit/support/random.h"
#include "tests/unit/support/task_fixture.h"

static uint64_t draw(uint64_t most)
{
    return 1 + rnd_below(most);
}

/* Networks of random layers in as much memory as the largest layer needs, and a bit. */
static void make(struct task_fixture *x, uint32_t networks, uint32_t layers, uint32_t workers, int has_outputs)
{
    uint64_t most = 0, bytes;

    task_begin(x, workers, 0);
    for (uint32_t n = 0; n < networks; n++) {
        task_add(x, layers);
        for (uint32_t l = 0; l < layers; l++) {
            x->layers[n][l] = (struct swn_task_layer){
                .load_bytes = draw(10) * 100, .compute_ns = draw(10) * 100, .activation_bytes = draw(5) * 100};
            if (has_outputs && l + 1 < layers)
                x->layers[n][l].output_bytes = x->layers[n][l].activation_bytes / 2;
        }
        bytes = swn_task_largest(&x->networks[n], 1);
        most = bytes > most ? bytes : most;
    }
    x->s.machine.memory_bytes = most + (has_outputs ? 0 : 600);
}

static uint32_t left(const struct task_fixture *x)
{
    uint32_t n = 0;

    for (uint32_t p = 0; p < x->s.pass_count; p++)
        n += !swn_task_is_done(&x->s, &x->passes[p]);
    return n;
}

/* Runs all to the end; each step within memory. */
static uint64_t run(struct task_fixture *x)
{
    while (left(x)) {
        assert_true(task_settle(x, SWN_TASK_LOOKAHEAD) < 100);
        assert_true(x->s.used_bytes <= x->s.machine.memory_bytes);
        assert_int_equal(x->s.used_bytes, swn_task_used(&x->s));
        assert_true(x->s.flight_count > 0);
        swn_task_advance(&x->s, swn_task_next_ns(&x->s));
    }
    return x->s.now_ns;
}

static void it_is_near_the_optimum(void **state)
{
    const unsigned rounds = rounds_of(60);
    double sum = 0;

    (void)state;
    for (unsigned i = 0; i < rounds; i++) {
        struct task_fixture x;
        uint64_t best;
        double ratio;

        make(&x, 2, 3, 1 + i % 4, 0);
        assert_int_equal(swn_task_exact(&x.s, 50000000, &best), 0);
        ratio = (double)run(&x) / (double)best;
        assert_true(ratio >= 1 && ratio <= 1.22);
        sum += ratio;
    }
    assert_true(sum / rounds <= 1.05);
}

static void it_ends_whatever_stays_between_layers(void **state)
{
    (void)state;
    for (unsigned i = 0; i < rounds_of(100); i++) {
        struct task_fixture x;

        make(&x, 6, 4, 1 + i % 4, 1);
        x.s.machine.readers = i % 3;
        run(&x);
        assert_int_equal(x.s.used_bytes, 0);
    }
}

static void it_ends_what_seems_to_need_more_than_there_is(void **state)
{
    struct task_fixture x;

    (void)state;
    make(&x, 3, 4, 2, 0);
    x.s.estimate = 4;
    for (int step = 0; left(&x); step++) {
        assert_true(step < 1000);
        task_settle(&x, SWN_TASK_LOOKAHEAD);
        assert_true(x.s.flight_count > 0);
        swn_task_advance(&x.s, swn_task_next_ns(&x.s));
    }
}

/* The shorter job first, whatever arrived first. */
static void the_shortest_job_leads(void **state)
{
    struct swn_task_decision d;
    struct task_fixture x;

    (void)state;
    task_begin(&x, 1, 1000);
    for (uint32_t n = 0; n < 2; n++) {
        task_add(&x, 1);
        x.layers[n][0] = (struct swn_task_layer){.load_bytes = n ? 10 : 100, .compute_ns = n ? 10 : 100};
    }
    d = swn_task_decide(SWN_TASK_LOOKAHEAD, SWN_TASK_RESPONSE, &x.s);
    assert_int_equal(d.kind, SWN_TASK_LOAD);
    assert_int_equal(d.pass, 1);
}

static void the_likely_next_network_is_read_when_the_disk_is_idle(void **state)
{
    struct swn_task_decision d;
    struct task_fixture x;

    (void)state;
    task_begin(&x, 1, 1000);
    x.s.machine.readers = 1;
    x.s.cascade = SWN_CASCADE_PREFETCH;
    for (uint32_t n = 0; n < 3; n++) {
        task_add(&x, n ? 2 : 1);
        x.layers[n][0] = (struct swn_task_layer){.load_bytes = 100, .compute_ns = 1000};
        x.layers[n][1] = x.layers[n][0];
        x.passes[n].job = 0;
        x.passes[n].upstream = n ? 1 : 0;
        x.passes[n].is_undecided = n != 0;
        x.passes[n].probability = n == 2 ? 0.7 : 0.3;
    }
    assert_int_equal(task_settle(&x, SWN_TASK_LOOKAHEAD), 1); /* its own block */
    assert_int_equal(x.copies[0].blocks[0], SWN_BLOCK_LOADING);
    swn_task_advance(&x.s, swn_task_next_ns(&x.s));
    task_settle(&x, SWN_TASK_LOOKAHEAD);
    assert_true(x.passes[0].is_running);
    assert_int_equal(x.copies[2].blocks[0], SWN_BLOCK_LOADING); /* the likelier one */
    swn_task_advance(&x.s, swn_task_next_ns(&x.s));
    task_settle(&x, SWN_TASK_LOOKAHEAD);
    assert_int_equal(x.copies[2].blocks[1], SWN_BLOCK_LOADING); /* all of it */
    swn_task_advance(&x.s, swn_task_next_ns(&x.s));
    task_settle(&x, SWN_TASK_LOOKAHEAD);
    assert_int_equal(x.copies[1].blocks[0], SWN_BLOCK_LOADING);
    swn_task_advance(&x.s, swn_task_next_ns(&x.s));
    d = swn_task_decide(SWN_TASK_LOOKAHEAD, SWN_TASK_RESPONSE, &x.s);
    assert_int_equal(d.kind, SWN_TASK_NONE); /* of the unlikely one no more, and nothing is computed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_near_the_optimum),
        cmocka_unit_test(it_ends_whatever_stays_between_layers),
        cmocka_unit_test(it_ends_what_seems_to_need_more_than_there_is),
        cmocka_unit_test(the_shortest_job_leads),
        cmocka_unit_test(the_likely_next_network_is_read_when_the_disk_is_idle),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
