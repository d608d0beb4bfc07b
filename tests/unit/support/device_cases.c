/* tests/unit/support/device_cases.c - see device_cases.h. */
#define _GNU_SOURCE
#include "tests/unit/support/device_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "skeleton/device/device.h"
#include "tests/unit/support/engine_fixture.h"

struct all {
    const struct device_case *cases;
    size_t n;
};

static void run_all(void **state)
{
    static const char *const devices[] = {"nano", "xavier", "orin", "thor", "discrete"};
    const struct device_case *cases = ((const struct all *)*state)->cases;
    size_t n = ((const struct all *)*state)->n;
    const char *only = getenv("T_DEVICE_CASE");
    for (size_t c = 0; c < n; c++)
        for (size_t d = 0; d < sizeof devices / sizeof devices[0]; d++) {
            char device[16];
            snprintf(device, sizeof device, "%s", devices[d]);
            if (!strstr(cases[c].devices, device) || (only && strcmp(only, cases[c].name) != 0))
                continue;
            int status = run_alone(cases[c].test, device, 60);
            if (status)
                fprintf(stderr, "%s on %s: %d\n", cases[c].name, device, status);
            assert_int_equal(status, 0);
        }
}

int run_device_cases(const struct device_case *cases, size_t n)
{
    struct all all = {cases, n};
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(run_all, &all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

struct release {
    _Atomic int done;
    int err;
};

static void is_let_go(void *owner, int err)
{
    struct release *l = owner;
    l->err = err;
    atomic_store(&l->done, 1);
}

int device_let_go(struct swn_device_memory *m)
{
    struct release l = {0};
    int err = swn_device_close(m, is_let_go, &l);
    while (err == 1 && !atomic_load(&l.done))
        usleep(1000);
    return err == 1 ? l.err : err;
}
