/* tests/unit/support/device_cases.h - tests that run once for each kind of device that the stand-in can be, each in a
 * process of its own. */
#ifndef SWN_TESTS_UNIT_SUPPORT_DEVICE_CASES_H
#define SWN_TESTS_UNIT_SUPPORT_DEVICE_CASES_H

#include <stddef.h>

struct device_case {
    const char *name;
    void (*test)(void *device); /* the device's name */
    const char *devices;        /* names, in one string */
};

/* Runs them all, as one of cmocka's tests, and returns what main does. The environment's T_DEVICE_CASE names one that
 * is to run alone. */
int run_device_cases(const struct device_case *cases, size_t n);

struct swn_device_memory;
/* Lets go of it, and waits for that, which the engine does for a moment only. 0, or -errno or a cudaError_t's
 * negative. */
int device_let_go(struct swn_device_memory *m);

#endif
