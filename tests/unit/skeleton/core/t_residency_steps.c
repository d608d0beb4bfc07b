/* Description: each error of the pool and the spill file comes with the advice that helps against it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "skeleton/core/residency_steps.h"

static void test_advice_is_for_the_cause(void **state)
{
    (void)state;
    static const struct {
        int err;
        const char *says;
    } cases[] = {
        {-EMFILE, "ulimit -n"},     {-EFBIG, "ulimit -f"},      {-ENOMEM, "ulimit -v"}, {-EACCES, "can write to"},
        {-EPERM, "can write to"},   {-EROFS, "can write to"},   {-ENOSPC, "more room"}, {-EDQUOT, "more room"},
        {-ENOENT, "SWAPNET_STORE"}, {-ENOTDIR, "can write to"}, {-ENFILE, "ulimit -n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *advice = swn_pool_advice(cases[i].err);
        assert_non_null(strstr(advice, cases[i].says));
        assert_true(!strstr(advice, "ulimit") ||
                    strstr(cases[i].says, "ulimit")); /* no limit is to blame for the others */
    }
    assert_string_equal(swn_pool_advice(-EIO), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_advice_is_for_the_cause)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
