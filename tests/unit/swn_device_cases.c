#define _GNU_SOURCE
#include "swn_device_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "swn_engine_fixture.h"

void run_device_cases(const struct device_case *cases, size_t n)
{
    static const char *const devices[] = {"nano", "xavier", "orin", "thor", "discrete"};
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
