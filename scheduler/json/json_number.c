/* scheduler/json/json_number.c - numbers of JSON as the machine's: see json_number.h.
 *
 * Nearly all numbers are one multiplication by a power of ten in 64 bits, whose error is known; where that error leaves
 * open how to round, or where there are more than 19 digits, strtod decides, which is exact. It is asked in the C
 * locale, whatever the program's is.
 */
#define _GNU_SOURCE
#include "scheduler/json/json_number.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/json/decimal_power.h"

#define DIGITS_MOST 19 /* any such number fits 64 bits */
#define EXPONENT_MOST 100000

static int is_digit(char c)
{
    return (unsigned char)(c - '0') < 10;
}

/* Are all of these eight bytes digits? */
static int are_digits(uint64_t eight)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);

    return ((eight + ones * 0x46) | (eight - ones * 0x30)) & (ones << 7) ? 0 : 1;
}

/* The number that eight digits are, the first of which is in the lowest byte. */
static uint64_t eight_digits(uint64_t eight)
{
    eight -= UINT64_C(0x3030303030303030);
    eight = eight * 10 + (eight >> 8);
    return (((eight & UINT64_C(0x000000ff000000ff)) * UINT64_C(0x000f424000000064)) +
            (((eight >> 16) & UINT64_C(0x000000ff000000ff)) * UINT64_C(0x0000271000000001))) >>
           32;
}

/* Adds digits to the number as long as there are some. */
static inline const char *scan_digits(const char *at, const char *end, uint64_t *digits)
{
    uint64_t sum = *digits;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    while (end - at >= 8) {
        uint64_t eight;
        memcpy(&eight, at, sizeof eight);
        if (!are_digits(eight))
            break;
        sum = sum * 100000000 + eight_digits(eight);
        at += 8;
    }
#endif
    for (; at < end && is_digit(*at); at++)
        sum = sum * 10 + (uint64_t)(*at - '0');
    *digits = sum;
    return at;
}

/* An exponent behind 'e'. NULL where there is none. */
static const char *scan_exponent(const char *at, const char *end, int *exponent)
{
    int negative = 0, sum = 0;

    if (at < end && (*at == '+' || *at == '-'))
        negative = *at++ == '-';
    if (at == end || !is_digit(*at))
        return NULL;
    for (; at < end && is_digit(*at); at++)
        if (sum < EXPONENT_MOST)
            sum = sum * 10 + (*at - '0');
    *exponent = negative ? -sum : sum;
    return at;
}

/* Digits that count in at..end, which may have a point: all but zeros in front. */
static unsigned count_digits(const char *at, const char *end)
{
    unsigned count = 0;

    while (at < end && (*at == '0' || *at == '.'))
        at++;
    for (; at < end && *at != 'e' && *at != 'E'; at++)
        count += *at != '.';
    return count;
}

unsigned swn_json_number_scan(const char *begin, const char *end, struct swn_json_number *number)
{
    const char *at = begin, *first, *point;
    uint64_t digits = 0;
    int exponent = 0, fraction = 0;

    if (end - begin > SWN_JSON_NUMBER_MOST + 1)
        end = begin + SWN_JSON_NUMBER_MOST + 1;
    if (at < end && *at == '-')
        at++;
    number->is_negative = at != begin;
    first = at;
    if (at == end || !is_digit(*at))
        return 0;
    at = *at == '0' ? at + 1 : scan_digits(at, end, &digits);
    if (at < end && is_digit(*at)) /* 01 */
        return 0;
    number->is_integer = 1;
    if (at < end && *at == '.') {
        point = at + 1;
        at = scan_digits(point, end, &digits);
        if (at == point)
            return 0;
        fraction = (int)(at - point);
        number->is_integer = 0;
    }
    number->is_complete = at - first <= DIGITS_MOST || count_digits(first, at) <= DIGITS_MOST;
    if (at < end && (*at == 'e' || *at == 'E')) {
        at = scan_exponent(at + 1, end, &exponent);
        if (!at)
            return 0;
        number->is_integer = 0;
    }
    if (at - begin > SWN_JSON_NUMBER_MOST)
        return 0;
    number->text = begin;
    number->length = (unsigned)(at - begin);
    number->digits = digits;
    number->exponent = exponent - fraction;
    return number->length;
}

/* The text again, terminated: strtod must not read on into what follows. */
static void terminated(const struct swn_json_number *number, char to[SWN_JSON_NUMBER_MOST + 1])
{
    memcpy(to, number->text, number->length);
    to[number->length] = '\0';
}

static locale_t c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0); /* glibc's own constant: nothing is allocated */
}

/* A binary form: `width` bits of significand with the leading one, and the least exponent of the last of them. */
struct form {
    int width, least;
    uint64_t infinity; /* the exponent's field */
};

/* The bits of digits * 10^exponent without its sign; an infinity where it is too large. -1: not known this way. */
static inline __attribute__((always_inline)) int fast_bits(const struct swn_json_number *number, struct form form,
                                                           uint64_t *bits)
{
    int q = number->exponent, zeros, scale, last;
    uint64_t digits = number->digits, power, significand;
    unsigned __int128 product;

    if (!number->is_complete || (digits && (q < SWN_DECIMAL_POWER_LEAST || q > SWN_DECIMAL_POWER_MOST)))
        return -1;
    *bits = 0;
    if (digits == 0)
        return 0;
    zeros = __builtin_clzll(digits);
    digits <<= zeros;
    power = swn_decimal_powers[q - SWN_DECIMAL_POWER_LEAST];
    product = (unsigned __int128)digits * power;
    scale = swn_decimal_power_exponent(q) - zeros; /* the number is product * 2^scale */
    last = scale + (product >> 127 ? 128 : 127) - form.width;
    if (last < form.least)
        last = form.least;
    if (last - scale > 128)
        return 0; /* less than half of the least denormal */
    if (swn_decimal_round(product, swn_decimal_power_is_exact(q) ? 0 : digits, (unsigned)(last - scale), &significand))
        return -1;
    if (significand >> form.width) {
        significand >>= 1;
        last++;
    }
    if (significand >> (form.width - 1)) {
        uint64_t field = (uint64_t)(last - form.least + 1);
        *bits = field >= form.infinity ? form.infinity << (form.width - 1)
                                       : field << (form.width - 1) | (significand & ~(UINT64_C(1) << (form.width - 1)));
    } else {
        *bits = significand;
    }
    return 0;
}

int swn_json_number_float(const struct swn_json_number *number, float *value)
{
    char text[SWN_JSON_NUMBER_MOST + 1];
    uint64_t bits;

    if (fast_bits(number, (struct form){.width = 24, .least = -149, .infinity = 0xff}, &bits) == 0) {
        uint32_t word = (uint32_t)bits | (uint32_t)number->is_negative << 31;
        memcpy(value, &word, sizeof word);
    } else {
        terminated(number, text);
        *value = strtof_l(text, NULL, c_locale());
    }
    return isinf(*value) ? -ERANGE : 0;
}

int swn_json_number_double(const struct swn_json_number *number, double *value)
{
    char text[SWN_JSON_NUMBER_MOST + 1];
    uint64_t bits;

    if (fast_bits(number, (struct form){.width = 53, .least = -1074, .infinity = 0x7ff}, &bits) == 0) {
        bits |= (uint64_t)number->is_negative << 63;
        memcpy(value, &bits, sizeof bits);
    } else {
        terminated(number, text);
        *value = strtod_l(text, NULL, c_locale());
    }
    return isinf(*value) ? -ERANGE : 0;
}

/* The digits of an integer without its sign. */
static int magnitude(const struct swn_json_number *number, uint64_t *value)
{
    const char *at = number->text + number->is_negative, *end = number->text + number->length;

    if (!number->is_integer)
        return -EINVAL;
    if (number->is_complete) {
        *value = number->digits;
        return 0;
    }
    /* Twenty digits fit at times. */
    *value = 0;
    for (; at < end; at++)
        if (__builtin_mul_overflow(*value, 10u, value) ||
            __builtin_add_overflow(*value, (uint64_t)(unsigned char)(*at - '0'), value))
            return -ERANGE;
    return 0;
}

int swn_json_number_signed(const struct swn_json_number *number, int64_t least, int64_t most, int64_t *value)
{
    uint64_t size;
    int rc = magnitude(number, &size);

    if (rc < 0)
        return rc;
    if (size > (uint64_t)INT64_MAX + number->is_negative)
        return -ERANGE;
    *value = number->is_negative ? -(int64_t)(size - (size != 0)) - (size != 0) : (int64_t)size;
    return *value < least || *value > most ? -ERANGE : 0;
}

int swn_json_number_unsigned(const struct swn_json_number *number, uint64_t most, uint64_t *value)
{
    int rc = magnitude(number, value);

    if (rc < 0)
        return rc;
    return *value > most || (number->is_negative && *value) ? -ERANGE : 0;
}
