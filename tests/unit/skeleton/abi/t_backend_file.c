/* Description: which file is a PyTorch's backend, by version and C++ strings, and that a user's directory is searched
 * only where it is that user's alone. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/paths.h"
#include "skeleton/abi/backend_file.h"

#define NAME "aten-2.4-precxx11.so"

static char root[PATH_MAX], shipped[2 * PATH_MAX], own[2 * PATH_MAX], home_variable[2 * PATH_MAX];
static char *env[] = {home_variable, NULL};
static char found[PATH_MAX], why[4 * PATH_MAX];

static int find(const char *name)
{
    found[0] = why[0] = 0;
    return swn_backend_find(shipped, env, name, found, sizeof found, why, sizeof why);
}

static const char *in(const char *dir, const char *name)
{
    static char path[3 * PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void make_file(const char *path)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static int make_places(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/var/tmp/t_backend_file-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    snprintf(home_variable, sizeof home_variable, "HOME=%s", root);
    snprintf(shipped, sizeof shipped, "%s/shipped", root);
    return mkdir(shipped, 0755) || swn_backend_user_dir(env, own, sizeof own) || swn_make_dirs(own) ? -1 : 0;
}

static int remove_places(void **state)
{
    (void)state;
    char command[2 * PATH_MAX];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static void names(void **state)
{
    char name[64];
    (void)state;
    assert_int_equal(swn_backend_name("aten", "2.13", 0, name, sizeof name), 0);
    assert_string_equal(name, "aten-2.13.so");
    assert_int_equal(swn_backend_name("serve", "2.4", 1, name, sizeof name), 0);
    assert_string_equal(name, "serve-2.4-precxx11.so");
    assert_int_equal(swn_backend_name("serve", "2.4", 1, name, strlen(name) + 1), 0);
    assert_int_equal(swn_backend_name("serve", "2.4", 1, name, strlen("serve-2.4-precxx11.so")), -ENAMETOOLONG);
}

/* This program's libraries are not PyTorch's, so it has no such strings. */
static void strings(void **state)
{
    (void)state;
    assert_false(swn_backend_has_old_strings(dlopen(NULL, RTLD_LAZY)));
}

/* Machine and version, and then the hash of the sources. */
static void assert_build(const char *name, const char *begins)
{
    assert_int_equal(strncmp(name, begins, strlen(begins)), 0);
    name += strlen(begins);
    assert_int_equal(strlen(name), 12);
    assert_int_equal(strspn(name, "0123456789abcdef"), 12);
}

static void user_directory(void **state)
{
    static const struct {
        char *env[3];
        const char *dir; /* without the machine's name and the build's at its end */
    } rows[] = {
        {{"XDG_DATA_HOME=/data", "HOME=/home/u", NULL}, "/data/swapnet/backends/"},
        {{"XDG_DATA_HOME=data", "HOME=/home/u", NULL}, "/home/u/.local/share/swapnet/backends/"},
        {{"XDG_DATA_HOME=", "HOME=/home/u", NULL}, "/home/u/.local/share/swapnet/backends/"},
        {{"HOME=home", NULL, NULL}, NULL},
        {{NULL, NULL, NULL}, NULL},
    };
    char dir[PATH_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc = swn_backend_user_dir(rows[i].env, dir, sizeof dir);
        assert_int_equal(rc, rows[i].dir ? 0 : -ENOENT);
        if (rc)
            continue;
        assert_int_equal(strncmp(dir, rows[i].dir, strlen(rows[i].dir)), 0);
#if defined(__x86_64__)
        assert_build(dir + strlen(rows[i].dir), "x86_64/" SWAPNET_VERSION "-");
#elif defined(__aarch64__)
        assert_build(dir + strlen(rows[i].dir), "aarch64/" SWAPNET_VERSION "-");
#endif
    }
    assert_int_equal(swn_backend_user_dir(rows[0].env, dir, 12), -ENAMETOOLONG);
}

/* A newer PyTorch than any backend, and one with other strings than those that are there. */
static void missing(void **state)
{
    (void)state;
    make_file(in(shipped, "aten-2.4.so"));
    assert_int_equal(find(NAME), -ENOENT);
    assert_non_null(strstr(why, "no " NAME " in "));
    assert_non_null(strstr(why, "swapnetctl add-torch"));
    assert_int_equal(find("aten-2.40.so"), -ENOENT);
    assert_int_equal(unlink(in(shipped, "aten-2.4.so")), 0);
}

static void shipped_first(void **state)
{
    (void)state;
    make_file(in(own, NAME));
    assert_int_equal(find(NAME), 0);
    assert_string_equal(found, in(own, NAME));
    make_file(in(shipped, NAME));
    assert_int_equal(find(NAME), 0);
    assert_string_equal(found, in(shipped, NAME));
    assert_int_equal(unlink(in(shipped, NAME)), 0);
    assert_int_equal(unlink(in(own, NAME)), 0);
}

/* What add-torch built before swapnet was replaced: in the directory of another version, of other sources of the same
 * version, or of a swapnet that had one directory for all. */
static void another_build(void **state)
{
    static const char *const others[] = {"0.1.0-0123456789ab", SWAPNET_VERSION "-0123456789ab", SWAPNET_VERSION, "."};
    char above[2 * PATH_MAX], other[2 * PATH_MAX + 32];
    (void)state;
    assert_int_equal(swn_dir_of(own, above, sizeof above), 0);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(other, sizeof other, "%s/%s", above, others[i]);
        assert_int_equal(swn_make_dirs(other), 0);
        make_file(in(other, NAME));
        assert_int_equal(find(NAME), -ENOENT);
        assert_non_null(strstr(why, "swapnetctl add-torch"));
        assert_int_equal(unlink(in(other, NAME)), 0);
    }
}

static void others_can_write(void **state)
{
    char moved[3 * PATH_MAX];
    (void)state;
    make_file(in(own, NAME));
    static const mode_t modes[] = {0720, 0702, 0777, 01777};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        assert_int_equal(chmod(own, modes[i]), 0);
        assert_int_equal(find(NAME), -EPERM);
        assert_non_null(strstr(why, NAME));
    }
    assert_int_equal(chmod(own, 0700), 0);
    assert_int_equal(chmod(in(own, NAME), 0620), 0);
    assert_int_equal(find(NAME), -EPERM);
    assert_int_equal(chmod(in(own, NAME), 0600), 0);
    assert_int_equal(find(NAME), 0);
    /* Above it, where another user could put another directory in its place. */
    assert_int_equal(chmod(root, 0777), 0);
    assert_int_equal(find(NAME), -EPERM);
    assert_int_equal(chmod(root, 0700), 0);
    /* Links. */
    snprintf(moved, sizeof moved, "%s/elsewhere", root);
    assert_int_equal(rename(in(own, NAME), moved), 0);
    assert_int_equal(symlink(moved, in(own, NAME)), 0);
    assert_int_equal(find(NAME), -ELOOP);
    assert_int_equal(unlink(in(own, NAME)), 0);
    assert_int_equal(rename(moved, in(own, NAME)), 0);
    assert_int_equal(rename(own, moved), 0);
    assert_int_equal(symlink(moved, own), 0);
    assert_int_equal(find(NAME), -ELOOP);
    assert_int_equal(unlink(own), 0);
    assert_int_equal(rename(moved, own), 0);
    assert_int_equal(find(NAME), 0);
    assert_int_equal(unlink(in(own, NAME)), 0);
}

/* What root finds in another user's home, and what that user, and a program with more rights than its user, find. */
static void another_user(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    make_file(in(own, NAME));
    assert_int_equal(chown(in(own, NAME), 12345, 12345), 0);
    assert_int_equal(find(NAME), -EPERM);
    assert_int_equal(chown(in(own, NAME), 0, 0), 0);
    assert_int_equal(chown(own, 12345, 12345), 0);
    assert_int_equal(find(NAME), -EPERM);
    assert_int_equal(chown(own, 0, 0), 0);
    assert_int_equal(find(NAME), 0);
    assert_int_equal(seteuid(12345), 0);
    int rc = swn_backend_dir_is_private("/var/tmp");
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(rc, -EPERM);
    pid_t child = fork();
    if (!child) /* root's file is not this user's own, though no other user can change it */
        _exit(chmod(root, 0755) || setgid(12345) || setuid(12345) || swn_backend_dir_is_private(shipped) != -EPERM);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(unlink(in(own, NAME)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),        cmocka_unit_test(strings),       cmocka_unit_test(user_directory),
        cmocka_unit_test(missing),      cmocka_unit_test(shipped_first), cmocka_unit_test(others_can_write),
        cmocka_unit_test(another_user), cmocka_unit_test(another_build),
    };
    return cmocka_run_group_tests(tests, make_places, remove_places);
}
