/* base/errmsg.c - see errmsg.h. */
#include "base/errmsg.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

size_t swn_utf8_char(const char *text, size_t len, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)text;
    if (!len)
        return 0;
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc0 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf8 ? 4 : 0;
    if (!n || n > len)
        return 0;
    *code = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        *code = *code << 6 | (p[i] & 0x3fu);
    }
    int surrogate = *code >= 0xd800 && *code <= 0xdfff;
    return *code < least[n] || surrogate || *code > 0x10ffff ? 0 : n;
}

int swn_is_utf8(const char *text, size_t len)
{
    uint32_t code;
    for (size_t i = 0, n; i < len; i += n)
        if (!(n = swn_utf8_char(text + i, len - i, &code)))
            return 0;
    return 1;
}

void swn_make_utf8(char *text)
{
    uint32_t code;
    for (size_t i = 0, len = strlen(text), n; i < len; i += n ? n : 1)
        if (!(n = swn_utf8_char(text + i, len - i, &code)))
            text[i] = '?';
}

/* What a terminal takes for a command (the control characters of both sets), for the end of a line, or for another
 * direction of writing. */
static int acts(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x61c || code == 0x200e || code == 0x200f ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

void swn_one_line(char *text)
{
    uint32_t code = 0;
    for (size_t i = 0, len = strlen(text), n; i < len; i += n) {
        size_t good = swn_utf8_char(text + i, len - i, &code);
        n = good ? good : 1; /* a lone byte from 0x80 on is a command to terminals that know no UTF-8 */
        if (!good || acts(code))
            memset(text + i, '?', n);
    }
}

int swn_errmsg(char why[SWN_ERRMSG], int err, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(why, SWN_ERRMSG, format, ap);
    va_end(ap);
    swn_one_line(why);
    return err;
}
