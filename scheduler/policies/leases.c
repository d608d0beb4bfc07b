/* scheduler/policies/leases.c - see leases.h. */
#include "scheduler/policies/leases.h"

/* What an idle engine keeps of its base. Its first request afterwards runs with that, until others have given way. */
#define IDLE_PART 4

static uint64_t most_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t base_of(const struct swn_lease *l)
{
    return most_of(l->base, l->least);
}

static int is_hungry(const struct swn_lease *l)
{
    return l->is_busy && l->need > base_of(l);
}

static uint64_t sum(const struct swn_lease *leases, unsigned n)
{
    uint64_t all = 0;

    for (unsigned i = 0; i < n; i++)
        all += leases[i].bytes;
    return all;
}

/* Whether all can go on with what they have: nobody that works is short, and the total is given out. */
static int may_stay(const struct swn_lease *leases, unsigned n, uint64_t total)
{
    for (unsigned i = 0; i < n; i++) {
        const struct swn_lease *l = &leases[i];
        if (l->bytes == 0 || l->bytes < l->least || is_hungry(l))
            return 0;
        if (l->is_busy && l->bytes < l->base && (l->need == 0 || l->bytes < l->need))
            return 0;
    }
    return sum(leases, n) == total;
}

/* Takes what is too much from those that have more than their least, the first ones first. */
static void cut(struct swn_lease *leases, unsigned n, uint64_t excess)
{
    for (unsigned i = 0; i < n && excess; i++) {
        struct swn_lease *l = &leases[i];
        uint64_t taken = least_of(excess, l->bytes - least_of(l->bytes, l->least));
        l->bytes -= taken;
        excess -= taken;
    }
    for (unsigned i = n; i-- > 0 && excess;) {
        uint64_t taken = least_of(excess, leases[i].bytes);
        leases[i].bytes -= taken;
        excess -= taken;
    }
}

/* Gives the spare bytes to the hungry by what they lack. Returns what is left. */
static uint64_t feed(struct swn_lease *leases, unsigned n, uint64_t spare)
{
    uint64_t given = 0;
    double lack = 0;

    for (unsigned i = 0; i < n; i++)
        lack += is_hungry(&leases[i]) ? (double)(leases[i].need - leases[i].bytes) : 0;
    for (unsigned i = 0; i < n; i++) {
        struct swn_lease *l = &leases[i];
        if (!is_hungry(l))
            continue;
        uint64_t missing = l->need - l->bytes;
        uint64_t more = lack <= (double)spare ? missing : (uint64_t)((double)spare * ((double)missing / lack));
        more = least_of(least_of(more, missing), spare - given);
        l->bytes += more;
        given += more;
    }
    return spare - given;
}

void swn_leases_divide(struct swn_lease *leases, unsigned n, uint64_t total)
{
    uint64_t all;
    int hungry = 0;

    if (n == 0 || may_stay(leases, n, total))
        return;
    for (unsigned i = 0; i < n; i++)
        hungry |= is_hungry(&leases[i]);
    for (unsigned i = 0; i < n; i++) {
        struct swn_lease *l = &leases[i];
        l->bytes = hungry && !l->is_busy ? most_of(l->base / IDLE_PART, l->least) : base_of(l);
    }
    all = sum(leases, n);
    if (all > total) {
        cut(leases, n, all - total);
        return;
    }
    total = feed(leases, n, total - all);
    for (unsigned i = n; i-- > 0 && total;) {
        uint64_t more = least_of(total, leases[i].base - least_of(leases[i].base, leases[i].bytes));
        leases[i].bytes += more;
        total -= more;
    }
    leases[0].bytes += total;
}
