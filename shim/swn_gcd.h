/* swn_gcd.h - the greatest common divisor, for where rows, blocks and granules meet. In both halves. */
#ifndef SWN_GCD_H
#define SWN_GCD_H

#include <stdint.h>

/* Of 0 and b: b. */
static inline uint64_t swn_gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

#endif
