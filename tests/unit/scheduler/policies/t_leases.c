/* Memory moves to the engine that works, comes back when its owner does, and is never given out twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/policies/leases.h"
#include "tests/unit/support/random.h"

#define MIB UINT64_C(1048576)
#define TOTAL (800 * MIB)

static struct swn_lease l[3];

static void begin(void)
{
    memset(l, 0, sizeof l);
    l[0].base = 600 * MIB;
    l[1].base = l[2].base = 100 * MIB;
}

static void check(uint64_t first, uint64_t second, uint64_t third)
{
    swn_leases_divide(l, 3, TOTAL);
    assert_int_equal(l[0].bytes, first * MIB);
    assert_int_equal(l[1].bytes, second * MIB);
    assert_int_equal(l[2].bytes, third * MIB);
}

static void bases_are_the_beginning(void **state)
{
    (void)state;
    begin();
    check(600, 100, 100);
    l[0].is_busy = l[1].is_busy = 1;
    check(600, 100, 100);
}

static void idle_memory_goes_to_who_works_and_comes_back(void **state)
{
    (void)state;
    begin();
    l[1].is_busy = 1;
    l[1].need = 500 * MIB;
    check(200, 500, 100); /* 25 of the third are not wanted */
    l[1].need = 900 * MIB;
    check(150, 625, 25);
    l[1].is_busy = 0;
    check(150, 625, 25); /* nobody would gain */
    l[0].is_busy = 1;
    l[0].need = 100 * MIB;
    check(150, 625, 25); /* it has what it needs */
    l[0].need = 300 * MIB;
    check(600, 100, 100);
    l[1].is_busy = 1;
    check(600, 175, 25); /* of the idle one's alone */
}

static void two_that_lack_share_by_what_they_lack(void **state)
{
    (void)state;
    begin();
    l[1].is_busy = l[2].is_busy = 1;
    l[1].need = 1000 * MIB;
    l[2].need = 400 * MIB;
    l[0].least = 152 * MIB;
    check(152, 436, 212);
}

static void check_mib(uint64_t got, uint64_t want)
{
    assert_in_range(got, want * MIB, (want + 1) * MIB);
}

static void least_goes_before_bases(void **state)
{
    (void)state;
    begin();
    l[0].least = 650 * MIB;
    swn_leases_divide(l, 3, TOTAL);
    check_mib(l[0].bytes, 650);
    assert_int_equal(l[0].bytes + l[1].bytes + l[2].bytes, TOTAL);
    l[1].least = l[2].least = 90 * MIB; /* together more than there is */
    swn_leases_divide(l, 3, TOTAL);
    assert_int_equal(l[0].bytes + l[1].bytes + l[2].bytes, TOTAL);
}

static void whatever_the_numbers_the_total_holds(void **state)
{
    uint64_t chance = 7;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        uint64_t left = TOTAL;
        for (int i = 2; i >= 0; i--) {
            l[i].base = i ? next_random(&chance) % (left / 2) : left;
            left -= l[i].base;
            if (next_random(&chance) % 4 == 0)
                l[i].least = next_random(&chance) % (TOTAL / 2);
            l[i].need = next_random(&chance) % (2 * TOTAL);
            l[i].is_busy = next_random(&chance) % 2;
        }
        swn_leases_divide(l, 3, TOTAL);
        assert_int_equal(l[0].bytes + l[1].bytes + l[2].bytes, TOTAL);
        struct swn_lease before[3];
        memcpy(before, l, sizeof l);
        swn_leases_divide(l, 3, TOTAL);
        assert_memory_equal(before, l, sizeof l); /* and nothing moves for nothing */
        if (round % 8 == 0)
            memset(l, 0, sizeof l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bases_are_the_beginning),
        cmocka_unit_test(idle_memory_goes_to_who_works_and_comes_back),
        cmocka_unit_test(two_that_lack_share_by_what_they_lack),
        cmocka_unit_test(least_goes_before_bases),
        cmocka_unit_test(whatever_the_numbers_the_total_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
