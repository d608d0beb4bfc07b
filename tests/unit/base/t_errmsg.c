/* Description: texts that others chose have nothing left in them that acts on a terminal, and are UTF-8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/errmsg.h"

static void check(const char *text, const char *shown)
{
    char copy[64];
    snprintf(copy, sizeof copy, "%s", text);
    swn_one_line(copy);
    assert_string_equal(copy, shown);
}

static void test_control_characters_are_replaced(void **state)
{
    (void)state;
    check("a\033[2J\a\n\r\t\x7f", "a?[2J?????");
    check("\xc2\x80|\xc2\x9b|\xc2\x9f", "??|??|??");
    check("\xe2\x80\xa8|\xe2\x80\xa9", "???|???"); /* ends of a line and of a paragraph */
}

static void test_turning_the_direction_is_replaced(void **state)
{
    (void)state;
    check("\xe2\x80\xaa\xe2\x80\xae|\xe2\x81\xa6\xe2\x81\xa9", "??????|??????");
    check("\xd8\x9c|\xe2\x80\x8e|\xe2\x80\x8f", "??|???|???");
}

static void test_bytes_that_are_not_utf8_are_replaced(void **state)
{
    (void)state;
    check("a\x9b"
          "31m\x80",
          "a?31m?");                                    /* the second set, as terminals without UTF-8 know it */
    check("\xc0\x9b|\xe0\x80\x9b", "??|???");           /* long forms of ESC */
    check("\xed\xa0\x80|\xf4\x90\x80\x80", "???|????"); /* a surrogate; above 10FFFF */
    check("a\xe2\x80", "a??");                          /* as a full buffer leaves them */
    check("\xff\xfe", "??");
}

static void test_what_merely_shows_stays(void **state)
{
    (void)state;
    static const char text[] = "a \xc2\xa0\xc3\xa4\xe2\x80\x94\xe6\xbc\xa2\xf0\x9f\x98\x80~";
    check(text, text);
    check("", "");
}

/* Every character of Unicode in its own bytes is UTF-8, and what its bytes become is. */
static void test_all_characters(void **state)
{
    (void)state;
    for (uint32_t c = 1; c < 0x110000; c++) {
        char text[5] = "";
        if (c < 0x80)
            text[0] = (char)c;
        else if (c < 0x800)
            memcpy(text, (char[]){(char)(0xc0 | c >> 6), (char)(0x80 | (c & 63))}, 2);
        else if (c < 0x10000)
            memcpy(text, (char[]){(char)(0xe0 | c >> 12), (char)(0x80 | (c >> 6 & 63)), (char)(0x80 | (c & 63))}, 3);
        else
            memcpy(text,
                   (char[]){(char)(0xf0 | c >> 18), (char)(0x80 | (c >> 12 & 63)), (char)(0x80 | (c >> 6 & 63)),
                            (char)(0x80 | (c & 63))},
                   4);
        uint32_t code = 0;
        int surrogate = c >= 0xd800 && c <= 0xdfff;
        if (swn_utf8_char(text, strlen(text), &code) != (surrogate ? 0 : strlen(text)) || (!surrogate && code != c))
            fail_msg("character %x", c);
        swn_one_line(text);
        if (!swn_is_utf8(text, strlen(text)))
            fail_msg("character %x shown", c);
    }
}

static void test_errors_are_one_line(void **state)
{
    (void)state;
    char why[SWN_ERRMSG];
    assert_int_equal(swn_errmsg(why, -5, "%s: no", "x\n\x9b"), -5);
    assert_string_equal(why, "x??: no");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_characters_are_replaced),
        cmocka_unit_test(test_turning_the_direction_is_replaced),
        cmocka_unit_test(test_bytes_that_are_not_utf8_are_replaced),
        cmocka_unit_test(test_what_merely_shows_stays),
        cmocka_unit_test(test_all_characters),
        cmocka_unit_test(test_errors_are_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
