#include "swn_stripe_choice.h"

/* Each product packs the weight anew and ends in a barrier. Measured with OpenBLAS and MKL, of 64 to 512 channels: that
 * takes as long as so many pixels. A forecast, for what has not been measured. */
#define OVERHEAD_PIXELS 200.0
/* A way that is slower by so much is as good, if it takes less memory. */
#define TIE 1.1
/* What was taken last is taken again unless something else is better by so much: each change costs a plan of places. */
#define STAY 0.95
/* A trial computes the whole and the stripes. */
#define TRIAL_PASSES 2

static int has_room(const struct swn_stripe_way *way)
{
    return way->cost_ns != SWN_STRIPE_NO_ROOM;
}

static double factor(const struct swn_stripe_way *way)
{
    return 1 + OVERHEAD_PIXELS / (double)way->pixels;
}

/* The time that all of them would take of infinitely long stripes; 0: nothing was measured. */
static double base_ns(const struct swn_stripe_known *known)
{
    double found = 0;
    for (unsigned i = 0; i < known->n; i++) {
        double base = (double)known->ways[i].ns / factor(&known->ways[i]);
        if (base > 0 && (!(found > 0) || base < found))
            found = base;
    }
    return found;
}

static double total_ns(const struct swn_stripe_way *way)
{
    return (double)way->ns + (double)way->cost_ns;
}

/* The best of those with the same bits, or n. */
static unsigned best_known(const struct swn_stripe_known *known)
{
    unsigned best = known->n;
    double least = 0;
    for (unsigned i = 0; i < known->n; i++) {
        const struct swn_stripe_way *way = &known->ways[i];
        if (way->bits != SWN_STRIPE_SAME || !has_room(way) || !way->ns)
            continue;
        double total = total_ns(way) * (i == known->last ? STAY : 1);
        if (best == known->n || total < least) {
            best = i;
            least = total;
        }
    }
    return best;
}

/* The one of those not tried that promises most: of about the same the shortest. It is worth a trial only if it takes
 * less than `most` ns; 0: whatever it takes. n: none is. */
static unsigned best_untried(const struct swn_stripe_known *known, double most)
{
    double base = base_ns(known), least = 0;
    unsigned best = known->n;
    for (unsigned i = 1; i < known->n; i++) {
        const struct swn_stripe_way *way = &known->ways[i];
        if (way->bits != SWN_STRIPE_UNTRIED || !has_room(way))
            continue;
        double total = base > 0 ? base * factor(way) + (double)way->cost_ns : factor(way);
        if (most > 0 && total >= most)
            continue;
        if (best == known->n || total < least * TIE)
            best = i;
        if (!(least > 0) || total < least)
            least = total;
    }
    return best;
}

/* None has room: the one that exceeds it least. The whole, if nothing else has its bits. */
static unsigned shortest(const struct swn_stripe_known *known)
{
    unsigned found = 0;
    for (unsigned i = 1; i < known->n; i++)
        if (known->ways[i].bits == SWN_STRIPE_SAME)
            found = i;
    return found;
}

struct swn_stripe_step swn_stripe_next(const struct swn_stripe_known *known)
{
    const struct swn_stripe_way *whole = &known->ways[0];
    unsigned best = best_known(known);
    if (has_room(whole))
        return (struct swn_stripe_step){0, 0};
    if (best == known->n) {
        unsigned untried = best_untried(known, 0);
        return untried < known->n ? (struct swn_stripe_step){untried, 1} : (struct swn_stripe_step){shortest(known), 0};
    }
    const struct swn_stripe_way *way = &known->ways[best];
    if (known->tried_ns + TRIAL_PASSES * way->ns <= known->used_ns) {
        unsigned untried = best_untried(known, total_ns(way) / TIE);
        if (untried < known->n)
            return (struct swn_stripe_step){untried, 1};
    }
    return (struct swn_stripe_step){best, 0};
}

int swn_stripe_refused(const struct swn_stripe_known *known)
{
    int differ = known->n == 1; /* nothing can be cut at all */
    for (unsigned i = 1; i < known->n; i++) {
        const struct swn_stripe_way *way = &known->ways[i];
        if (way->bits == SWN_STRIPE_SAME || (way->bits == SWN_STRIPE_UNTRIED && has_room(way)))
            return 0;
        differ |= way->bits == SWN_STRIPE_DIFFERS;
    }
    return differ;
}
