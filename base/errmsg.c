/* base/errmsg.c - see errmsg.h. */
#include "base/errmsg.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The length of the UTF-8 character at `text` when it changes the direction of writing (U+202A to 202E, U+2066 to 2069)
 * or is a control character of the second set (U+0080 to 009F), which some terminals take for an escape; else 0. */
static size_t hidden(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f)
        return 2;
    if (p[0] != 0xe2)
        return 0;
    int turns = (p[1] == 0x80 && p[2] >= 0xaa && p[2] <= 0xae) || (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9);
    return turns ? 3 : 0;
}

void swn_one_line(char *text)
{
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
        else
            memset(p, '?', hidden(p));
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
