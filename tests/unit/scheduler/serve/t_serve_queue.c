/* Requests are run in the order in which they came, one group at a time, and leave when nobody waits for them. */
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

static void test_oldest_runs_to_its_end(void **state)
{
    (void)state;
    assert_ptr_equal(swn_serve_queue_next(&queue, 0), &items[0]);
    swn_serve_item_begin(&queue, &items[0]);
    assert_int_equal(queue.waiting, 3);
    assert_null(swn_serve_queue_next(&queue, 0)); /* one at a time */
    assert_int_equal(swn_serve_item_ran(&items[0], 3), 0);
    assert_ptr_equal(swn_serve_queue_next(&queue, 0), &items[0]);
    swn_serve_item_begin(&queue, &items[0]);
    assert_int_equal(swn_serve_item_ran(&items[0], 3), 0);
    swn_serve_item_begin(&queue, &items[0]);
    assert_int_equal(swn_serve_item_ran(&items[0], 3), 1);
    items[0].state = SWN_SERVE_STORES;
    assert_ptr_equal(swn_serve_queue_next(&queue, 0), &items[1]); /* the engine computes while it stores */
    swn_serve_queue_remove(&queue, &items[0]);
    assert_int_equal(queue.count, 3);
    assert_int_equal(queue.waiting, 3);
}

static void test_begun_goes_before_older(void **state)
{
    (void)state;
    items[0].is_loaded = 0; /* its model comes later */
    assert_ptr_equal(swn_serve_queue_next(&queue, 0), &items[1]);
    swn_serve_item_begin(&queue, &items[1]);
    swn_serve_item_ran(&items[1], 2);
    items[0].is_loaded = 1;
    assert_ptr_equal(swn_serve_queue_next(&queue, 0), &items[1]);
}

static void test_engines_have_their_own_requests(void **state)
{
    (void)state;
    items[1].engine = 1;
    swn_serve_item_begin(&queue, &items[0]);
    assert_null(swn_serve_queue_next(&queue, 0));
    assert_ptr_equal(swn_serve_queue_next(&queue, 1), &items[1]);
    assert_null(swn_serve_queue_next(&queue, 2));
}

static void test_dropped_is_passed_over(void **state)
{
    (void)state;
    items[0].is_dropped = 1;
    assert_ptr_equal(swn_serve_queue_next(&queue, 0), &items[1]);
    /* One that is dropped while its group runs leaves when that has ended: the engine has its inputs until then. */
    swn_serve_item_begin(&queue, &items[1]);
    items[1].is_dropped = 1;
    assert_null(swn_serve_queue_next(&queue, 0));
    swn_serve_queue_remove(&queue, &items[1]);
    assert_ptr_equal(swn_serve_queue_next(&queue, 0), &items[2]);
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
    swn_serve_queue_reset(&queue, 0);
    assert_int_equal(queue.waiting, 3);
    assert_int_equal(items[0].group, 0);
    assert_null(swn_serve_queue_next(&queue, 0)); /* no model is loaded */
    assert_int_equal(items[3].is_begun, 1);
    items[1].is_loaded = 1;
    assert_ptr_equal(swn_serve_queue_next(&queue, 0), &items[1]);
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
    assert_null(swn_serve_queue_find(&queue, 1));
    swn_serve_queue_remove(&queue, &items[1]);
    assert_null(queue.first);
    assert_null(queue.last);
    assert_int_equal(queue.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_oldest_runs_to_its_end, make_items),
        cmocka_unit_test_setup(test_begun_goes_before_older, make_items),
        cmocka_unit_test_setup(test_engines_have_their_own_requests, make_items),
        cmocka_unit_test_setup(test_dropped_is_passed_over, make_items),
        cmocka_unit_test_setup(test_deadlines_come_in_their_order, make_items),
        cmocka_unit_test_setup(test_engine_that_is_gone_knows_nothing, make_items),
        cmocka_unit_test_setup(test_requests_leave_in_any_order, make_items),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
