/* Description: the version.py of a PyTorch gives the version by which its backends are named, or none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "skeleton/abi/torch_version.h"

static char path[] = "/tmp/t_torch_version-XXXXXX";

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static int version_in(const char *text, char *version, size_t size)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fputs(text, f) < 0, 0);
    assert_int_equal(fclose(f), 0);
    return swn_torch_version_read(path, version, size);
}

static void names_a_version(void **state)
{
    static const struct {
        const char *text, *version;
    } rows[] = {
        {"__version__ = '2.13.0+cpu'\ndebug = False\n", "2.13"},
        {"from typing import Optional\n\n__all__ = ['__version__', 'debug']\n__version__ = \"1.13.1\"\n", "1.13"},
        {"__version__ = '3.0a0", "3.0"},
        {"__version__ = '2.1.0'\n__version__ = '2.2.0'\n", "2.1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char version[32] = "";
        assert_int_equal(version_in(rows[i].text, version, sizeof version), 0);
        assert_string_equal(version, rows[i].version);
    }
}

static void names_none(void **state)
{
    static const char *const rows[] = {
        "",
        "\n\n\n",
        "__version__ = 'unknown'\n",
        "__version__ = '2'\n",
        "__version__ = 2.13\n",
        "# __version__ = '2.13.0'\n",
        "debug = False\ncuda = '12.1'\n",
    };
    char version[32];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(version_in(rows[i], version, sizeof version), -1);
}

static void has_no_room(void **state)
{
    char version[5];
    (void)state;
    assert_int_equal(version_in("__version__ = '2.13.0'\n", version, sizeof version), 0);
    assert_int_equal(version_in("__version__ = '2.13.0'\n", version, sizeof version - 1), -1);
    assert_int_equal(version_in("__version__ = '4294967295.4294967295'\n", version, sizeof version), -1);
}

static void is_not_there(void **state)
{
    char version[32];
    (void)state;
    assert_int_equal(swn_torch_version_read("/nowhere/version.py", version, sizeof version), -1);
    assert_int_equal(swn_torch_version_read("/tmp", version, sizeof version), -1); /* opens, and cannot be read */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_a_version),
        cmocka_unit_test(names_none),
        cmocka_unit_test(has_no_room),
        cmocka_unit_test(is_not_there),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
