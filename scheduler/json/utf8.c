/* scheduler/json/utf8.c - UTF-8 by RFC 3629: the shortest form of a code point that is no surrogate. */
#include "scheduler/json/utf8.h"

#include <stdint.h>
#include <string.h>

static int follows(unsigned char c)
{
    return (c & 0xc0) == 0x80;
}

unsigned swn_utf8_next(const char *at, const char *end)
{
    const unsigned char *c = (const unsigned char *)at;
    size_t have = (size_t)(end - at);

    if (have == 0)
        return 0;
    if (c[0] < 0x80)
        return 1;
    if (c[0] >= 0xc2 && c[0] <= 0xdf)
        return have >= 2 && follows(c[1]) ? 2 : 0;
    if ((c[0] & 0xf0) == 0xe0) {
        if (have < 3 || !follows(c[1]) || !follows(c[2]) || (c[0] == 0xe0 && c[1] < 0xa0) ||
            (c[0] == 0xed && c[1] > 0x9f))
            return 0;
        return 3;
    }
    if (c[0] >= 0xf0 && c[0] <= 0xf4) {
        if (have < 4 || !follows(c[1]) || !follows(c[2]) || !follows(c[3]) || (c[0] == 0xf0 && c[1] < 0x90) ||
            (c[0] == 0xf4 && c[1] > 0x8f))
            return 0;
        return 4;
    }
    return 0;
}

int swn_utf8_is_valid(const char *text, size_t bytes)
{
    const char *end = text + bytes;

    while (text < end) {
        uint64_t eight;
        if (end - text >= (ptrdiff_t)sizeof eight) {
            memcpy(&eight, text, sizeof eight);
            if (!(eight & UINT64_C(0x8080808080808080))) {
                text += sizeof eight;
                continue;
            }
        }
        unsigned n = swn_utf8_next(text, end);
        if (n == 0)
            return 0;
        text += n;
    }
    return 1;
}

unsigned swn_utf8_put(unsigned code, char to[4])
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xc0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xe0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3f));
        to[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 0x3f));
    to[2] = (char)(0x80 | (code >> 6 & 0x3f));
    to[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}
