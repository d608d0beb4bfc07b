/* What an engine runs next: requests that may run, as a policy chooses among them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/serve/serve_lane.h"

#define MS UINT64_C(1000000)
#define MIB (UINT64_C(1) << 20)

static struct swn_serve_queue queue;
static struct swn_serve_item items[6];
static struct swn_group_times times[2];
static struct swn_lane_choice choice;
static struct swn_serve_lane *lane;
static uint32_t batch_most;
static uint64_t samples;

static struct swn_lane_served model(void *user, uint32_t number)
{
    (void)user;
    return (struct swn_lane_served){.times = &times[number],
                                    .batch_most = number ? 0 : batch_most,
                                    .weight_bytes = 64 * MIB,
                                    .batch_delay_ns = number ? 50 * MS : 0,
                                    .batch_full = number ? 3 : 0};
}

static uint64_t memory_bytes;

static void choose(void)
{
    const struct swn_lane_engine engine = {
        .memory_bytes = memory_bytes, .last_model = UINT32_MAX, .disk_bytes_per_ns = 0.1};

    swn_serve_lane_choose(lane, &queue, &engine, model, NULL, 100 * MS, &choice);
}

/* Two groups, whose weights have to be read for longer than a request computes; or are there. A request takes
 * `activation_bytes` in each, and holds a quarter of that between them. */
static void weigh_with(uint32_t number, int is_missing, uint64_t activation_bytes)
{
    uint64_t there = is_missing ? 0 : 32 * MIB;
    const struct swn_wire_group weights[] = {
        {.bytes = 32 * MIB, .in_memory = there, .activation_bytes = activation_bytes},
        {.bytes = 32 * MIB,
         .in_memory = there,
         .activation_bytes = activation_bytes,
         .state_bytes = activation_bytes / 4}};

    memset(&times[number], 0, sizeof times[number]);
    swn_group_times_weigh(&times[number], weights, 2, 0);
    for (uint32_t g = 0; g < 2; g++)
        swn_group_times_ran(&times[number], &(struct swn_group_run){.group = g, .groups = 2, .ns = 10 * MS});
}

static void weigh(uint32_t number, int is_missing)
{
    weigh_with(number, is_missing, 1);
}

static int begin(void **state)
{
    (void)state;
    memory_bytes = 1024 * MIB;
    memset(&queue, 0, sizeof queue);
    memset(items, 0, sizeof items);
    for (unsigned i = 0; i < 6; i++) {
        items[i] = (struct swn_serve_item){.id = i + 1, .arrived_ns = (i + 1) * MS, .weight = 1, .is_loaded = 1};
        swn_serve_queue_add(&queue, &items[i]);
    }
    weigh(0, 0);
    weigh(1, 0);
    batch_most = 0;
    lane = swn_serve_lane_new(SWN_LANE_NO_BATCH, 0);
    return lane == NULL;
}

static int end(void **state)
{
    (void)state;
    swn_serve_lane_free(lane);
    return 0;
}

static void use(enum swn_lane_policy policy)
{
    swn_serve_lane_free(lane);
    lane = swn_serve_lane_new(policy, 0);
    assert_non_null(lane);
}

/* The choice is items[first], items[first + 1], ... */
static void assert_chosen(unsigned first, unsigned count)
{
    choose();
    assert_int_equal(choice.count, count);
    for (unsigned i = 0; i < count; i++)
        assert_ptr_equal(choice.items[i], &items[first + i]);
}

static uint64_t samples_of(const struct swn_serve_item *item)
{
    return item == &items[3] ? 0 : samples;
}

/* Four at once take hardly longer than one, two a half longer. */
static void test_requests_run_together_where_joining_takes_less_time(void **state)
{
    const struct swn_wire_group weights[] = {
        {.bytes = 32 * MIB, .in_memory = 32 * MIB, .activation_bytes = 1, .alone_ns = 9, .joined_ns = {13, 10}},
        {.bytes = 32 * MIB, .in_memory = 32 * MIB, .activation_bytes = 1, .alone_ns = 9, .joined_ns = {13, 10}}};

    (void)state;
    use(SWN_LANE_COMPLETION);
    assert_chosen(0, 1);
    swn_group_times_weigh(&times[0], weights, 2, 0);
    assert_chosen(0, 1); /* of a model whose configuration joins none */
    batch_most = 6;
    assert_chosen(0, 4);
    samples = 1;
    assert_int_equal(swn_serve_lane_following(&choice, 0, batch_most, samples_of), 2); /* up to one without samples */
    assert_int_equal(swn_serve_lane_following(&choice, 2, batch_most, samples_of), 0);
    assert_int_equal(swn_serve_lane_following(&choice, 3, batch_most, samples_of), 0);
    assert_int_equal(swn_serve_lane_following(&choice, 0, 2, samples_of), 1);
    assert_int_equal(swn_serve_lane_following(&choice, 0, 1, samples_of), 0);
    samples = 3;
    assert_int_equal(swn_serve_lane_following(&choice, 0, batch_most, samples_of), 1);
    samples = UINT64_MAX;
    assert_int_equal(swn_serve_lane_following(&choice, 0, batch_most, samples_of), 0);
    samples = 1;
    items[1].model = 1;
    assert_int_equal(swn_serve_lane_following(&choice, 0, batch_most, samples_of), 0); /* they share a prefix only */
}

static void test_oldest_runs_to_its_end(void **state)
{
    (void)state;
    assert_chosen(0, 1);
    swn_serve_item_begin(&queue, &items[0]);
    assert_chosen(0, 0); /* the engine has been told what to run */
    swn_serve_item_ran(&items[0], 2);
    assert_chosen(0, 1);
    swn_serve_item_begin(&queue, &items[0]);
    swn_serve_item_ran(&items[0], 2);
    items[0].state = SWN_SERVE_STORES;
    assert_chosen(1, 1);
}

static void test_no_more_begin_of_a_model_whose_outputs_have_no_room(void **state)
{
    (void)state;
    swn_serve_item_begin(&queue, &items[0]);
    swn_serve_item_ran(&items[0], 1);
    items[0].state = SWN_SERVE_HOLDS;
    swn_serve_item_begin(&queue, &items[4]);
    swn_serve_item_ran(&items[4], 2);
    assert_chosen(4, 1); /* what has begun goes on */
    swn_serve_queue_remove(&queue, &items[4]);
    assert_chosen(1, 0);
    items[3].model = 1;
    assert_chosen(3, 1);
    items[0].state = SWN_SERVE_STORES;
    assert_chosen(1, 1);
}

static void test_only_those_that_may_run_are_chosen(void **state)
{
    (void)state;
    items[0].is_loaded = 0;
    items[1].is_dropped = 1;
    items[2].engine = 1;
    assert_chosen(3, 1);
    items[3].is_loaded = items[4].is_loaded = items[5].is_loaded = 0;
    assert_chosen(0, 0);
}

static void test_reading_is_shared_where_it_takes_longer(void **state)
{
    (void)state;
    use(SWN_LANE_COMPLETION);
    choose();
    assert_int_equal(choice.count, 1); /* all is in memory: nothing is gained by waiting for others */
    weigh(0, 1);
    assert_chosen(0, 6);
}

static void test_requests_of_two_models_are_not_mixed(void **state)
{
    (void)state;
    use(SWN_LANE_COMPLETION);
    for (int i = 3; i < 6; i++)
        items[i].model = 1;
    weigh(0, 1);
    weigh(1, 1);
    choose();
    assert_int_equal(choice.count, 3);
    for (unsigned i = 1; i < 3; i++)
        assert_int_equal(choice.items[i]->model, choice.items[0]->model);
}

static void test_no_more_take_turns_than_their_state_has_room(void **state)
{
    static struct swn_serve_item many[SWN_LANE_TURNS + 8];

    (void)state;
    use(SWN_LANE_BATCH);
    memset(&queue, 0, sizeof queue);
    for (unsigned i = 0; i < SWN_LANE_TURNS + 8; i++) {
        many[i] = (struct swn_serve_item){.id = i, .weight = 1, .is_loaded = 1};
        swn_serve_queue_add(&queue, &many[i]);
    }
    choose();
    assert_int_equal(choice.count, SWN_LANE_TURNS);
}

/* 512 MiB hold the weights of a group, what one request takes, and the states of seven others. */
static void test_no_more_take_turns_than_their_activations_have_room(void **state)
{
    (void)state;
    use(SWN_LANE_BATCH);
    memory_bytes = 512 * MIB;
    weigh_with(0, 1, 64 * MIB);
    assert_chosen(0, 6);
    weigh_with(0, 1, 256 * MIB); /* 64 MiB each when it is set aside: 32 + 256 + 3 * 64 */
    assert_chosen(0, 4);
    weigh_with(0, 1, 400 * MIB);
    assert_chosen(0, 1);
    for (unsigned policy = 0; policy < SWN_LANE_POLICIES; policy++) {
        use(policy);
        choose();
        assert_int_equal(choice.count, 1);
    }
}

/* What a request takes is not known before one has run: that one has the memory to itself. */
static void test_the_first_request_of_a_model_takes_no_turns(void **state)
{
    (void)state;
    use(SWN_LANE_BATCH);
    weigh_with(0, 1, 0);
    assert_chosen(0, 1);
    items[5].group = 1; /* of another model, and begun: it ends first, as the new one may need all memory */
    items[5].groups = 2;
    items[5].model = 1;
    items[5].is_begun = 1;
    weigh_with(1, 0, 64 * MIB);
    assert_chosen(5, 1);
    weigh_with(0, 1, 64 * MIB);
    assert_chosen(0, 5);
}

static void test_one_that_did_not_fit_runs_alone(void **state)
{
    (void)state;
    swn_serve_item_begin(&queue, &items[0]);
    swn_serve_item_ran(&items[0], 2);
    items[1].is_alone = 1;
    assert_chosen(0, 1); /* what has begun goes to its end, and nothing else begins */
    swn_serve_item_begin(&queue, &items[0]);
    swn_serve_item_ran(&items[0], 2);
    items[0].state = SWN_SERVE_STORES;
    assert_chosen(1, 0);
    swn_serve_queue_remove(&queue, &items[0]);
    assert_chosen(1, 1);
    swn_serve_item_begin(&queue, &items[1]);
    swn_serve_item_ran(&items[1], 2);
    assert_chosen(1, 1);
}

static void test_one_of_an_older_division_goes_first(void **state)
{
    (void)state;
    swn_serve_item_begin(&queue, &items[4]);
    swn_serve_item_ran(&items[4], 3); /* its model has two groups now */
    assert_chosen(4, 1);
}

static void test_many_groups_are_one_division(void **state)
{
    static struct swn_wire_group weights[SWN_GROUPS_MOST + 8];
    const uint32_t groups = SWN_GROUPS_MOST + 8;

    (void)state;
    memset(&times[0], 0, sizeof times[0]);
    for (uint32_t g = 0; g < groups; g++)
        weights[g] = (struct swn_wire_group){.activation_bytes = 1 + g * MIB};
    swn_group_times_weigh(&times[0], weights, groups, 0);
    assert_int_equal(times[0].groups[SWN_GROUPS_MOST - 1].activation_bytes, 1 + (groups - 1) * MIB);
    swn_group_times_ran(&times[0], &(struct swn_group_run){.groups = groups, .ns = MS});
    swn_serve_item_begin(&queue, &items[4]);
    swn_serve_item_ran(&items[4], groups);
    use(SWN_LANE_BATCH);
    choose();
    assert_true(choice.count > 1); /* it does not keep others from their turns */
}

static void test_a_batch_waits_as_its_model_says(void **state)
{
    (void)state;
    use(SWN_LANE_DYNAMIC);
    for (int i = 0; i < 6; i++)
        items[i].model = 1;
    for (int i = 2; i < 6; i++)
        items[i].is_dropped = 1;
    for (int i = 0; i < 6; i++)
        items[i].arrived_ns = 80 * MS;
    assert_chosen(0, 0);
    assert_int_equal(choice.wake_ns, 130 * MS);
    items[2].is_dropped = items[3].is_dropped = 0;
    assert_chosen(0, 3); /* full */
}

/* Behind the turn-th of the choice come these steps: model, group, model, group, ... */
static void assert_behind(unsigned turn, unsigned count, const uint32_t *want)
{
    struct swn_wire_step steps[SWN_WIRE_STEPS];

    assert_int_equal(swn_serve_lane_behind(&choice, turn, steps), count);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(steps[i].model, want[2 * i]);
        assert_int_equal(steps[i].group, want[2 * i + 1]);
    }
}

static void test_what_runs_behind_a_turn_is_foretold(void **state)
{
    (void)state;
    use(SWN_LANE_BATCH);
    weigh(0, 1);
    weigh(1, 1);
    items[4].model = items[5].model = 1;
    choose();
    assert_int_equal(choice.count, 4);
    for (unsigned turn = 0; turn < 3; turn++) /* the same group for the others, which is there once */
        assert_behind(turn, 4, (const uint32_t[]){0, 0, 0, 1, 1, 0, 1, 1});
    assert_behind(3, 3, (const uint32_t[]){0, 1, 1, 0, 1, 1});
}

/* The last one is a step of an ensemble whose request came before all others. */
static void test_a_step_is_as_old_as_its_ensemble(void **state)
{
    (void)state;
    items[5].asked_ns = MS / 2;
    assert_chosen(5, 1);
    items[5].asked_ns = 3 * MS; /* behind the third one, which is as old */
    for (int i = 0; i < 3; i++)
        items[i].is_dropped = 1;
    assert_chosen(5, 1);
    items[2].is_dropped = 0;
    assert_chosen(2, 1);
}

static void test_one_that_may_not_be_needed_begins_behind_its_upstream(void **state)
{
    (void)state;
    items[0].upstream = items[2].id;
    items[0].probability = 0.5;
    assert_chosen(1, 1);
    items[2].is_begun = items[2].is_dropped = 1;
    assert_chosen(0, 1);
    items[2].is_begun = 0;
    assert_chosen(1, 1);
    swn_serve_queue_remove(&queue, &items[2]);
    assert_chosen(0, 1); /* it has ended */
    swn_serve_queue_add(&queue, &items[2]);
}

static void test_a_model_that_may_be_asked_for_is_foretold(void **state)
{
    const struct swn_lane_engine engine = {.memory_bytes = memory_bytes,
                                           .last_model = UINT32_MAX,
                                           .disk_bytes_per_ns = 0.1,
                                           .expected = {{.model = 1, .probability = 0.9}},
                                           .expected_count = 1};

    (void)state;
    for (unsigned i = 1; i < 6; i++)
        items[i].is_dropped = 1;
    weigh(1, 1);
    swn_serve_lane_choose(lane, &queue, &engine, model, NULL, 100 * MS, &choice);
    assert_int_equal(choice.count, 1);
    assert_behind(0, 3, (const uint32_t[]){0, 1, 1, 0, 1, 1}); /* though all of the first one is in memory */
}

static void test_nothing_is_foretold_where_all_is_in_memory(void **state)
{
    (void)state;
    choose();
    assert_int_equal(choice.count, 1);
    assert_behind(0, 0, NULL);
}

static void test_one_that_is_alone_is_foretold_to_its_end(void **state)
{
    (void)state;
    items[4].is_alone = 1;
    choose();
    assert_ptr_equal(choice.items[0], &items[4]);
    assert_behind(0, 1, (const uint32_t[]){0, 1});
    swn_serve_item_begin(&queue, &items[4]);
    swn_serve_item_ran(&items[4], 4); /* of an older division than the two groups of now, which the engine has */
    choose();
    assert_ptr_equal(choice.items[0], &items[4]);
    assert_behind(0, 0, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_oldest_runs_to_its_end, begin, end),
        cmocka_unit_test_setup_teardown(test_no_more_begin_of_a_model_whose_outputs_have_no_room, begin, end),
        cmocka_unit_test_setup_teardown(test_only_those_that_may_run_are_chosen, begin, end),
        cmocka_unit_test_setup_teardown(test_requests_run_together_where_joining_takes_less_time, begin, end),
        cmocka_unit_test_setup_teardown(test_reading_is_shared_where_it_takes_longer, begin, end),
        cmocka_unit_test_setup_teardown(test_requests_of_two_models_are_not_mixed, begin, end),
        cmocka_unit_test_setup_teardown(test_no_more_take_turns_than_their_state_has_room, begin, end),
        cmocka_unit_test_setup_teardown(test_no_more_take_turns_than_their_activations_have_room, begin, end),
        cmocka_unit_test_setup_teardown(test_the_first_request_of_a_model_takes_no_turns, begin, end),
        cmocka_unit_test_setup_teardown(test_one_that_did_not_fit_runs_alone, begin, end),
        cmocka_unit_test_setup_teardown(test_one_of_an_older_division_goes_first, begin, end),
        cmocka_unit_test_setup_teardown(test_many_groups_are_one_division, begin, end),
        cmocka_unit_test_setup_teardown(test_a_batch_waits_as_its_model_says, begin, end),
        cmocka_unit_test_setup_teardown(test_what_runs_behind_a_turn_is_foretold, begin, end),
        cmocka_unit_test_setup_teardown(test_a_step_is_as_old_as_its_ensemble, begin, end),
        cmocka_unit_test_setup_teardown(test_one_that_may_not_be_needed_begins_behind_its_upstream, begin, end),
        cmocka_unit_test_setup_teardown(test_a_model_that_may_be_asked_for_is_foretold, begin, end),
        cmocka_unit_test_setup_teardown(test_nothing_is_foretold_where_all_is_in_memory, begin, end),
        cmocka_unit_test_setup_teardown(test_one_that_is_alone_is_foretold_to_its_end, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
