/* scheduler/planner/plan.c - see plan.h. */
#include "scheduler/planner/plan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/huge_pages.h"
#include "scheduler/planner/simulate.h"

#define MIB ((uint64_t)1 << 20)

/* A weight of at least this size may be cut in two: its head is kept, its tail is streamed. For a smaller weight the
 * second read and the page tables cost more than the cut gains. */
#define CUT_LEAST (16 * MIB)
/* Slicing pays for weights that take much of the budget, and for weights of at least this size. */
#define LARGE_LEAST (16 * MIB)
#define LARGE_PART 8
/* Where the disk takes longer than computing, slicing pays from this size. */
#define GAINS_LEAST (4 * MIB)
#define GAINS_PART 64
/* A pass is short of the disk when it reads for more than this part of its computing time. */
#define SHORT_PART 0.65
/* Cuts fall on granules of the arena. */
#define CUT_STEP ((uint64_t)65536)
/* A streamed weight may be cut into pieces of at least this size, so that its first read can begin before the whole
 * weight has room. */
#define LEAST_PIECE (8 * MIB)
#define MOST_PIECES 24
/* The least length of a slice: large enough for the disk and the kernel, small enough that the window holds several. In
 * a window without room for two of these, a slice is half of the window. */
#define LEAST_SLICE (SWN_PLAN_NARROW_WINDOW / 2)
#define MOST_SLICE (8 * MIB)
#define SHORTEST_SLICE (MIB / 4)
/* All weights together come in this many slices at most, which is a TiB in slices of 1 MiB: each slice is a step of the
 * passes that are simulated. */
#define MOST_SLICES ((uint64_t)1 << 20)
/* A tail shorter than this is kept too. */
#define TAIL_LEAST MIB
/* The narrowest window that is tried, in general: smaller reads do not run at the disk's speed. If the budget for
 * weights is hardly larger, a narrower window is better than none. */
#define RING_LEAST MIB
#define SCANT (4 * MIB)
#define SCANT_WINDOW (MIB / 2)
/* A window of one read means one read at a time, which begins only when the weight before has been computed. This part
 * of the budget, up to what the fetch queue has in flight, is well spent on several reads at once. */
#define WINDOW_PART 32
#define DEPTH_WINDOW (8 * MIB)
#define MORE_CAPS 32
/* With more weights than this, sizes within a half of each other count as equal, instead of within an eighth; and
 * window widths step by one largest weight, instead of by half of one. A plan has to be ready in 5 ms (t_plan: for 36
 * GiB). */
#define MANY_NODES 256
/* In this part of the passes the disk counts as slow: a plan that is the best for the measured disk loses to one that
 * is a little slower on that disk, but much faster on a slow one. */
#define SLOW_PART 0.25
/* Sums of the same terms in another order differ by less than this part of them. */
#define ROUNDING 1e-9

struct candidate {
    uint64_t cap, window;
    int heads_first, pieces;
};

/* A speed that the disk may have, and the part of the passes in which it has that speed. */
struct speed {
    double bytes_per_ns, part;
};

/* The input that all candidates share. */
struct problem {
    struct swn_plan_weight *weights;
    size_t n;
    uint32_t *by_size; /* indices of the weights, smallest first */
    uint64_t budget, total;
    const struct speed *speed; /* the speeds that the disk may have, slowest first */
    unsigned speeds;
    struct swn_disk_model disk; /* all but its speed */
    double *elapsed; /* how much of a pass's computing is done in the middle of the weight's; 0: nothing is computed */
    double most_saved;      /* largest `saved` of all weights */
    uint64_t cut_least;     /* smaller weights are never cut */
    uint64_t *slices;       /* of a weight lent through a window of slices_window, their length; 0: cannot be lent */
    uint64_t slices_window; /* 0: slices[] is not computed */
    int crowded;            /* the window need not hold all that one operator wants at once */
    struct swn_steps steps;
};

int swn_plan_worth_slicing(uint64_t bytes, uint64_t budget_bytes)
{
    return bytes >= LARGE_LEAST || (bytes >= SWN_PLAN_SLICED_LEAST && bytes > budget_bytes / LARGE_PART);
}

int swn_plan_gains_by_slices(uint64_t bytes, uint64_t budget_bytes, double compute_ns, double bytes_per_ns)
{
    return bytes >= GAINS_LEAST && bytes > budget_bytes / GAINS_PART && compute_ns > 0 &&
           compute_ns * bytes_per_ns < (double)bytes;
}

int swn_plan_short_of_disk(uint64_t total, uint64_t budget, double compute_ns, double bytes_per_ns)
{
    return total > budget && (double)(total - budget) > SHORT_PART * compute_ns * bytes_per_ns;
}

uint64_t swn_plan_slice(uint64_t unit, uint64_t window)
{
    uint64_t least = window / 2 < LEAST_SLICE ? window / 2 : LEAST_SLICE;
    uint64_t slice = window / 4 < least ? least : window / 4 > MOST_SLICE ? MOST_SLICE : window / 4;
    if (slice <= SHORTEST_SLICE)
        return (SHORTEST_SLICE + unit - 1) / unit * unit;
    /* Two short slices have to fit. */
    return slice < LEAST_SLICE && slice > unit ? slice / unit * unit : (slice + unit - 1) / unit * unit;
}

/* The length of slices of which one can be read while another computes, or 0. Short slices are the last resort: they
 * are slower on the disk, and math libraries compute small products in other ways. */
static uint64_t fitting_slice(const struct problem *p, const struct swn_plan_weight *weight, uint64_t window)
{
    if (window < SWN_PLAN_NARROW_WINDOW && p->budget >= 2 * SWN_PLAN_NARROW_WINDOW)
        return 0;
    if (!weight->unit || weight->bytes < SWN_PLAN_SLICED_LEAST || weight->unit > window / 2)
        return 0;
    uint64_t slice = swn_plan_slice(weight->unit, window);
    return 2 * slice <= window && 2 * slice <= weight->bytes ? slice : 0;
}

double swn_plan_simulate(const struct swn_plan_weight *weights, size_t n, uint64_t window,
                         const struct swn_disk_model *disk)
{
    struct swn_steps steps = {0};
    double took = swn_steps_pass(&steps, weights, n, window, disk, INFINITY);
    swn_steps_free(&steps);
    return took;
}

/* Computes slices[] once for each window, as the division is slow and each candidate needs the result several times. */
static void look_for_slices(struct problem *p, uint64_t window)
{
    uint64_t count = 0;
    if (p->slices_window == window)
        return;
    p->slices_window = window;
    for (size_t i = 0; i < p->n; i++) {
        p->slices[i] = fitting_slice(p, &p->weights[i], window);
        count += p->slices[i] ? p->weights[i].bytes / p->slices[i] : 0;
    }
    for (size_t i = 0; i < p->n && count > MOST_SLICES; i++)
        if (p->slices[i] && p->weights[i].bytes / p->slices[i] > MOST_SLICES / p->n)
            p->slices[i] = 0;
}

static uint64_t slice_of(const struct problem *p, const struct swn_plan_weight *weight)
{
    return p->slices[weight - p->weights];
}

static int sliceable(const struct problem *p, const struct swn_plan_weight *weight)
{
    return slice_of(p, weight) != 0;
}

/* How many bytes of the weight may be streamed. */
static uint64_t tail_most(const struct problem *p, const struct swn_plan_weight *weight, const struct candidate *at)
{
    return sliceable(p, weight) || weight->bytes < at->cap ? weight->bytes : at->cap;
}

static int may_cut(const struct problem *p, const struct swn_plan_weight *weight, const struct candidate *at)
{
    return !weight->oversize && (sliceable(p, weight) || (weight->bytes >= CUT_LEAST && weight->bytes > at->cap));
}

/* Bytes of the weight that stay resident. */
static uint64_t resident(const struct swn_plan_weight *weight)
{
    return weight->keep ? weight->bytes : weight->keep_bytes;
}

/* For a weight that may be cut: streams `tail` bytes, or a little more, up to the limit. Of a weight in slices, whole
 * slices are kept, too: then its cuts do not depend on how much is kept, and one trial of the bits holds for all plans.
 */
static void set_tail(const struct problem *p, struct swn_plan_weight *weight, uint64_t tail, const struct candidate *at)
{
    uint64_t slice = slice_of(p, weight), step = slice ? slice : CUT_STEP, most = tail_most(p, weight, at);
    if (tail >= TAIL_LEAST && tail < slice)
        tail = slice;
    uint64_t head = tail < TAIL_LEAST ? weight->bytes : tail < weight->bytes ? (weight->bytes - tail) / step * step : 0;
    if (weight->bytes - head > most)
        head = (weight->bytes - most + step - 1) / step * step;
    weight->keep = head >= weight->bytes;
    weight->keep_bytes = weight->keep ? 0 : head;
}

/* How many more bytes of a weight that may be cut can be kept, at most `room`. */
static uint64_t keep_growth(const struct problem *p, const struct swn_plan_weight *weight, uint64_t room)
{
    uint64_t slice = slice_of(p, weight), step = slice ? slice : CUT_STEP;
    uint64_t tail = weight->bytes - weight->keep_bytes, most = tail > slice ? tail - slice : 0;
    return (room < most ? room : most) / step * step;
}

/* The bytes of the weight that must be kept because they do not fit the window. */
static uint64_t forced_bytes(const struct problem *p, const struct swn_plan_weight *weight, const struct candidate *at)
{
    return weight->bytes <= at->cap ? 0
           : may_cut(p, weight, at) ? weight->bytes - tail_most(p, weight, at)
                                    : weight->bytes;
}

/* A weight over `cap` bytes does not fit the window: it is cut, or kept whole if there is room, else left to the
 * mapping. Error diffusion spreads the streamed bytes of all other weights over the compute time. Returns the bytes
 * kept. */
static uint64_t choose(const struct problem *p, const struct candidate *at, uint64_t room)
{
    uint64_t forced = 0, kept = 0, total = 0;
    double target = 0, streamed = 0;
    for (size_t i = 0; i < p->n; i++) {
        struct swn_plan_weight *weight = &p->weights[i];
        weight->keep = 0;
        weight->keep_bytes = 0;
        /* Larger than the whole budget: it can be neither kept nor in a window. */
        weight->oversize = weight->bytes > p->budget && !sliceable(p, weight);
        forced += weight->oversize ? 0 : forced_bytes(p, weight, at);
    }
    for (size_t i = 0; i < p->n && forced > room; i++) {
        struct swn_plan_weight *weight = &p->weights[p->by_size[i]];
        uint64_t bytes = weight->oversize ? 0 : forced_bytes(p, weight, at);
        forced -= bytes;
        weight->oversize |= bytes > 0;
    }
    for (size_t i = 0; i < p->n; i++)
        total += p->weights[i].oversize ? 0 : p->weights[i].bytes;
    target = total > room ? (double)(total - room) : 0;
    for (size_t i = 0; i < p->n; i++) {
        struct swn_plan_weight *weight = &p->weights[i];
        double due = target * p->elapsed[i];
        if (weight->oversize)
            continue;
        if (may_cut(p, weight, at))
            set_tail(p, weight, due > streamed ? (uint64_t)(due - streamed) : 0, at);
        else
            weight->keep = weight->bytes > at->cap || target <= 0 || streamed + (double)weight->bytes / 2 > due;
        kept += resident(weight);
        streamed += (double)(weight->bytes - resident(weight));
    }
    return kept;
}

/* The weight to stream next because too much is kept: the smallest one that suffices alone, else the largest. */
static struct swn_plan_weight *next_to_stream(const struct problem *p, uint64_t cap, uint64_t excess)
{
    struct swn_plan_weight *largest = NULL;
    for (size_t i = 0; i < p->n; i++) {
        struct swn_plan_weight *c = &p->weights[p->by_size[i]];
        if (c->bytes > cap)
            break;
        if (!c->keep)
            continue;
        if (c->bytes >= excess)
            return c;
        if (!largest || c->bytes > largest->bytes)
            largest = c;
    }
    return largest;
}

/* Keeps more of the streamed weights, the largest pieces first, while there is room. A piece that did not fit once
 * never will. Of the few weights that may be cut, the part that is not kept counts, not the size. */
static uint64_t fill(const struct problem *p, uint64_t room, uint64_t kept)
{
    size_t whole = p->n;
    for (;;) {
        struct swn_plan_weight *pick = NULL;
        uint64_t most = 0;
        for (size_t i = p->n; i-- > 0 && p->weights[p->by_size[i]].bytes >= p->cut_least;) {
            struct swn_plan_weight *c = &p->weights[p->by_size[i]];
            uint64_t tail = c->bytes - resident(c);
            if (c->keep_bytes && !c->oversize && tail > most && tail <= room - kept) {
                pick = c;
                most = tail;
            }
        }
        for (; whole; whole--) {
            struct swn_plan_weight *c = &p->weights[p->by_size[whole - 1]];
            if (c->bytes <= most)
                break;
            if (!c->keep && !c->oversize && !c->keep_bytes && c->bytes <= room - kept) {
                pick = c;
                break;
            }
        }
        if (!pick)
            return kept;
        kept += pick->bytes - resident(pick);
        pick->keep = 1;
        pick->keep_bytes = 0;
    }
}

/* Runs diffusion rounds, brings the kept bytes under `room`, and fills the rest. */
static uint64_t settle(const struct problem *p, const struct candidate *at, uint64_t room, uint64_t kept)
{
    for (size_t i = 0; i < p->n && kept > room; i++) {
        struct swn_plan_weight *c = &p->weights[i];
        if (!may_cut(p, c, at))
            continue;
        uint64_t before = resident(c), tail = c->bytes - before + (kept - room);
        set_tail(p, c, tail < TAIL_LEAST ? TAIL_LEAST : tail, at);
        kept = kept - before + resident(c);
    }
    while (kept > room) {
        struct swn_plan_weight *pick = next_to_stream(p, at->cap, kept - room);
        if (!pick)
            return kept;
        pick->keep = 0;
        kept -= pick->bytes;
    }
    kept = fill(p, room, kept);
    for (size_t i = 0; i < p->n && kept < room; i++) {
        struct swn_plan_weight *c = &p->weights[i];
        if (c->keep || !may_cut(p, c, at))
            continue;
        uint64_t more = keep_growth(p, c, room - kept);
        c->keep_bytes += more;
        kept += more;
    }
    return fill(p, room, kept); /* with pieces smaller than a slice */
}

static int by_bytes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

struct sized {
    uint64_t bytes;
    uint32_t at;
};

static int by_size_and_place(const void *a, const void *b)
{
    const struct sized *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Indices of the weights, smallest first; NULL: no memory. */
static uint32_t *sort_by_size(const struct swn_plan_weight *weights, size_t n)
{
    struct sized *sized = malloc(n * sizeof *sized);
    uint32_t *found = malloc(n * sizeof *found);
    for (size_t i = 0; sized && i < n; i++)
        sized[i] = (struct sized){weights[i].bytes, (uint32_t)i};
    if (sized)
        qsort(sized, n, sizeof *sized, by_size_and_place);
    for (size_t i = 0; sized && found && i < n; i++)
        found[i] = sized[i].at;
    if (!sized) {
        free(found);
        found = NULL;
    }
    free(sized);
    return found;
}

static void keep_all(struct swn_plan_weight *weights, size_t n, struct swn_plan *out)
{
    for (size_t i = 0; i < n; i++) {
        weights[i].keep = 1;
        out->kept_bytes += weights[i].bytes;
    }
    out->latency_ns = out->compute_ns;
}

/* Sets the pieces in which the part that is not kept comes. 1: they exist only because of at->pieces. */
static int set_pieces(const struct problem *p, struct swn_plan_weight *weight, const struct candidate *at)
{
    uint64_t tail = weight->bytes - weight->keep_bytes,
             piece = (tail / MOST_PIECES + CUT_STEP - 1) / CUT_STEP * CUT_STEP;
    weight->sliced = !weight->keep && !weight->oversize && sliceable(p, weight);
    if (weight->sliced)
        weight->piece = slice_of(p, weight);
    else if (at->pieces && !weight->keep && !weight->oversize && tail >= CUT_LEAST)
        weight->piece = piece > LEAST_PIECE ? piece : LEAST_PIECE;
    else
        weight->piece = 0;
    return weight->piece && !weight->sliced;
}

/* Whether some operator has several whole weights that do not fit the window together. One of them would then be read
 * through its mapping in every pass. */
static int is_crowded(const struct problem *p, uint64_t window)
{
    uint64_t together = 0;
    for (size_t i = 0; i < p->n; i++) {
        const struct swn_plan_weight *weight = &p->weights[i];
        int elsewhere = weight->keep || weight->sliced || weight->bytes > p->budget;
        together += elsewhere ? 0 : weight->bytes - weight->keep_bytes;
        if (together > window && (weight->joined || (i && p->weights[i - 1].joined)))
            return 1;
        together = weight->joined ? together : 0;
    }
    return 0;
}

/* The least time of a pass that reads `read` bytes. */
static double least_time(const struct speed *speed, double read, double compute_ns)
{
    double reading = read / speed->bytes_per_ns;
    return reading > compute_ns ? reading : compute_ns;
}

/* The mean time over the disk's speeds. INFINITY: more than `limit_ns`. */
static double time_of(struct problem *p, uint64_t window, double read, double compute_ns, double limit_ns)
{
    double least = 0, sum = 0;
    for (unsigned i = 0; i < p->speeds; i++)
        least += p->speed[i].part * least_time(&p->speed[i], read, compute_ns);
    for (unsigned i = 0; i < p->speeds && sum + least <= limit_ns; i++) {
        const struct speed *speed = &p->speed[i];
        double reading = read / speed->bytes_per_ns;
        least -= speed->part * least_time(speed, read, compute_ns);
        struct swn_disk_model disk = p->disk;
        disk.bytes_per_ns = speed->bytes_per_ns;
        double took =
            swn_steps_pass(&p->steps, p->weights, p->n, window, &disk, (limit_ns - sum - least) / speed->part);
        /* The last pass that is simulated reads nothing for the next. */
        sum += speed->part * (took > reading ? took : reading);
    }
    return sum + least <= limit_ns ? sum : INFINITY;
}

/* Whether a weight that the window could hold is left to the mapping: then another candidate has it in the window. */
static int maps_in_vain(const struct problem *p, uint64_t window)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->weights[i].oversize && p->weights[i].bytes <= window)
            return 1;
    return 0;
}

/* One candidate: nothing larger than at->cap goes through the window, except in slices. 0: the candidate is impossible,
 * takes longer than `limit_ns`, or is the same as another one. */
static int try_candidate(struct problem *p, const struct candidate *at, double limit_ns, struct swn_plan *out)
{
    if (at->window > p->budget)
        return 0;
    look_for_slices(p, at->window);
    uint64_t room = p->budget - at->window, rest = room;
    for (size_t i = 0; at->heads_first && i < p->n; i++)
        if (p->weights[i].bytes > p->budget && !sliceable(p, &p->weights[i]))
            rest -= p->weights[i].bytes < rest ? p->weights[i].bytes : rest;
    if (at->heads_first && rest == room)
        return 0;
    uint64_t kept = choose(p, at, rest);
    kept = settle(p, at, rest, kept);
    if (kept > rest || maps_in_vain(p, at->window))
        return 0;
    /* The room that rounding left over keeps the head of a weight that nothing else can hold. */
    for (size_t i = 0; i < p->n; i++) {
        if (!p->weights[i].oversize)
            continue;
        uint64_t head = room - kept < p->weights[i].bytes ? room - kept : p->weights[i].bytes;
        p->weights[i].keep_bytes = head / (2 * MIB) * (2 * MIB);
        kept += p->weights[i].keep_bytes;
    }
    out->ring_bytes = at->window;
    out->kept_bytes = kept;
    out->streamed_bytes = 0;
    double read = 0;
    int pieces = 0;
    for (size_t i = 0; i < p->n; i++) {
        pieces |= set_pieces(p, &p->weights[i], at);
        uint64_t tail = p->weights[i].keep ? 0 : p->weights[i].bytes - p->weights[i].keep_bytes;
        out->streamed_bytes += tail;
        read += (double)tail * (1 - p->weights[i].saved);
    }
    if ((at->pieces && !pieces) || (!p->crowded && is_crowded(p, at->window)))
        return 0;
    out->latency_ns = time_of(p, at->window, read, out->compute_ns, limit_ns);
    return out->latency_ns <= limit_ns;
}

/* Of two plans that are both fast enough. Plans that compare equal are the same plan to the engine. */
static int better(const struct swn_plan *a, const struct swn_plan *b)
{
    if (a->streamed_bytes != b->streamed_bytes)
        return a->streamed_bytes < b->streamed_bytes;
    if (a->latency_ns < b->latency_ns || b->latency_ns < a->latency_ns)
        return a->latency_ns < b->latency_ns;
    return a->ring_bytes < b->ring_bytes;
}

size_t swn_plan_choose(const struct swn_plan *plans, size_t n)
{
    double least = INFINITY;
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        least = plans[i].latency_ns < least ? plans[i].latency_ns : least;
    for (size_t i = 0; i < n; i++)
        if (plans[i].latency_ns <= least * (1 + SWN_PLAN_TIE) && (best == n || better(&plans[i], &plans[best])))
            best = i;
    return best;
}

/* Near-equal sizes are one candidate, as long as the larger one has a window. Sorts; returns how many sizes are left.
 */
static size_t distinct_caps(uint64_t *caps, size_t count, uint64_t budget, uint64_t nearness)
{
    size_t kept = 0;
    qsort(caps, count, sizeof *caps, by_bytes);
    for (size_t i = 0; i < count; i++)
        if (i + 1 == count || caps[i + 1] > budget || caps[i + 1] > caps[i] + caps[i] / nearness)
            caps[kept++] = caps[i];
    return kept;
}

/* Narrow windows first: they leave the most to be kept. */
static int by_window(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->window != y->window)
        return x->window < y->window ? -1 : 1;
    if (x->cap != y->cap)
        return x->cap < y->cap ? -1 : 1;
    return x->pieces != y->pieces ? x->pieces - y->pieces : x->heads_first - y->heads_first;
}

/* All windows and ways of filling them that fit the budget, sorted. NULL: no memory. */
static struct candidate *list_candidates(const struct problem *p, const uint64_t *caps, size_t count, size_t *n)
{
    enum { WIDTHS = 5, WAYS = 4 };
    struct candidate *all = malloc((count * WIDTHS * WAYS + 1) * sizeof *all);
    uint64_t largest = p->weights[p->by_size[p->n - 1]].bytes;
    uint64_t narrowest = p->budget / WINDOW_PART < DEPTH_WINDOW ? p->budget / WINDOW_PART : DEPTH_WINDOW;
    uint64_t least = p->budget < SCANT ? SCANT_WINDOW : RING_LEAST;
    narrowest = narrowest < least ? least : narrowest;
    unsigned stride = p->n > MANY_NODES ? 2 : 1;
    *n = 0;
    for (size_t i = 0; all && i < count; i++) {
        uint64_t before = 0;
        /* window = 1, 1.5 ... 3 times the largest streamed weight */
        for (unsigned width = 0; width < WIDTHS; width += stride) {
            uint64_t window = caps[i] * (2 + width) / 2;
            window = window > narrowest ? window : narrowest;
            for (int way = 0; way < WAYS && window != before && window <= p->budget; way++) {
                int heads_first = way % 2, pieces = way / 2;
                if ((pieces && largest < CUT_LEAST) || (heads_first && largest <= p->budget))
                    continue;
                all[(*n)++] =
                    (struct candidate){.cap = caps[i], .window = window, .heads_first = heads_first, .pieces = pieces};
            }
            before = window;
        }
    }
    if (all)
        qsort(all, *n, sizeof *all, by_window);
    return all;
}

/* Whether no candidate whose window leaves at most `room` for kept weights can replace `best`, or be so much faster
 * that `best` is too slow. `least`: the time of the fastest candidate so far. */
static int is_settled(const struct problem *p, const struct swn_plan *best, double least, uint64_t room)
{
    uint64_t reads = p->total > room ? p->total - room : 0;
    double fastest = 0;
    for (unsigned i = 0; i < p->speeds; i++)
        fastest += p->speed[i].part * (1 - ROUNDING) *
                   least_time(&p->speed[i], (double)reads * (1 - p->most_saved), best->compute_ns);
    return best->streamed_bytes < reads && best->latency_ns <= (fastest < least ? fastest : least) * (1 + SWN_PLAN_TIE);
}

/* Finds the best candidate of all windows, *at. 1; 0: no window is wide enough for any weight; -ENOMEM. */
static int best_candidate(struct problem *p, const uint64_t *caps, size_t count, struct candidate *at,
                          const struct swn_plan *empty)
{
    size_t n, found = 0, best = 0;
    struct candidate *all = list_candidates(p, caps, count, &n);
    struct swn_plan *plans = malloc((n + 1) * sizeof *plans);
    double least = INFINITY;
    for (size_t i = 0; plans && all && i < n; i++) {
        if (found && is_settled(p, &plans[best], least, p->budget - all[i].window))
            break;
        plans[found] = *empty;
        if (!try_candidate(p, &all[i], least * (1 + SWN_PLAN_TIE), &plans[found]))
            continue;
        all[found++] = all[i];
        int fastest = plans[found - 1].latency_ns < least;
        least = fastest ? plans[found - 1].latency_ns : least;
        if (fastest)
            best = swn_plan_choose(plans, found);
        else if (better(&plans[found - 1], &plans[best]))
            best = found - 1;
    }
    int rc = plans && all ? found > 0 : -ENOMEM;
    if (rc > 0)
        *at = all[best];
    free(all);
    free(plans);
    return rc;
}

static void close_problem(struct problem *p)
{
    free(p->by_size);
    free(p->elapsed);
    free(p->slices);
    swn_steps_free(&p->steps);
}

/* Computes the input that all candidates share. 0, or -ENOMEM. */
static int open_problem(struct problem *p, double compute_ns)
{
    double before = 0;
    p->by_size = p->n <= UINT32_MAX ? sort_by_size(p->weights, p->n) : NULL;
    p->elapsed = malloc(p->n * sizeof *p->elapsed);
    p->slices = malloc(p->n * sizeof *p->slices);
    if (!p->by_size || !p->elapsed || !p->slices)
        return -ENOMEM;
    p->cut_least = CUT_LEAST;
    for (size_t i = 0; i < p->n; i++) {
        const struct swn_plan_weight *weight = &p->weights[i];
        if (weight->unit && weight->bytes < p->cut_least)
            p->cut_least = weight->bytes;
        p->elapsed[i] = compute_ns > 0 ? (before + weight->compute_ns / 2) / compute_ns : 1;
        before += weight->compute_ns;
        p->most_saved = weight->saved > p->most_saved ? weight->saved : p->most_saved;
    }
    return 0;
}

/* The budget is below the narrowest window: all weights go through their mappings. */
static void map_all(const struct problem *p, struct swn_plan *out)
{
    for (size_t i = 0; i < p->n; i++) {
        struct swn_plan_weight *weight = &p->weights[i];
        weight->keep = weight->sliced = 0;
        weight->oversize = 1;
        weight->keep_bytes = weight->piece = 0;
        out->streamed_bytes += weight->bytes;
    }
    struct swn_disk_model disk = p->disk;
    disk.bytes_per_ns = p->speed[0].bytes_per_ns;
    out->latency_ns = swn_plan_simulate(p->weights, p->n, 0, &disk);
}

static uint64_t mapped_bytes(const struct problem *p)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < p->n; i++)
        bytes += p->weights[i].oversize ? p->weights[i].bytes - p->weights[i].keep_bytes : 0;
    return bytes;
}

/* Rounds the candidate's window up to whole huge pages, into which a virtual disk reads faster (base/huge_pages.h),
 * unless the smaller kept set makes the pass slower or leaves more to the mapping. */
static void widen_to_huge(struct problem *p, struct candidate *at, const struct swn_plan *empty)
{
    struct candidate wide = *at;
    struct swn_plan plan = *empty, widened = *empty;
    wide.window = (at->window + SWN_HUGE - 1) / SWN_HUGE * SWN_HUGE;
    if (wide.window == at->window || !try_candidate(p, at, INFINITY, &plan))
        return;
    uint64_t mapped = mapped_bytes(p);
    if (!try_candidate(p, &wide, plan.latency_ns * (1 + SWN_PLAN_NOISE), &widened) || mapped_bytes(p) > mapped)
        return;
    *at = wide;
}

/* The best plan for p, whose weights do not all fit. caps: the sizes of its weights, with room for MORE_CAPS more. 0,
 * or -ENOMEM. */
static int search(struct problem *p, uint64_t *caps, struct swn_plan *out)
{
    struct candidate best_at;
    int rc = open_problem(p, out->compute_ns);
    if (rc)
        return rc;
    uint64_t largest = p->weights[p->by_size[p->n - 1]].bytes;
    /* Where large weights may be cut, the width of a window need not be the size of a weight. */
    size_t count = p->n;
    for (uint64_t cap = RING_LEAST; largest >= CUT_LEAST && cap < largest && count < p->n + MORE_CAPS; cap *= 2)
        caps[count++] = cap;
    count = distinct_caps(caps, count, p->budget, p->n > MANY_NODES ? 2 : 8);
    rc = best_candidate(p, caps, count, &best_at, out);
    if (!rc) {
        p->crowded = 1;
        rc = best_candidate(p, caps, count, &best_at, out);
    }
    if (rc > 0) {
        widen_to_huge(p, &best_at, out);
        try_candidate(p, &best_at, INFINITY, out);
    } else if (!rc)
        map_all(p, out);
    return rc < 0 ? rc : 0;
}

static int make(struct swn_plan_weight *weights, size_t n, uint64_t budget, const struct speed *speed, unsigned speeds,
                const struct swn_disk_model *disk, struct swn_plan *out)
{
    if (!n)
        return -EINVAL;
    memset(out, 0, sizeof *out);
    struct problem p = {.weights = weights, .n = n, .budget = budget, .speed = speed, .speeds = speeds, .disk = *disk};
    uint64_t *caps = malloc((n + MORE_CAPS) * sizeof *caps);
    if (!caps)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        p.total += weights[i].bytes;
        out->compute_ns += weights[i].compute_ns;
        caps[i] = weights[i].bytes;
        weights[i].keep = weights[i].oversize = weights[i].sliced = 0;
        weights[i].keep_bytes = weights[i].piece = 0;
    }
    int rc = 0;
    if (p.total <= budget)
        keep_all(weights, n, out);
    else
        rc = search(&p, caps, out);
    close_problem(&p);
    free(caps);
    return rc;
}

int swn_plan_make(struct swn_plan_weight *weights, size_t n, uint64_t budget, const struct swn_disk_model *disk,
                  struct swn_plan *out)
{
    return make(weights, n, budget, &(struct speed){disk->bytes_per_ns, 1}, 1, disk, out);
}

int swn_plan_predict(struct swn_plan_weight *weights, size_t n, uint64_t budget, const struct swn_disk_model *disk,
                     struct swn_plan *out)
{
    const struct speed speeds[] = {{disk->bytes_per_ns * SWN_PLAN_CAUTION, SLOW_PART},
                                   {disk->bytes_per_ns, 1 - SLOW_PART}};
    int rc = make(weights, n, budget, speeds, 2, disk, out);
    if (!rc && out->streamed_bytes)
        out->latency_ns = swn_plan_simulate(weights, n, out->ring_bytes, disk);
    return rc;
}

int swn_plan_stream_all(struct swn_plan_weight *weights, size_t n, uint64_t budget, const struct swn_disk_model *disk,
                        struct swn_plan *out)
{
    if (!n)
        return -EINVAL;
    /* Less than the budget, as pages of activations that were just freed would otherwise delay the last reads. */
    uint64_t window = budget - budget / 16;
    *out = (struct swn_plan){.ring_bytes = window};
    for (size_t i = 0; i < n; i++) {
        struct swn_plan_weight *weight = &weights[i];
        uint64_t slice = weight->unit ? swn_plan_slice(weight->unit, window) : 0;
        weight->keep = 0;
        weight->keep_bytes = 0;
        weight->sliced = weight->bytes > window && slice && 2 * slice <= window;
        weight->piece = weight->sliced ? slice : 0;
        weight->oversize = weight->bytes > window && !weight->sliced;
        out->streamed_bytes += weight->bytes;
        out->compute_ns += weight->compute_ns;
    }
    out->latency_ns = swn_plan_simulate(weights, n, window, disk);
    return 0;
}
