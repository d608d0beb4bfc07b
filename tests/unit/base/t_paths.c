/* Description: which directories nobody else can put files in, or replace. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"

static char root[] = "/tmp/t_paths-XXXXXX";

static const char *at(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static void test_own_directory_is_trusted(void **state)
{
    (void)state;
    assert_int_equal(mkdir(at("own"), 0755), 0);
    assert_int_equal(swn_dir_is_trusted(at("own")), 0);
    assert_int_equal(swn_dir_is_trusted(at("own//")), 0);
    assert_int_equal(swn_dir_is_trusted("/"), 0);
    assert_int_equal(chdir(root), 0);
    assert_int_equal(swn_dir_is_trusted("own"), 0);
    assert_int_equal(swn_dir_is_trusted(at("none")), -ENOENT);
    assert_int_equal(swn_dir_is_trusted(at("none/below")), -ENOENT);
}

static void test_link_is_not_trusted(void **state)
{
    (void)state;
    assert_int_equal(symlink("own", at("link")), 0);
    assert_int_equal(swn_dir_is_trusted(at("link")), -ELOOP);
    assert_int_equal(swn_dir_is_trusted(at("link/")), -ELOOP);
    assert_int_equal(mkdir(at("own/below"), 0755), 0);
    assert_int_equal(swn_dir_is_trusted(at("link/below")), 0); /* our own link */
}

static void test_directory_that_others_write_to_is_not_trusted(void **state)
{
    (void)state;
    static const mode_t open_to_others[] = {0775, 0757, 01777};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(chmod(at("own/below"), open_to_others[i]), 0);
        assert_int_equal(swn_dir_is_trusted(at("own/below")), -EPERM);
    }
    assert_int_equal(chmod(at("own/below"), 0755), 0);
    assert_int_equal(chmod(at("own"), 0777), 0); /* above it */
    assert_int_equal(swn_dir_is_trusted(at("own/below")), -EPERM);
    assert_int_equal(chmod(at("own"), 01777), 0);
    assert_int_equal(swn_dir_is_trusted(at("own/below")), 0);
    assert_int_equal(chmod(at("own"), 0755), 0);
}

static void test_directory_below_another_users_is_not_trusted(void **state)
{
    (void)state;
    if (geteuid())
        skip();
    assert_int_equal(chown(at("own"), 65534, 65534), 0);
    assert_int_equal(swn_dir_is_trusted(at("own")), -EPERM);
    assert_int_equal(swn_dir_is_trusted(at("own/below")), -EPERM);
    assert_int_equal(chown(at("own"), 0, 0), 0);
    assert_int_equal(lchown(at("link"), 65534, 65534), 0);
    assert_int_equal(swn_dir_is_trusted(at("link/below")), -EPERM);
}

static int make_root(void **state)
{
    (void)state;
    umask(0);
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    static const char *const names[] = {"own/below", "own", "link", ""};
    for (size_t i = 0; i < 4; i++)
        remove(at(names[i]));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_directory_is_trusted),
        cmocka_unit_test(test_link_is_not_trusted),
        cmocka_unit_test(test_directory_that_others_write_to_is_not_trusted),
        cmocka_unit_test(test_directory_below_another_users_is_not_trusted),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
