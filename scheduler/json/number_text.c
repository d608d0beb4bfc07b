/* scheduler/json/number_text.c - floating point numbers as text: see number_text.h.
 *
 * The digits are one multiplication by a power of ten in 64 bits, rounded; where the error of that power leaves open
 * how, printf's digits are taken.
 */
#include "scheduler/json/number_text.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "scheduler/json/decimal_power.h"

struct decimal {
    uint64_t digits; /* as many as asked for, the first one not 0 */
    int exponent;    /* of the first digit */
};

static const uint64_t tens[] = {[8] = UINT64_C(100000000),
                                [9] = UINT64_C(1000000000),
                                [16] = UINT64_C(10000000000000000),
                                [17] = UINT64_C(100000000000000000)};

/* significand * 2^exponent, not 0, as `count` digits (9 or 17). -1 where this way does not tell. */
static int fast_digits(uint64_t significand, int exponent, unsigned count, struct decimal *d)
{
    int zeros = __builtin_clzll(significand), guess;

    significand <<= zeros;
    exponent -= zeros;
    /* The binary logarithm, times that of two to the base ten, from below: right, or one too small. */
    guess = (int)(((int64_t)(exponent + 63) * 78913) >> 18);
    for (int ten = guess; ten <= guess + 1; ten++) {
        int q = (int)count - 1 - ten, shift;
        uint64_t digits;
        if (q < SWN_DECIMAL_POWER_LEAST || q > SWN_DECIMAL_POWER_MOST)
            return -1;
        shift = -(exponent + swn_decimal_power_exponent(q));
        if (shift < 66 || shift > 127 ||
            swn_decimal_round((unsigned __int128)significand * swn_decimal_powers[q - SWN_DECIMAL_POWER_LEAST],
                              swn_decimal_power_is_exact(q) ? 0 : significand, (unsigned)shift, &digits))
            return -1;
        if (digits < tens[count]) {
            d->digits = digits;
            d->exponent = ten;
            return digits < tens[count - 1] ? -1 : 0;
        }
    }
    return -1;
}

/* The same, by printf: "d.ddde+xx". Whatever is between the first two digits is the locale's. */
static void slow_digits(double value, unsigned count, struct decimal *d)
{
    char text[64];
    const char *at = text;

    snprintf(text, sizeof text, "%.*e", (int)count - 1, value);
    d->digits = 0;
    for (unsigned have = 0; have < count && *at; at++)
        if (*at >= '0' && *at <= '9') {
            d->digits = d->digits * 10 + (uint64_t)(*at - '0');
            have++;
        }
    at = strchr(at, 'e');
    d->exponent = 0;
    if (at)
        sscanf(at + 1, "%d", &d->exponent);
}

static unsigned put_exponent(int exponent, char *to)
{
    unsigned n = 0, size = (unsigned)(exponent < 0 ? -exponent : exponent);

    to[n++] = 'e';
    to[n++] = exponent < 0 ? '-' : '+';
    if (size >= 100)
        to[n++] = (char)('0' + size / 100);
    to[n++] = (char)('0' + size / 10 % 10);
    to[n++] = (char)('0' + size % 10);
    return n;
}

/* As "%g" does: an exponent where the point would be far from the digits. */
static unsigned put_decimal(struct decimal d, unsigned count, char *to)
{
    char digits[20];
    unsigned have = count, n = 0;

    for (unsigned i = count; i-- > 0; d.digits /= 10)
        digits[i] = (char)('0' + d.digits % 10);
    while (have > 1 && digits[have - 1] == '0')
        have--;
    if (d.exponent < -5 || d.exponent >= (int)count) {
        to[n++] = digits[0];
        if (have > 1) {
            to[n++] = '.';
            memcpy(to + n, digits + 1, have - 1);
            n += have - 1;
        }
        return n + put_exponent(d.exponent, to + n);
    }
    if (d.exponent < 0) {
        memcpy(to, "0.0000", 6);
        n = (unsigned)(1 - d.exponent);
        memcpy(to + n, digits, have);
        return n + have;
    }
    for (unsigned i = 0; i < have || i <= (unsigned)d.exponent; i++) {
        if (i == (unsigned)d.exponent + 1)
            to[n++] = '.';
        to[n++] = i < have ? digits[i] : '0';
    }
    if (have <= (unsigned)d.exponent + 1) {
        to[n++] = '.';
        to[n++] = '0';
    }
    return n;
}

/* NaN, an infinity or zero; 0 where it is none of these. */
static unsigned put_special(double value, char *to)
{
    const char *word = isnan(value)   ? "NaN"
                       : isinf(value) ? (value < 0 ? "-Infinity" : "Infinity")
                       : value == 0   ? (signbit(value) ? "-0.0" : "0.0")
                                      : "";
    unsigned length = (unsigned)strlen(word);

    memcpy(to, word, length);
    return length;
}

static unsigned put_number(double value, uint64_t significand, int exponent, unsigned count, char *to)
{
    struct decimal d;
    unsigned sign = signbit(value) != 0;

    if (fast_digits(significand, exponent, count, &d))
        slow_digits(fabs(value), count, &d);
    if (sign)
        *to++ = '-';
    return sign + put_decimal(d, count, to);
}

unsigned swn_float_text(float value, char to[SWN_NUMBER_TEXT])
{
    unsigned n = put_special((double)value, to);
    uint32_t bits, field;

    if (n)
        return n;
    memcpy(&bits, &value, sizeof bits);
    field = bits >> 23 & 0xff;
    bits &= 0x7fffff;
    return put_number((double)value, field ? bits | 0x800000 : bits, field ? (int)field - 150 : -149, 9, to);
}

unsigned swn_double_text(double value, char to[SWN_NUMBER_TEXT])
{
    unsigned n = put_special(value, to);
    uint64_t bits;
    int field;

    if (n)
        return n;
    memcpy(&bits, &value, sizeof bits);
    field = (int)(bits >> 52 & 0x7ff);
    bits &= (UINT64_C(1) << 52) - 1;
    return put_number(value, field ? bits | UINT64_C(1) << 52 : bits, field ? field - 1075 : -1074, 17, to);
}
