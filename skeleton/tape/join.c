/* skeleton/tape/join.c - see join.h. */
#include "skeleton/tape/join.h"

#define PART 8         /* a run that takes longer moves what is expected by the difference / PART */
#define FORGOTTEN 256  /* a request alone makes this part of a refused joined run's time forgotten */
#define GAIN_PART 16   /* joining has to save this part of the time */
#define GUESSED_PART 8 /* and is guessed to save this one before it was measured */

uint32_t swn_join_size(unsigned i)
{
    return UINT32_C(2) << i;
}

static uint64_t times(uint64_t n, uint64_t each)
{
    uint64_t all;

    return __builtin_mul_overflow(n, each, &all) ? UINT64_MAX : all;
}

static uint64_t moved(uint64_t expected, uint64_t seen)
{
    return seen > expected ? expected + (seen - expected) / PART : seen;
}

static int gains(uint64_t joined, uint64_t in_turn)
{
    return joined <= in_turn - in_turn / GAIN_PART;
}

uint64_t swn_join_expected_ns(const struct swn_join_group *group, unsigned i)
{
    uint64_t in_turn = times(swn_join_size(i), group->alone_ns);

    return group->of[i].ns ? group->of[i].ns : in_turn - in_turn / GUESSED_PART;
}

int swn_join_allows(const struct swn_join_group *group, unsigned i, const struct swn_join_limits *limits)
{
    uint64_t in_turn = times(swn_join_size(i), group->alone_ns), expected = swn_join_expected_ns(group, i);
    enum swn_join_verdict verdict = group->of[i].verdict;

    if (!group->alone_ns || !limits->samples)
        return 0;
    if (times(swn_join_size(i), limits->samples) > limits->batch_most)
        return 0;
    if (verdict == SWN_JOIN_CANNOT || (verdict != SWN_JOIN_EQUAL && limits->bits == SWN_JOIN_EXACT))
        return 0;
    if (times(swn_join_size(i), group->peak_bytes) > limits->room_bytes)
        return 0;
    return expected <= SWN_JOIN_NS_MOST && gains(expected, in_turn);
}

int swn_join_may_try(const struct swn_join_group *group, unsigned i, const struct swn_join_limits *limits)
{
    uint32_t n = swn_join_size(i);

    return limits->samples && times(n, limits->samples) <= limits->batch_most &&
           times(n, group->peak_bytes) <= limits->room_bytes && times(n, group->alone_ns) <= SWN_JOIN_NS_MOST;
}

uint32_t swn_join_choose(const struct swn_join_group *group, const struct swn_join_limits *limits, uint32_t count,
                         unsigned *which)
{
    for (unsigned i = SWN_JOIN_SIZES; i-- > 0;)
        if (swn_join_size(i) <= count && swn_join_allows(group, i, limits)) {
            *which = i;
            return swn_join_size(i);
        }
    return 1;
}

void swn_join_ran(struct swn_join_case *c, uint64_t ns)
{
    c->failures = 0;
    if (c->runs++ > 0)
        c->ns = c->ns ? moved(c->ns, ns) : ns;
}

void swn_join_failed(struct swn_join_case *c)
{
    if (++c->failures >= SWN_JOIN_FAILURES)
        c->verdict = SWN_JOIN_CANNOT;
}

void swn_join_ran_alone(struct swn_join_group *group, uint64_t ns)
{
    if (group->alone_runs++ > 0)
        group->alone_ns = group->alone_ns ? moved(group->alone_ns, ns) : ns;
    for (unsigned i = 0; i < SWN_JOIN_SIZES; i++)
        if (group->of[i].ns && !gains(group->of[i].ns, times(swn_join_size(i), group->alone_ns)))
            group->of[i].ns -= group->of[i].ns / FORGOTTEN;
}
