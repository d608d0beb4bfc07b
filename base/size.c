/* base/size.c - parsing and printing of sizes. strtod is not used: it would follow the host program's locale. */
#include "base/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define FRACTION_DIGITS 18 /* fits 64 bits, doubled; further digits are worth less than a byte of 1T */

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The shift of a unit's letter in bits, 0 for a letter that is no unit. */
static unsigned unit_bits(char c)
{
    switch (c) {
    case 'K':
    case 'k':
        return 10;
    case 'M':
    case 'm':
        return 20;
    case 'G':
    case 'g':
        return 30;
    case 'T':
    case 't':
        return 40;
    default:
        return 0;
    }
}

/* floor(num / den * 2^bits) for num < den <= 10^18, one bit at a time: exact, and needs no 128-bit type. */
static uint64_t scale_fraction(uint64_t num, uint64_t den, unsigned bits)
{
    uint64_t out = 0;
    for (unsigned i = 0; i < bits; i++) {
        num *= 2;
        out *= 2;
        if (num >= den) {
            num -= den;
            out++;
        }
    }
    return out;
}

int swn_parse_size(const char *text, uint64_t *bytes)
{
    const char *p = text;
    uint64_t whole = 0, num = 0, den = 1;
    int fraction = 0, overflow = 0;

    if (!is_digit(*p))
        return -EINVAL;
    for (; is_digit(*p); p++)
        if (__builtin_mul_overflow(whole, 10u, &whole) || __builtin_add_overflow(whole, (unsigned)(*p - '0'), &whole))
            overflow = 1; /* junk behind the digits gives the better message, so read on */
    if (*p == '.') {
        fraction = 1;
        if (!is_digit(*++p))
            return -EINVAL;
        for (int n = 0; is_digit(*p); p++, n++) {
            if (n < FRACTION_DIGITS) {
                num = num * 10 + (unsigned)(*p - '0');
                den *= 10;
            }
        }
    }
    unsigned bits = unit_bits(*p);
    if (bits) {
        p++;
        if ((*p == 'i' || *p == 'I') && (p[1] == 'B' || p[1] == 'b'))
            p++;
    }
    if (*p == 'B' || *p == 'b')
        p++;
    if (*p || (fraction && !bits))
        return -EINVAL;
    if (overflow || whole > (UINT64_MAX >> bits))
        return -ERANGE;
    /* the shifted whole leaves the low `bits` bits free, and the fraction is below 2^bits */
    *bytes = (whole << bits) | scale_fraction(num, den, bits);
    return 0;
}

int swn_parse_budget(const char *text, uint64_t *bytes, const char **why)
{
    static const char too_large[] = "is too large: it can be " SWN_MEMORY_MOST_TEXT " at most; use e.g. 256M or 2G";
    size_t len = strlen(text);
    uint64_t value = 0;

    if (len && text[len - 1] == '%') {
        *why = "is refused: a percentage needs the model's size: swapnetctl run --budget N% --profile FILE "
               "has it; or give a size such as 256M";
        return -EINVAL;
    }
    if (strcmp(text, "auto") == 0) {
        *why = "is not to be had here: give a size such as 256M";
        return -EINVAL;
    }
    int rc = swn_parse_size(text, &value);
    if (rc) {
        *why = rc == -ERANGE ? too_large : "is not a size: use e.g. 256M or 2G";
        return rc;
    }
    if (value > SWN_MEMORY_MOST_BYTES) {
        *why = too_large;
        return -ERANGE;
    }
    if (value < SWN_BUDGET_LEAST_BYTES) {
        *why = "is below the minimum: give at least 4M (4 MiB)";
        return -EINVAL;
    }
    *bytes = value;
    return 0;
}

char *swn_format_mib(char buf[32], uint64_t bytes)
{
    uint64_t tenths = bytes / MIB * 10 + (bytes % MIB * 10 + MIB / 2) / MIB;
    snprintf(buf, 32, "%" PRIu64 ".%" PRIu64 " MiB", tenths / 10, tenths % 10);
    return buf;
}
