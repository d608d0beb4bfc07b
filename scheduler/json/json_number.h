/* scheduler/json/json_number.h - numbers of JSON as the machine's, correctly rounded. */
#ifndef SWN_SCHEDULER_JSON_JSON_NUMBER_H
#define SWN_SCHEDULER_JSON_JSON_NUMBER_H

#include <stddef.h>
#include <stdint.h>

/* Characters of a number: a double never needs more than 770, so what is longer is no honest one. */
#define SWN_JSON_NUMBER_MOST 1024

struct swn_json_number {
    const char *text;
    unsigned length;
    uint8_t is_negative;
    uint8_t is_integer;  /* neither fraction nor exponent */
    uint8_t is_complete; /* digits * 10^exponent is all of it: not more than 19 digits that count */
    uint64_t digits;
    int32_t exponent;
};

/* A number at `at` by the grammar of RFC 8259, whatever follows it. Returns its length, 0 where there is none or it has
 * more than SWN_JSON_NUMBER_MOST characters. */
unsigned swn_json_number_scan(const char *at, const char *end, struct swn_json_number *number);

/* 0, or -ERANGE where the type has no such number: an infinity is not one, and zero or a denormal is. */
int swn_json_number_float(const struct swn_json_number *number, float *value);
int swn_json_number_double(const struct swn_json_number *number, double *value);

/* Integers: -ERANGE, or -EINVAL for what is not written as one. */
int swn_json_number_signed(const struct swn_json_number *number, int64_t least, int64_t most, int64_t *value);
int swn_json_number_unsigned(const struct swn_json_number *number, uint64_t most, uint64_t *value);

#endif
