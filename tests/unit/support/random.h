/* tests/unit/support/random.h - numbers that are the same in every run: xorshift64 (Marsaglia 2003). */
#ifndef SWN_TESTS_UNIT_SUPPORT_RANDOM_H
#define SWN_TESTS_UNIT_SUPPORT_RANDOM_H

#include <stdint.h>

/* The state is the caller's and must not be 0. */
uint64_t next_random(uint64_t *state);

/* From one state for the whole program; for one thread. */
uint64_t rnd(void);
uint64_t rnd_below(uint64_t below);
double uniform(double lo, double hi);

/* How many of so many rounds of random cases a test runs: all in the release build; where each takes many times as
 * long, under a sanitizer or an emulator, a quarter. */
unsigned rounds_of(unsigned most);

#endif
