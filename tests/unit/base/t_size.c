/* Description: sizes and budgets as text, and printed in MiB. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "base/size.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define GIB (KIB * MIB)
#define TIB (KIB * GIB)

static void good_sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } rows[] = {
        {"0", 0},
        {"1", 1},
        {"100B", 100},
        {"4k", 4 * KIB},
        {"4KB", 4 * KIB},
        {"256M", 256 * MIB},
        {"256MiB", 256 * MIB},
        {"256mib", 256 * MIB},
        {"2G", 2 * GIB},
        {"1.5G", GIB + GIB / 2},
        {"0.5K", 512},
        {"0.001K", 1},
        {"0.0001K", 0},
        {"1.0000000000000000000000009M", MIB},
        {"0.999999999999999999T", TIB - 1},
        {"0.1T", 109951162777},
        {"007M", 7 * MIB},
        {"16777215T", 16777215 * TIB},
        {"18446744073709551615", UINT64_MAX},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t bytes = 42;
        assert_int_equal(swn_parse_size(rows[i].text, &bytes), 0);
        assert_int_equal(bytes, rows[i].bytes);
    }
}

static void bad_sizes(void **state)
{
    static const char *const junk[] = {
        "",     " ",    "M",    "-1",  "+1",   " 1M",  "1M ",   "1 M", "12x", "1Mx",
        "1.5",  "1.5B", ".5G",  "1.G", "1..5", "1,5G", "0x10",  "1e6", "1Mi", "1iB",
        "1MBB", "1P",   "1M\n", "nan", "inf",  "1BiB", "1MiBB", "1%",  "1KM", "99999999999999999999x"};
    static const char *const large[] = {"18446744073709551616", "99999999999999999999", "16777216T", "17179869184G",
                                        "99999999999999999999K"};
    (void)state;
    for (size_t i = 0; i < sizeof(junk) / sizeof(junk[0]); i++) {
        uint64_t bytes = 42;
        assert_int_equal(swn_parse_size(junk[i], &bytes), -EINVAL);
        assert_int_equal(bytes, 42);
    }
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        uint64_t bytes = 42;
        assert_int_equal(swn_parse_size(large[i], &bytes), -ERANGE);
        assert_int_equal(bytes, 42);
    }
}

static void budgets(void **state)
{
    static const struct {
        const char *text;
        int rc;
        const char *part; /* of the reason */
    } rows[] = {
        {"4M", 0, ""},
        {"4194303", -EINVAL, "4 MiB"},
        {"0", -EINVAL, "4 MiB"},
        {"50%", -EINVAL,
         "a percentage needs the model's size: swapnetctl run --budget N% --profile FILE has it; or give a size such "
         "as 256M"},
        {"auto", -EINVAL, "not to be had here"},
        {"12x", -EINVAL, "is not a size: use e.g. 256M or 2G"},
        {"99999999T", -ERANGE, "too large"},
        {"4097T", -ERANGE, "too large: it can be 4096T at most"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t bytes = 42;
        const char *why = "";
        assert_int_equal(swn_parse_budget(rows[i].text, &bytes, &why), rows[i].rc);
        assert_non_null(strstr(why, rows[i].part));
        assert_int_equal(bytes, rows[i].rc ? 42 : SWN_BUDGET_LEAST_BYTES);
    }
    uint64_t most = 0;
    assert_int_equal(swn_parse_budget(SWN_MEMORY_MOST_TEXT, &most, &(const char *){NULL}), 0);
    assert_true(most == SWN_MEMORY_MOST_BYTES);
}

static void printed(void **state)
{
    char buf[32];
    (void)state;
    assert_string_equal(swn_format_mib(buf, 0), "0.0 MiB");
    assert_string_equal(swn_format_mib(buf, 256 * MIB), "256.0 MiB");
    assert_string_equal(swn_format_mib(buf, MIB + MIB / 2), "1.5 MiB");
    assert_string_equal(swn_format_mib(buf, MIB - 1), "1.0 MiB");
    assert_string_equal(swn_format_mib(buf, UINT64_MAX), "17592186044416.0 MiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_sizes),
        cmocka_unit_test(bad_sizes),
        cmocka_unit_test(budgets),
        cmocka_unit_test(printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
