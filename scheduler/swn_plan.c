#include "swn_plan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

/* A mapping is read page by page as the kernel happens to touch it, at a fraction of what the disk gives. */
#define MAPPING_PENALTY 16

/* A weight from this size up may be cut in two: its head is kept, its tail is streamed. Smaller ones are worth neither
 * the second read nor the page tables. */
#define CUT_LEAST (16 * MIB)
/* One that its operator can take in slices, from this size up, which is two of them. */
#define SLICED_LEAST (4 * MIB)
/* It is worth it for those that take much of the budget, and for these. */
#define LARGE_LEAST (16 * MIB)
#define LARGE_PART 8
/* Cuts fall on granules of the arena. */
#define CUT_STEP ((uint64_t)65536)
/* A streamed weight may be cut further, so that reading it can begin before the whole of it has room. */
#define LEAST_PIECE (8 * MIB)
#define MOST_PIECES 24
/* The slices that an operator takes one after the other: large enough for the disk and the kernel, small enough that
 * the window holds several. */
#define LEAST_SLICE (2 * MIB)
#define MOST_SLICE (8 * MIB)
/* A tail shorter than this is kept too. */
#define TAIL_LEAST MIB
/* A piece cannot be lent by pointer: mapping it at its address costs page tables, about 0.1 ms per MiB. */
#define PUBLISH_NS_PER_BYTE (100e3 / (double)MIB)

/* Windows are tried from this up; below it a read is too small for the disk to run at speed. */
#define LEAST_WINDOW MIB
/* A window of one read means one read at a time, begun when its predecessor has been computed with: that part of the
 * budget, up to what the fetch queue has in flight, is well spent on the disk's depth. */
#define WINDOW_PART 32
#define DEPTH_WINDOW (8 * MIB)
#define MORE_CAPS 32
/* Above so many nodes, sizes that are within a half of each other count as equal, else within an eighth; and windows
 * are tried in steps of one largest node, else of half of one. A plan has to be there in 5 ms (t_plan). */
#define MANY_NODES 256

struct candidate {
    uint64_t cap, window;
    int heads_first, pieces;
    int crowded; /* the window need not hold what one operator wants at once */
};

/* What all candidates share. */
struct problem {
    struct swn_plan_node *nodes;
    size_t n;
    const uint32_t *by_size; /* indices of the nodes, smallest first */
    uint64_t budget;
    double bytes_per_ns, latency_ns;
};

/* One step of a pass: reads, then computing. */
struct segment {
    uint64_t bytes, piece; /* to be read, in parts of so many; 0: nothing */
    double compute_ns;
    uint64_t spare; /* for this step to be lodged in; 0: it must not be */
    uint64_t room;  /* spare while this step computes */
    double saved;   /* as in swn_plan_node */
    int mapped;     /* read through the mapping */
};

int swn_plan_worth_slicing(uint64_t bytes, uint64_t budget_bytes)
{
    return bytes >= LARGE_LEAST || (bytes >= SLICED_LEAST && bytes > budget_bytes / LARGE_PART);
}

uint64_t swn_plan_slice(uint64_t unit, uint64_t window)
{
    uint64_t slice = window / 4 < LEAST_SLICE ? LEAST_SLICE : window / 4 > MOST_SLICE ? MOST_SLICE : window / 4;
    return (slice + unit - 1) / unit * unit;
}

/* Whether there is room for one slice that is read while another computes. */
static int sliceable(const struct swn_plan_node *node, uint64_t window)
{
    return node->unit && node->bytes >= SLICED_LEAST && node->unit <= window / 2 &&
           2 * swn_plan_slice(node->unit, window) <= window;
}

static size_t segment_count(const struct swn_plan_node *node)
{
    uint64_t tail = node->bytes - node->keep_head;
    return 2 + (node->sliced ? (size_t)(tail / node->piece) : 0);
}

/* The steps of one node into `to`; returns how many. */
static size_t segments_of(const struct swn_plan_node *node, int lodging, struct segment *to)
{
    uint64_t tail = node->keep ? 0 : node->bytes - node->keep_head, piece = node->piece ? node->piece : tail;
    if (!node->sliced) {
        double publish = !node->oversize && (node->keep_head || piece < tail) ? PUBLISH_NS_PER_BYTE : 0;
        to[0] = (struct segment){.bytes = tail,
                                 .piece = piece,
                                 .compute_ns = node->compute_ns + (double)tail * publish,
                                 .room = node->spare,
                                 .saved = node->saved,
                                 .mapped = node->oversize};
        return 1;
    }
    size_t n = 0;
    double each = node->compute_ns / (double)node->bytes;
    if (node->keep_head)
        to[n++] = (struct segment){.compute_ns = each * (double)node->keep_head, .room = node->spare};
    for (; tail; tail -= piece) {
        piece = tail < 2 * node->piece ? tail : node->piece;
        to[n++] = (struct segment){.bytes = piece,
                                   .piece = piece,
                                   .compute_ns = each * (double)piece,
                                   .spare = lodging ? node->spare : 0,
                                   .room = node->spare,
                                   .saved = node->saved};
    }
    return n;
}

/* What is lodged while a pass is simulated, by step; `oldest` is the first that may still be. */
struct lodger {
    uint64_t *at, bytes;
    size_t oldest;
};

/* Whether a slice of step i, whose reading begins at `now`, finds room in what the steps from there on leave. */
static int lodge(struct lodger *l, const struct segment *steps, size_t n, const double *compute_end, size_t i,
                 uint64_t bytes, double now)
{
    uint64_t room = steps[i % n].spare;
    for (; l->oldest < i && compute_end[l->oldest + 1] <= now; l->oldest++)
        l->bytes -= l->at[l->oldest];
    for (size_t j = l->oldest; j < i && room; j++)
        room = steps[j % n].room < room ? steps[j % n].room : room;
    if (l->bytes + bytes > room)
        return 0;
    l->at[i] = bytes;
    l->bytes += bytes;
    return 1;
}

/* Time at which each step ends, over a few passes; the ring is walked with two indices. */
static double simulate(const struct segment *steps, size_t n, uint64_t window, double bytes_per_ns, double latency_ns)
{
    enum { PASSES = 4 };
    size_t total = n * PASSES;
    double *compute_end = calloc(total + 1, sizeof *compute_end);
    struct lodger lodger = {.at = calloc(total, sizeof *lodger.at)};
    if (!compute_end || !lodger.at) {
        free(compute_end);
        free(lodger.at);
        return 0;
    }
    double disk_free = 0, first_pass_end = 0;
    size_t oldest = 0; /* first step whose frames are still held when step i is read */
    uint64_t held = 0;
    for (size_t i = 0; i < total; i++) {
        const struct segment *step = &steps[i % n];
        double ready = 0;
        if (step->bytes) {
            double begin = disk_free;
            uint64_t bytes = step->bytes, piece;
            if (step->mapped) {
                if (compute_end[i] > begin)
                    begin = compute_end[i]; /* nothing is read ahead for it */
                begin += (double)bytes / bytes_per_ns * MAPPING_PENALTY;
                bytes = 0;
            }
            for (; bytes; bytes -= piece) {
                piece = bytes < step->piece ? bytes : step->piece;
                if (held + piece > window && step->spare && lodge(&lodger, steps, n, compute_end, i, piece, begin)) {
                    begin += latency_ns + (double)piece * (1 - step->saved) / bytes_per_ns;
                    continue;
                }
                /* compute_end[j + 1] is when step j is done: its frames are free then */
                while (held + piece > window && oldest < i) {
                    const struct segment *old = &steps[oldest % n];
                    uint64_t had = old->mapped ? 0 : old->bytes - lodger.at[oldest];
                    if (had) {
                        held -= had;
                        if (compute_end[oldest + 1] > begin)
                            begin = compute_end[oldest + 1];
                    }
                    oldest++;
                }
                held += piece;
                begin += latency_ns + (double)piece * (1 - step->saved) / bytes_per_ns;
            }
            ready = disk_free = begin;
        }
        compute_end[i + 1] = (compute_end[i] > ready ? compute_end[i] : ready) + step->compute_ns;
        if (i + 1 == n * (PASSES - 2))
            first_pass_end = compute_end[i + 1];
    }
    double took = (compute_end[total] - first_pass_end) / 2;
    free(compute_end);
    free(lodger.at);
    return took;
}

static double simulate_nodes(const struct swn_plan_node *nodes, size_t n, uint64_t window, double bytes_per_ns,
                             double latency_ns, int lodging)
{
    size_t most = 0, count = 0;
    for (size_t i = 0; i < n; i++)
        most += segment_count(&nodes[i]);
    struct segment *steps = malloc(most * sizeof *steps);
    if (!steps)
        return 0;
    for (size_t i = 0; i < n; i++)
        count += segments_of(&nodes[i], lodging, steps + count);
    double took = simulate(steps, count, window, bytes_per_ns, latency_ns);
    free(steps);
    return took;
}

double swn_plan_simulate(const struct swn_plan_node *nodes, size_t n, uint64_t window, double bytes_per_ns,
                         double latency_ns)
{
    return simulate_nodes(nodes, n, window, bytes_per_ns, latency_ns, 1);
}

/* How much of the node may be streamed. */
static uint64_t tail_most(const struct swn_plan_node *node, const struct candidate *at)
{
    return sliceable(node, at->window) || node->bytes < at->cap ? node->bytes : at->cap;
}

static int may_cut(const struct swn_plan_node *node, const struct candidate *at)
{
    return !node->oversize && (sliceable(node, at->window) || (node->bytes >= CUT_LEAST && node->bytes > at->cap));
}

/* Bytes of the node that stay resident. */
static uint64_t resident(const struct swn_plan_node *node)
{
    return node->keep ? node->bytes : node->keep_head;
}

/* Of a node that may be cut: streams `tail` bytes, or a little more; no more than it may. */
static void set_tail(struct swn_plan_node *node, uint64_t tail, const struct candidate *at)
{
    int slices = sliceable(node, at->window);
    uint64_t step = slices ? node->unit : CUT_STEP, most = tail_most(node, at);
    if (tail >= TAIL_LEAST && slices && tail < LEAST_SLICE)
        tail = LEAST_SLICE;
    uint64_t head = tail < TAIL_LEAST ? node->bytes : tail < node->bytes ? (node->bytes - tail) / step * step : 0;
    if (node->bytes - head > most)
        head = (node->bytes - most + step - 1) / step * step;
    if (slices && head < LEAST_SLICE)
        head = 0;
    node->keep = head >= node->bytes;
    node->keep_head = node->keep ? 0 : head;
}

/* How much longer the kept head of a node that may be cut can become, at most `room`. */
static uint64_t head_growth(const struct swn_plan_node *node, const struct candidate *at, uint64_t room)
{
    int slices = sliceable(node, at->window);
    uint64_t step = slices ? node->unit : CUT_STEP, least_tail = slices ? LEAST_SLICE : 0;
    uint64_t tail = node->bytes - node->keep_head, most = tail > least_tail ? tail - least_tail : 0;
    uint64_t more = (room < most ? room : most) / step * step;
    return slices && node->keep_head + more < LEAST_SLICE ? 0 : more;
}

/* What of the node needs memory of its own because it does not fit the window. */
static uint64_t forced_bytes(const struct swn_plan_node *node, const struct candidate *at)
{
    return node->bytes <= at->cap ? 0 : may_cut(node, at) ? node->bytes - tail_most(node, at) : node->bytes;
}

/* A node over `cap` bytes does not fit the window: it is cut, or kept whole, as far as there is room for that, else
 * left to the mapping. What must be streamed of the rest is spread over the compute time by error diffusion. Returns
 * the bytes kept. */
static uint64_t choose(const struct problem *p, const struct candidate *at, uint64_t room)
{
    uint64_t forced = 0, kept = 0, total = 0;
    double compute = 0, target = 0, streamed = 0, before = 0;
    for (size_t i = 0; i < p->n; i++) {
        struct swn_plan_node *node = &p->nodes[i];
        node->keep = 0;
        node->keep_head = 0;
        /* More than the whole budget: neither kept nor in any window. */
        node->oversize = node->bytes > p->budget && !sliceable(node, at->window);
        forced += node->oversize ? 0 : forced_bytes(node, at);
    }
    for (size_t i = 0; i < p->n && forced > room; i++) {
        struct swn_plan_node *node = &p->nodes[p->by_size[i]];
        uint64_t bytes = node->oversize ? 0 : forced_bytes(node, at);
        forced -= bytes;
        node->oversize |= bytes > 0;
    }
    for (size_t i = 0; i < p->n; i++) {
        compute += p->nodes[i].compute_ns;
        total += p->nodes[i].oversize ? 0 : p->nodes[i].bytes;
    }
    target = total > room ? (double)(total - room) : 0;
    for (size_t i = 0; i < p->n; i++) {
        struct swn_plan_node *node = &p->nodes[i];
        double due = compute > 0 ? target * ((before + node->compute_ns / 2) / compute) : target;
        before += node->compute_ns;
        if (node->oversize)
            continue;
        if (may_cut(node, at))
            set_tail(node, due > streamed ? (uint64_t)(due - streamed) : 0, at);
        else
            node->keep = node->bytes > at->cap || target <= 0 || streamed + (double)node->bytes / 2 > due;
        kept += resident(node);
        streamed += (double)(node->bytes - resident(node));
    }
    return kept;
}

/* The node to be streamed next because too much is kept: the smallest one that alone suffices, else the largest. */
static struct swn_plan_node *next_to_stream(const struct problem *p, uint64_t cap, uint64_t excess)
{
    struct swn_plan_node *largest = NULL;
    for (size_t i = 0; i < p->n; i++) {
        struct swn_plan_node *c = &p->nodes[p->by_size[i]];
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

/* Keeps more of what is streamed, the largest pieces first, as long as there is room. What did not fit once never
 * will; of the few nodes that may be cut, it is not their size that counts but what of them is not kept. */
static uint64_t fill(const struct problem *p, uint64_t room, uint64_t kept)
{
    size_t whole = p->n;
    for (;;) {
        struct swn_plan_node *pick = NULL;
        uint64_t most = 0;
        for (size_t i = p->n; i-- > 0 && p->nodes[p->by_size[i]].bytes >= SLICED_LEAST;) {
            struct swn_plan_node *c = &p->nodes[p->by_size[i]];
            uint64_t tail = c->bytes - resident(c);
            if (c->keep_head && !c->oversize && tail > most && tail <= room - kept) {
                pick = c;
                most = tail;
            }
        }
        for (; whole; whole--) {
            struct swn_plan_node *c = &p->nodes[p->by_size[whole - 1]];
            if (c->bytes <= most)
                break;
            if (!c->keep && !c->oversize && !c->keep_head && c->bytes <= room - kept) {
                pick = c;
                break;
            }
        }
        if (!pick)
            return kept;
        kept += pick->bytes - resident(pick);
        pick->keep = 1;
        pick->keep_head = 0;
    }
}

/* Diffusion rounds; bring the kept bytes under `room`, then fill what is left. */
static uint64_t settle(const struct problem *p, const struct candidate *at, uint64_t room, uint64_t kept)
{
    for (size_t i = 0; i < p->n && kept > room; i++) {
        struct swn_plan_node *c = &p->nodes[i];
        if (!may_cut(c, at))
            continue;
        uint64_t before = resident(c), tail = c->bytes - before + (kept - room);
        set_tail(c, tail < TAIL_LEAST ? TAIL_LEAST : tail, at);
        kept = kept - before + resident(c);
    }
    while (kept > room) {
        struct swn_plan_node *pick = next_to_stream(p, at->cap, kept - room);
        if (!pick)
            return kept;
        pick->keep = 0;
        kept -= pick->bytes;
    }
    kept = fill(p, room, kept);
    for (size_t i = 0; i < p->n && kept < room; i++) {
        struct swn_plan_node *c = &p->nodes[i];
        if (c->keep || !may_cut(c, at))
            continue;
        uint64_t more = head_growth(c, at, room - kept);
        c->keep_head += more;
        kept += more;
    }
    return kept;
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

/* Indices of the nodes, smallest first; NULL without memory. */
static uint32_t *sort_by_size(const struct swn_plan_node *nodes, size_t n)
{
    struct sized *sized = malloc(n * sizeof *sized);
    uint32_t *found = malloc(n * sizeof *found);
    for (size_t i = 0; sized && i < n; i++)
        sized[i] = (struct sized){nodes[i].bytes, (uint32_t)i};
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

static void keep_all(struct swn_plan_node *nodes, size_t n, struct swn_plan *out)
{
    for (size_t i = 0; i < n; i++) {
        nodes[i].keep = 1;
        out->kept_bytes += nodes[i].bytes;
    }
    out->latency_ns = out->compute_ns;
}

/* In which pieces what is not kept of the node comes. */
static void set_pieces(struct swn_plan_node *node, const struct candidate *at)
{
    uint64_t tail = node->bytes - node->keep_head, piece = (tail / MOST_PIECES + CUT_STEP - 1) / CUT_STEP * CUT_STEP;
    node->sliced = !node->keep && !node->oversize && sliceable(node, at->window);
    if (node->sliced)
        node->piece = swn_plan_slice(node->unit, at->window);
    else if (at->pieces && !node->keep && !node->oversize && tail >= CUT_LEAST)
        node->piece = piece > LEAST_PIECE ? piece : LEAST_PIECE;
    else
        node->piece = 0;
}

/* Whether some operator has several weights that come whole and do not fit the window together. One of them would be
 * read through its mapping then, in every pass. */
static int is_crowded(const struct problem *p, uint64_t window)
{
    uint64_t together = 0;
    for (size_t i = 0; i < p->n; i++) {
        const struct swn_plan_node *node = &p->nodes[i];
        int elsewhere = node->keep || node->sliced || node->bytes > p->budget;
        together += elsewhere ? 0 : node->bytes - node->keep_head;
        if (together > window && (node->joined || (i && p->nodes[i - 1].joined)))
            return 1;
        together = node->joined ? together : 0;
    }
    return 0;
}

/* One candidate: nothing larger than at->cap goes through the window, except in slices. 0: it is none, or takes longer
 * than `limit_ns` even if reading and computing never wait for one another. */
static int try_candidate(const struct problem *p, const struct candidate *at, double limit_ns, struct swn_plan *out)
{
    if (at->window > p->budget)
        return 0;
    uint64_t room = p->budget - at->window, rest = room;
    for (size_t i = 0; at->heads_first && i < p->n; i++)
        if (p->nodes[i].bytes > p->budget && !sliceable(&p->nodes[i], at->window))
            rest -= p->nodes[i].bytes < rest ? p->nodes[i].bytes : rest;
    uint64_t kept = choose(p, at, rest);
    kept = settle(p, at, rest, kept);
    if (kept > rest)
        return 0;
    /* What the rounding left over keeps the head of a layer that is too large for anything else. */
    for (size_t i = 0; i < p->n; i++) {
        if (!p->nodes[i].oversize)
            continue;
        uint64_t head = room - kept < p->nodes[i].bytes ? room - kept : p->nodes[i].bytes;
        p->nodes[i].keep_head = head / (2 * MIB) * (2 * MIB);
        kept += p->nodes[i].keep_head;
    }
    out->window_bytes = at->window;
    out->kept_bytes = kept;
    out->streamed_bytes = 0;
    double read = 0;
    for (size_t i = 0; i < p->n; i++) {
        set_pieces(&p->nodes[i], at);
        uint64_t tail = p->nodes[i].keep ? 0 : p->nodes[i].bytes - p->nodes[i].keep_head;
        out->streamed_bytes += tail;
        read += (double)tail * (1 - p->nodes[i].saved);
    }
    if (read / p->bytes_per_ns > limit_ns || (!at->crowded && is_crowded(p, at->window)))
        return 0;
    out->latency_ns = simulate_nodes(p->nodes, p->n, at->window, p->bytes_per_ns, p->latency_ns, 0);
    return 1;
}

/* So much of the predicted time is noise; fewer bytes read are not. */
#define NOISE 0.03

/* Of plans that are all fast enough; equal ones are the same plan to whoever carries it out. */
static int better(const struct swn_plan *a, const struct swn_plan *b)
{
    if (a->streamed_bytes != b->streamed_bytes)
        return a->streamed_bytes < b->streamed_bytes;
    if (a->latency_ns < b->latency_ns || b->latency_ns < a->latency_ns)
        return a->latency_ns < b->latency_ns;
    return a->window_bytes < b->window_bytes;
}

size_t swn_plan_choose(const struct swn_plan *plans, size_t n)
{
    double least = INFINITY;
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        least = plans[i].latency_ns < least ? plans[i].latency_ns : least;
    for (size_t i = 0; i < n; i++)
        if (plans[i].latency_ns <= least * (1 + NOISE) && (best == n || better(&plans[i], &plans[best])))
            best = i;
    return best;
}

/* Near-equal sizes are one candidate, as long as the larger one has a window at all. Sorts; returns how many are left.
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

/* The best of all windows into *at and *out. 1; 0: none is wide enough for anything; -ENOMEM. */
static int best_candidate(const struct problem *p, const uint64_t *caps, size_t count, int crowded,
                          struct candidate *at, struct swn_plan *out)
{
    enum { VARIANTS = 20 };
    struct swn_plan *plans = malloc(count * VARIANTS * sizeof *plans);
    struct candidate *all = malloc(count * VARIANTS * sizeof *all);
    uint64_t largest = p->nodes[p->by_size[p->n - 1]].bytes;
    uint64_t narrowest = p->budget / WINDOW_PART < DEPTH_WINDOW ? p->budget / WINDOW_PART : DEPTH_WINDOW;
    narrowest = narrowest < LEAST_WINDOW ? LEAST_WINDOW : narrowest;
    double least = INFINITY;
    size_t n = 0;
    for (size_t i = 0; plans && all && i < count; i++)
        /* window = 1, 1.5 ... 3 times the largest streamed node */
        for (unsigned variant = 0; variant < VARIANTS; variant++) {
            struct candidate *c = &all[n];
            *c = (struct candidate){.cap = caps[i],
                                    .window = caps[i] * (2 + variant / 4) / 2,
                                    .heads_first = variant % 2,
                                    .pieces = variant / 2 % 2,
                                    .crowded = crowded};
            c->window = c->window > narrowest ? c->window : narrowest;
            if (p->n > MANY_NODES && variant / 4 % 2)
                continue;
            plans[n] = *out;
            if ((c->pieces && largest < CUT_LEAST) || (c->heads_first && largest <= p->budget) ||
                !try_candidate(p, c, least * (1 + NOISE), &plans[n]))
                continue;
            least = plans[n].latency_ns < least ? plans[n].latency_ns : least;
            n++;
        }
    int rc = plans && all ? n > 0 : -ENOMEM;
    if (rc > 0)
        *at = all[swn_plan_choose(plans, n)];
    free(all);
    free(plans);
    return rc;
}

int swn_plan_make(struct swn_plan_node *nodes, size_t n, uint64_t budget, double bytes_per_ns, double latency_ns,
                  struct swn_plan *out)
{
    if (!n)
        return -EINVAL;
    memset(out, 0, sizeof *out);
    uint64_t total = 0, largest = 0, *caps = malloc((n + MORE_CAPS) * sizeof *caps);
    uint32_t *by_size = caps && n <= UINT32_MAX ? sort_by_size(nodes, n) : NULL;
    if (!by_size) {
        free(caps);
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        total += nodes[i].bytes;
        out->compute_ns += nodes[i].compute_ns;
        caps[i] = nodes[i].bytes;
        largest = nodes[i].bytes > largest ? nodes[i].bytes : largest;
        nodes[i].keep = nodes[i].oversize = nodes[i].sliced = 0;
        nodes[i].keep_head = nodes[i].piece = 0;
    }
    /* Where large ones may be cut, window widths need not be anybody's size. */
    size_t count = n;
    for (uint64_t cap = LEAST_WINDOW; largest >= CUT_LEAST && cap < largest && count < n + MORE_CAPS; cap *= 2)
        caps[count++] = cap;
    if (total <= budget) {
        keep_all(nodes, n, out);
        free(by_size);
        free(caps);
        return 0;
    }
    count = distinct_caps(caps, count, budget, n > MANY_NODES ? 2 : 8);
    const struct problem p = {.nodes = nodes,
                              .n = n,
                              .by_size = by_size,
                              .budget = budget,
                              .bytes_per_ns = bytes_per_ns,
                              .latency_ns = latency_ns};
    struct candidate best_at;
    int rc = best_candidate(&p, caps, count, 0, &best_at, out);
    if (!rc)
        rc = best_candidate(&p, caps, count, 1, &best_at, out);
    if (rc > 0) {
        try_candidate(&p, &best_at, INFINITY, out);
    } else if (!rc) {
        /* Less than the least window: everything goes through the mapping. */
        for (size_t i = 0; i < n; i++) {
            nodes[i].keep = 0;
            nodes[i].oversize = 1;
            nodes[i].sliced = 0;
            nodes[i].keep_head = nodes[i].piece = 0;
            out->streamed_bytes += nodes[i].bytes;
        }
        out->latency_ns = swn_plan_simulate(nodes, n, 0, bytes_per_ns, latency_ns);
    }
    free(by_size);
    free(caps);
    return rc < 0 ? rc : 0;
}

int swn_plan_predict(struct swn_plan_node *nodes, size_t n, uint64_t budget, double bytes_per_ns, double latency_ns,
                     struct swn_plan *out)
{
    int rc = swn_plan_make(nodes, n, budget, bytes_per_ns * SWN_PLAN_CAUTION, latency_ns, out);
    if (!rc && out->streamed_bytes)
        out->latency_ns = swn_plan_simulate(nodes, n, out->window_bytes, bytes_per_ns, latency_ns);
    return rc;
}

int swn_plan_ring(struct swn_plan_node *nodes, size_t n, uint64_t budget, double bytes_per_ns, double latency_ns,
                  struct swn_plan *out)
{
    if (!n)
        return -EINVAL;
    /* Some room less, or the pages of activations that have just gone would be in the way of the last of it. */
    uint64_t window = budget - budget / 16;
    *out = (struct swn_plan){.window_bytes = window};
    for (size_t i = 0; i < n; i++) {
        struct swn_plan_node *node = &nodes[i];
        uint64_t slice = node->unit ? swn_plan_slice(node->unit, window) : 0;
        node->keep = 0;
        node->keep_head = 0;
        node->sliced = node->bytes > window && slice && 2 * slice <= window;
        node->piece = node->sliced ? slice : 0;
        node->oversize = node->bytes > window && !node->sliced;
        out->streamed_bytes += node->bytes;
        out->compute_ns += node->compute_ns;
    }
    out->latency_ns = swn_plan_simulate(nodes, n, window, bytes_per_ns, latency_ns);
    return 0;
}
