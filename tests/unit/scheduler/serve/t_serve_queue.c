/* Requests are kept in the order in which they came, with how far each is, and leave in any order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/serve/serve_queue.h"

#define MS UINT64_C(1000000)

static struct swn_serve_queue queue;
static struct swn_serve_item items[4];

static int make_items(void **state)
{
    (void)state;
    memset(&queue, 0, sizeof queue);
    memset(items, 0, sizeof items);
    for (unsigned i = 0; i < 4; i++) {
        items[i] = (struct swn_serve_item){.id = i + 1, .groups = 2, .is_loaded = 1};
        swn_serve_queue_add(&queue, &items[i]);
    }
    return 0;
}

static void test_an_item_goes_from_group_to_group(void **state)
{
    (void)state;
    assert_int_equal(swn_serve_queue_runs(&queue, 0), 0);
    swn_serve_item_begin(&queue, &items[0]);
    assert_int_equal(queue.waiting, 3);
    assert_int_equal(swn_serve_queue_runs(&queue, 0), 1);
    assert_int_equal(swn_serve_queue_runs(&queue, 1), 0);
    assert_int_equal(swn_serve_item_ran(&items[0], 3), 0);
    assert_int_equal(swn_serve_queue_runs(&queue, 0), 0);
    swn_serve_item_begin(&queue, &items[0]);
    assert_int_equal(queue.waiting, 3);
    assert_int_equal(swn_serve_item_ran(&items[0], 3), 0);
    swn_serve_item_begin(&queue, &items[0]);
    assert_int_equal(swn_serve_item_ran(&items[0], 3), 1);
    items[0].state = SWN_SERVE_STORES;
    assert_int_equal(swn_serve_queue_runs(&queue, 0), 0); /* the engine computes while it stores */
    swn_serve_queue_remove(&queue, &items[0]);
    assert_int_equal(queue.count, 3);
    assert_int_equal(queue.waiting, 3);
}

static void test_early_ones_are_counted_until_they_are_needed(void **state)
{
    struct swn_serve_item early[3] = {{.id = 5, .upstream = 1, .probability = 0.5},
                                      {.id = 6, .upstream = 1, .probability = 0.25},
                                      {.id = 7, .upstream = 2, .probability = 0.25}};

    (void)state;
    assert_null(swn_serve_queue_unlikely(&queue));
    for (unsigned i = 0; i < 3; i++)
        swn_serve_queue_add(&queue, &early[i]);
    assert_int_equal(queue.count, 7);
    assert_int_equal(queue.early, 3);
    assert_ptr_equal(swn_serve_queue_unlikely(&queue), &early[2]);
    early[2].is_dropped = 1;
    assert_ptr_equal(swn_serve_queue_unlikely(&queue), &early[1]);
    swn_serve_queue_settle(&queue, &early[1]);
    swn_serve_queue_settle(&queue, &early[1]);
    assert_int_equal(queue.early, 2);
    assert_ptr_equal(swn_serve_queue_unlikely(&queue), &early[0]);
    for (unsigned i = 0; i < 3; i++)
        swn_serve_queue_remove(&queue, &early[i]);
    assert_int_equal(queue.count, 4);
    assert_int_equal(queue.early, 0);
}

static void test_one_that_did_not_fit_begins_anew_once(void **state)
{
    (void)state;
    swn_serve_item_begin(&queue, &items[0]);
    swn_serve_item_ran(&items[0], 2);
    swn_serve_item_begin(&queue, &items[0]);
    assert_int_equal(swn_serve_item_again(&queue, &items[0]), 1);
    assert_int_equal(queue.waiting, 4);
    assert_int_equal(items[0].group, 0);
    assert_int_equal(items[0].is_begun, 0);
    assert_int_equal(items[0].is_alone, 1);
    swn_serve_item_begin(&queue, &items[0]);
    assert_int_equal(swn_serve_item_again(&queue, &items[0]), 0);
}

static void test_deadlines_come_in_their_order(void **state)
{
    (void)state;
    assert_int_equal(swn_serve_queue_deadline(&queue), 0);
    assert_null(swn_serve_queue_late(&queue, UINT64_MAX));
    items[2].deadline_ns = 5 * MS;
    items[3].deadline_ns = 3 * MS;
    assert_int_equal(swn_serve_queue_deadline(&queue), 3 * MS);
    assert_null(swn_serve_queue_late(&queue, 3 * MS - 1));
    assert_ptr_equal(swn_serve_queue_late(&queue, 3 * MS), &items[3]);
    items[3].is_dropped = 1;
    assert_int_equal(swn_serve_queue_deadline(&queue), 5 * MS);
    assert_null(swn_serve_queue_late(&queue, 4 * MS));
}

static void test_engine_that_is_gone_knows_nothing(void **state)
{
    (void)state;
    items[3].engine = 1;
    swn_serve_item_begin(&queue, &items[3]);
    swn_serve_item_begin(&queue, &items[0]);
    swn_serve_item_ran(&items[0], 2);
    assert_int_equal(queue.waiting, 2);
    swn_serve_queue_reset(&queue, 0, 0);
    assert_int_equal(queue.waiting, 3);
    assert_int_equal(items[0].is_alone + items[1].is_alone, 0);
    assert_int_equal(items[0].group, 0);
    assert_int_equal(items[0].is_loaded, 0); /* nor has it the model */
    assert_int_equal(items[3].is_begun, 1);
}

static void test_what_crashes_under_several_begins_anew_alone(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        swn_serve_item_begin(&queue, &items[i]);
    swn_serve_item_ran(&items[0], 2); /* its next group waits */
    items[2].state = SWN_SERVE_STORES;
    swn_serve_queue_reset(&queue, 0, 1);
    assert_int_equal(items[0].is_alone, 0);
    assert_int_equal(items[1].is_alone, 1);
    assert_int_equal(items[2].is_alone, 1);
    assert_int_equal(items[1].state, SWN_SERVE_WAITS);
    assert_int_equal(queue.waiting, queue.count);
}

static void test_requests_leave_in_any_order(void **state)
{
    (void)state;
    swn_serve_queue_remove(&queue, &items[2]);
    swn_serve_queue_remove(&queue, &items[0]);
    swn_serve_queue_remove(&queue, &items[3]);
    assert_ptr_equal(queue.first, &items[1]);
    assert_ptr_equal(queue.last, &items[1]);
    assert_ptr_equal(swn_serve_queue_find(&queue, 2), &items[1]);
    assert_ptr_equal(swn_serve_queue_after(&queue, 1), &items[1]); /* that one has left */
    assert_null(swn_serve_queue_after(&queue, 2));
    assert_null(swn_serve_queue_find(&queue, 1));
    swn_serve_queue_remove(&queue, &items[1]);
    assert_null(queue.first);
    assert_null(queue.last);
    assert_int_equal(queue.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_an_item_goes_from_group_to_group, make_items),
        cmocka_unit_test_setup(test_early_ones_are_counted_until_they_are_needed, make_items),
        cmocka_unit_test_setup(test_one_that_did_not_fit_begins_anew_once, make_items),
        cmocka_unit_test_setup(test_deadlines_come_in_their_order, make_items),
        cmocka_unit_test_setup(test_engine_that_is_gone_knows_nothing, make_items),
        cmocka_unit_test_setup(test_what_crashes_under_several_begins_anew_alone, make_items),
        cmocka_unit_test_setup(test_requests_leave_in_any_order, make_items),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
