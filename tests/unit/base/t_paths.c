/* Description: which directories nobody else can put files in, or replace; where the default store directory is. */
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

#define NOBODY 65534

static void test_nothing_is_made_below_another_users(void **state)
{
    struct stat st;
    (void)state;
    assert_int_equal(swn_make_trusted_dirs(at("own/below/a//b")), 0);
    assert_int_equal(swn_make_trusted_dirs(at("own/below/a/b/")), 0); /* it is there */
    assert_int_equal(stat(at("own/below/a/b"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(rmdir(at("own/below/a/b")), 0);
    assert_int_equal(rmdir(at("own/below/a")), 0);
    assert_int_equal(swn_make_trusted_dirs("relative"), -EINVAL);
    assert_int_equal(chmod(at("own"), 0777), 0);
    assert_int_equal(swn_make_trusted_dirs(at("own/below/a/b")), -EPERM);
    assert_int_equal(swn_make_trusted_dirs(at("own/other")), -EPERM);
    assert_int_equal(chmod(at("own"), 0755), 0);
    if (!geteuid()) { /* root with a user's home, whose directories he would be locked out of */
        assert_int_equal(chown(at("own/below"), NOBODY, NOBODY), 0);
        assert_int_equal(swn_make_trusted_dirs(at("own/below/a/b")), -EPERM);
        assert_int_equal(chown(at("own/below"), 0, 0), 0);
    }
    assert_int_equal(stat(at("own/below/a"), &st), -1);
    assert_int_equal(stat(at("own/other"), &st), -1);
}

static const char *default_dir(const char *name, const char *dir)
{
    static char found[PATH_MAX];
    char text[2 * PATH_MAX];
    snprintf(text, sizeof text, "%s=%s", name, dir);
    assert_int_equal(swn_default_store_dir((char *[]){text, NULL}, found, sizeof found), 0);
    return found;
}

/* A user's cache is below his home, whether that is there yet or not. */
static void test_store_is_in_the_own_cache(void **state)
{
    char expected[2 * PATH_MAX];
    (void)state;
    snprintf(expected, sizeof expected, "%s/.cache/swapnet", at("own"));
    assert_string_equal(default_dir("HOME", at("own")), expected);
    snprintf(expected, sizeof expected, "%s/swapnet", at("none"));
    assert_string_equal(default_dir("XDG_CACHE_HOME", at("none")), expected);
}

/* After su or sudo -E the home is another user's: nothing is made there, nor by way of that user's links. */
static void test_store_is_not_in_another_users_home(void **state)
{
    char expected[64];
    (void)state;
    if (geteuid())
        skip();
    snprintf(expected, sizeof expected, "/var/tmp/swapnet-%u", (unsigned)geteuid());
    assert_int_equal(chown(at("own"), NOBODY, NOBODY), 0);
    assert_string_equal(default_dir("HOME", at("own")), expected);
    assert_string_equal(default_dir("HOME", at("own/below")), expected); /* he can put another in its place */
    assert_int_equal(chown(at("own"), 0, 0), 0);
    assert_int_equal(chown(at("own/below"), NOBODY, NOBODY), 0);
    assert_string_equal(default_dir("HOME", at("own/below")), expected);
    assert_int_equal(lchown(at("link"), NOBODY, NOBODY), 0);
    assert_string_equal(default_dir("XDG_CACHE_HOME", at("link")), expected);
    /* A program that is not root's, with root's home; and one in a container, whose home is "/". */
    snprintf(expected, sizeof expected, "/var/tmp/swapnet-%u", NOBODY);
    assert_int_equal(chmod(root, 0755), 0);
    assert_int_equal(seteuid(NOBODY), 0);
    const char *found = default_dir("HOME", at("own"));
    assert_int_equal(strcmp(found, expected), 0);
    found = default_dir("HOME", "/");
    assert_int_equal(strcmp(found, expected), 0);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(chown(at("own/below"), 0, 0), 0);
    assert_int_equal(lchown(at("link"), 0, 0), 0);
}

static void test_store_is_not_where_another_user_was_first(void **state)
{
    char out[PATH_MAX], dir[64];
    (void)state;
    if (geteuid())
        skip();
    assert_int_equal(chmod(root, 0755), 0);
    snprintf(dir, sizeof dir, "/var/tmp/swapnet-%u", NOBODY - 7);
    if (mkdir(dir, 0755))
        skip();
    assert_int_equal(seteuid(NOBODY - 7), 0);
    int rc = swn_default_store_dir((char *[]){"HOME=/", NULL}, out, sizeof out);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(rc, -EPERM);
}

static void test_parts_are_beside_the_programs(void **state)
{
    char self[PATH_MAX], found[PATH_MAX];
    (void)state;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = 0;
    *strrchr(self, '/') = 0;
    *(strrchr(self, '/') + 1) = 0; /* the directory above this program's */
    assert_int_equal(swn_installed("swapnet/x", found, sizeof found), 0);
    assert_memory_equal(found, self, strlen(self));
    size_t end = strlen(found) - strlen("/swapnet/x");
    assert_string_equal(found + end, "/swapnet/x");
    assert_true(end > strlen(self));
    assert_int_equal(swn_installed("swapnet/x", found, end), -ENAMETOOLONG);
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
        cmocka_unit_test(test_parts_are_beside_the_programs),
        cmocka_unit_test(test_nothing_is_made_below_another_users),
        cmocka_unit_test(test_store_is_in_the_own_cache),
        cmocka_unit_test(test_store_is_not_in_another_users_home),
        cmocka_unit_test(test_store_is_not_where_another_user_was_first),
        cmocka_unit_test(test_directory_below_another_users_is_not_trusted),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
