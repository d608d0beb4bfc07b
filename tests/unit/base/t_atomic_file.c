/* Description: what has the name of an output and is no regular file stays what it is: a link, a FIFO, a socket, a
 * directory, a device. */
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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/text_file.h"

static char dir[] = "/tmp/t_atomic_file-XXXXXX";
static char path[PATH_MAX];

static int make_dir(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "%s/out", mkdtemp(dir));
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    rmdir(dir);
    return 0;
}

/* What was made as `path` refuses both writers, and is the same file afterwards. */
static void check_stays(const char *kind)
{
    struct stat before, after;
    struct swn_atomic_file f;
    char why[SWN_ERRMSG] = "";
    assert_int_equal(lstat(path, &before), 0);
    int rc = swn_atomic_file_open(&f, &swn_io_sys, path, 0600, why);
    if (!rc)
        swn_atomic_file_commit(&f, &swn_io_sys, why);
    assert_int_equal(rc, -EEXIST);
    assert_non_null(strstr(why, path));
    assert_non_null(strstr(why, kind));
    assert_int_equal(swn_textfile_replace(path, "x", 1), -EEXIST);
    assert_int_equal(lstat(path, &after), 0);
    assert_true(before.st_ino == after.st_ino && before.st_mode == after.st_mode);
    remove(path);
    assert_int_equal(rmdir(dir), 0); /* nothing is left beside it */
    assert_int_equal(mkdir(dir, 0700), 0);
}

static void test_link_is_not_replaced(void **state)
{
    (void)state;
    assert_int_equal(symlink("/proc/self/fd/1", path), 0);
    check_stays("a symbolic link");
    assert_int_equal(symlink("nowhere", path), 0);
    check_stays("a symbolic link");
}

static void test_fifo_is_not_replaced(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    check_stays("a FIFO");
}

static void test_socket_is_not_replaced(void **state)
{
    (void)state;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%.*s", (int)sizeof at.sun_path - 1, path);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    check_stays("a socket");
    close(fd);
}

static void test_directory_is_not_replaced(void **state)
{
    (void)state;
    assert_int_equal(mkdir(path, 0700), 0);
    check_stays("a directory");
}

static void test_device_is_not_replaced(void **state)
{
    (void)state;
    if (mknod(path, S_IFCHR | 0600, makedev(1, 3)))
        skip(); /* not root's process */
    check_stays("a device");
}

static void test_regular_file_is_replaced(void **state)
{
    (void)state;
    struct swn_atomic_file f;
    char why[SWN_ERRMSG], text[8] = "";
    for (int i = 0; i < 2; i++) {
        assert_int_equal(swn_atomic_file_open(&f, &swn_io_sys, path, 0600, why), 0);
        assert_int_equal(pwrite(f.file.fd, i ? "new" : "old", 3, 0), 3);
        assert_int_equal(swn_atomic_file_commit(&f, &swn_io_sys, why), 0);
    }
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_string_equal(text, "new");
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_link_is_not_replaced),   cmocka_unit_test(test_fifo_is_not_replaced),
        cmocka_unit_test(test_socket_is_not_replaced), cmocka_unit_test(test_directory_is_not_replaced),
        cmocka_unit_test(test_device_is_not_replaced), cmocka_unit_test(test_regular_file_is_replaced),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
