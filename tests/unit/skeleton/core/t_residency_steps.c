/* Description: each error of the pool and the spill file comes with the advice that helps against it; a cache that is
 * only read does not take the spill file. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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

#define NOBODY 65534

/* A cache of root's that others read: what leaves a user's memory goes to the user's own directory. One that is not
 * there is still an error. */
static void test_spill_file_beside_a_cache_that_is_only_read(void **state)
{
    (void)state;
    if (geteuid())
        skip();
    static struct swn_engine e;
    char cache[] = "/tmp/t_residency_steps-XXXXXX", own[] = "/tmp/t_residency_steps-XXXXXX", expected[128];
    e.io = &swn_io_sys;
    assert_non_null(mkdtemp(cache));
    assert_non_null(mkdtemp(own));
    assert_int_equal(chmod(cache, 0755), 0);
    assert_int_equal(chown(own, NOBODY, NOBODY), 0);
    assert_int_equal(setenv("XDG_CACHE_HOME", own, 1), 0);
    snprintf(e.config.store_dir, sizeof e.config.store_dir, "%s", cache);
    snprintf(expected, sizeof expected, "%s/swapnet", own);
    assert_int_equal(seteuid(NOBODY), 0);
    int first = swn_open_spill(&e);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(first, 0);
    assert_string_equal(e.writes.spill_dir, expected);
    swn_spill_close(e.writes.spill);
    e.writes.spill_dir[0] = 0;
    strcat(e.config.store_dir, "/missing");
    assert_int_equal(seteuid(NOBODY), 0);
    int missing = swn_open_spill(&e);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(missing, -EACCES);
    rmdir(expected);
    rmdir(cache);
    rmdir(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_advice_is_for_the_cause),
                                       cmocka_unit_test(test_spill_file_beside_a_cache_that_is_only_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
