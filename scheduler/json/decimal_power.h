/* scheduler/json/decimal_power.h - powers of ten in 64 bits, for reading and writing numbers.
 *
 * 10^q lies in [power, power + 1) * 2^swn_decimal_power_exponent(q) with power >= 2^63; it is exactly the lower end
 * where 0 <= q <= 27, and never otherwise. So a product of a 64-bit number w with `power` is below the true product by
 * less than w, and whoever rounds it knows whether that can matter.
 */
#ifndef SWN_SCHEDULER_JSON_DECIMAL_POWER_H
#define SWN_SCHEDULER_JSON_DECIMAL_POWER_H

#include <stdint.h>

/* All that a double can need: 19 digits are below 10^19 and its least number is above 10^-324; 17 digits of that are it
 * times 10^340. */
#define SWN_DECIMAL_POWER_LEAST (-342)
#define SWN_DECIMAL_POWER_MOST 340

extern const uint64_t swn_decimal_powers[SWN_DECIMAL_POWER_MOST - SWN_DECIMAL_POWER_LEAST + 1];

static inline int swn_decimal_power_exponent(int q)
{
    return (int)((217706 * (int64_t)q) >> 16) -
           63; /* 217706 / 65536: the binary logarithm of ten, good for |q| < 500 */
}

static inline int swn_decimal_power_is_exact(int q)
{
    return q >= 0 && q <= 27; /* 5^27 < 2^63 < 5^28 */
}

/* bits = product / 2^shift, rounded to the nearest, ties to even; the true product is above `product` by less than
 * `above`, or equals it where that is 0. 0 < shift <= 128. -1 where `above` leaves open which it is. */
static inline int swn_decimal_round(unsigned __int128 product, uint64_t above, unsigned shift, uint64_t *bits)
{
    const unsigned __int128 one = 1, half = one << (shift - 1);
    unsigned __int128 whole = shift == 128 ? 0 : product >> shift, rest = product - (shift == 128 ? 0 : whole << shift);

    if (above) {
        /* What is above half by any of `above` is more than half: the upper end is never reached. */
        if (rest < half && half - rest < above)
            return -1;
        whole += rest >= half;
    } else {
        whole += rest > half || (rest == half && (whole & 1));
    }
    *bits = (uint64_t)whole;
    return 0;
}

#endif
