/* tests/unit/support/failing_calls.h - the N-th call for memory fails, once or for ever, of the library's own calls.
 * For a test whose first lines wrap malloc, calloc and realloc at least.
 */
#ifndef SWN_TESTS_UNIT_SUPPORT_FAILING_CALLS_H
#define SWN_TESTS_UNIT_SUPPORT_FAILING_CALLS_H

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

static struct {
    _Atomic int armed;
    _Atomic unsigned long calls, fired;
    unsigned long at;
    int for_ever;
} fault;

static int hit(void)
{
    if (!atomic_load(&fault.armed))
        return 0;
    unsigned long n = atomic_fetch_add(&fault.calls, 1) + 1;
    int now = fault.at && (n == fault.at || (fault.for_ever && n > fault.at));
    if (now) {
        atomic_fetch_add(&fault.fired, 1);
        errno = ENOMEM;
    }
    return now;
}

/* The linker sends the calls of swapnet's archives here (cmake/tests.cmake). Calls of the C library and of cmocka go
 * where they always go. */
#define WRAPPED(result, failed, name, parameters, arguments)                                                           \
    result __real_##name parameters;                                                                                   \
    result __wrap_##name parameters;                                                                                   \
    result __wrap_##name parameters                                                                                    \
    {                                                                                                                  \
        return hit() ? failed : __real_##name arguments;                                                               \
    }
WRAPPED(void *, NULL, malloc, (size_t n), (n))
WRAPPED(void *, NULL, calloc, (size_t n, size_t size), (n, size))
WRAPPED(void *, NULL, realloc, (void *p, size_t n), (p, n))

#endif
