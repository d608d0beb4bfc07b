/* tests/unit/support/random.c - see random.h. */
#include "tests/unit/support/random.h"

uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

uint64_t rnd(void)
{
    static uint64_t state = 88172645463325252ULL;
    return next_random(&state);
}

uint64_t rnd_below(uint64_t below)
{
    return (rnd() >> 11) % below;
}

unsigned rounds_of(unsigned most)
{
#ifdef SWN_TESTS_ARE_SLOW
    return (most + 3) / 4;
#else
    return most;
#endif
}

double uniform(double lo, double hi)
{
    return lo + (hi - lo) * (double)(rnd() >> 11) / 9007199254740992.0;
}
