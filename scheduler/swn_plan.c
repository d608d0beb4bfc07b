#include "swn_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

/* A mapping is read page by page as the kernel happens to touch it, at a fraction of what the disk gives. */
#define MAPPING_PENALTY 16

/* Windows are tried from this up; below it a read is too small for the disk to run at speed. */
#define LEAST_WINDOW (4 * MIB)

/* Time at which the k-th streamed read ends, and its node, over a few passes; the ring is walked with two indices. */
double swn_plan_simulate(const struct swn_plan_node *nodes, size_t n, uint64_t window, double bytes_per_ns,
                         double latency_ns)
{
    enum { PASSES = 4 };
    size_t total = n * PASSES;
    double *compute_end = calloc(total + 1, sizeof *compute_end);
    if (!compute_end)
        return 0;
    double disk_free = 0, first_pass_end = 0, mark = 0;
    size_t oldest = 0; /* first streamed node whose frame is still held when node i is read */
    uint64_t held = 0;
    for (size_t i = 0; i < total; i++) {
        const struct swn_plan_node *node = &nodes[i % n];
        double ready = 0;
        if (!node->keep) {
            double begin = disk_free;
            uint64_t bytes = node->bytes - node->keep_head;
            if (node->oversize) {
                if (compute_end[i] > begin)
                    begin = compute_end[i]; /* nothing is read ahead for it */
            } else {
                /* compute_end[j + 1] is when node j is done: its frame is free then */
                while (held + bytes > window && oldest < i) {
                    const struct swn_plan_node *old = &nodes[oldest % n];
                    if (!old->keep && !old->oversize) {
                        held -= old->bytes;
                        if (compute_end[oldest + 1] > begin)
                            begin = compute_end[oldest + 1];
                    }
                    oldest++;
                }
                held += bytes;
            }
            ready = disk_free =
                begin + latency_ns + (double)bytes / bytes_per_ns * (node->oversize ? MAPPING_PENALTY : 1);
        }
        double begin = compute_end[i] > ready ? compute_end[i] : ready;
        compute_end[i + 1] = begin + node->compute_ns;
        if (i + 1 == n * (PASSES - 2))
            first_pass_end = compute_end[i + 1];
        mark = compute_end[i + 1];
    }
    free(compute_end);
    return (mark - first_pass_end) / 2;
}

/* The smallest node that would have to be kept because it does not fit the window. */
static struct swn_plan_node *smallest_forced(struct swn_plan_node *nodes, size_t n)
{
    struct swn_plan_node *pick = NULL;
    for (size_t i = 0; i < n; i++)
        if (nodes[i].keep && (!pick || nodes[i].bytes < pick->bytes))
            pick = &nodes[i];
    return pick;
}

/* Keeps every node over `cap` bytes (it would not fit the window) as far as there is room for it, else leaves it to the
 * mapping; then spreads what must be streamed of the rest over the compute time by error diffusion. Returns the bytes
 * kept. */
static uint64_t choose(struct swn_plan_node *nodes, size_t n, uint64_t cap, uint64_t budget, uint64_t room)
{
    uint64_t kept = 0, rest = 0;
    double compute = 0, target = 0, streamed = 0, before = 0;
    for (size_t i = 0; i < n; i++) {
        struct swn_plan_node *node = &nodes[i];
        /* More than the whole budget: neither kept nor in any window. */
        node->oversize = node->bytes > budget;
        node->keep = !node->oversize && node->bytes > cap;
        if (node->keep)
            kept += node->bytes;
        else if (!node->oversize)
            rest += node->bytes;
        compute += node->compute_ns;
    }
    while (kept > room) {
        struct swn_plan_node *node = smallest_forced(nodes, n);
        node->keep = 0;
        node->oversize = 1;
        kept -= node->bytes;
    }
    target = kept + rest > room ? (double)(kept + rest - room) : 0;
    for (size_t i = 0; i < n; i++) {
        struct swn_plan_node *node = &nodes[i];
        double due = compute > 0 ? target * ((before + node->compute_ns / 2) / compute) : target;
        before += node->compute_ns;
        if (node->keep || node->oversize)
            continue;
        if (streamed + (double)node->bytes / 2 <= due && target > 0) {
            streamed += (double)node->bytes;
        } else {
            node->keep = 1;
            kept += node->bytes;
        }
    }
    return kept;
}

/* Diffusion rounds; bring the kept bytes under `room`, then fill what is left. */
static uint64_t settle(struct swn_plan_node *nodes, size_t n, uint64_t cap, uint64_t room, uint64_t kept)
{
    while (kept > room) {
        struct swn_plan_node *pick = NULL;
        for (size_t i = 0; i < n; i++) {
            struct swn_plan_node *c = &nodes[i];
            if (!c->keep || c->bytes > cap)
                continue;
            int enough = c->bytes >= kept - room, pick_enough = pick && pick->bytes >= kept - room;
            if (!pick || (enough && (!pick_enough || c->bytes < pick->bytes)) ||
                (!enough && !pick_enough && c->bytes > pick->bytes))
                pick = c;
        }
        if (!pick)
            return kept;
        pick->keep = 0;
        kept -= pick->bytes;
    }
    for (;;) {
        struct swn_plan_node *pick = NULL;
        for (size_t i = 0; i < n; i++) {
            struct swn_plan_node *c = &nodes[i];
            if (!c->keep && !c->oversize && kept + c->bytes <= room && (!pick || c->bytes > pick->bytes))
                pick = c;
        }
        if (!pick)
            return kept;
        pick->keep = 1;
        kept += pick->bytes;
    }
}

static int by_bytes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void keep_all(struct swn_plan_node *nodes, size_t n, struct swn_plan *out)
{
    for (size_t i = 0; i < n; i++) {
        nodes[i].keep = 1;
        out->kept_bytes += nodes[i].bytes;
    }
    out->latency_ns = out->compute_ns;
}

/* One candidate: nothing larger than `cap` goes through a window of `window` bytes. */
static int try_candidate(struct swn_plan_node *nodes, size_t n, uint64_t cap, uint64_t window, uint64_t budget,
                         int heads_first, double bytes_per_ns, double latency_ns, struct swn_plan *out)
{
    if (window > budget)
        return 0;
    uint64_t room = budget - window, rest = room;
    for (size_t i = 0; heads_first && i < n; i++)
        if (nodes[i].bytes > budget)
            rest -= nodes[i].bytes < rest ? nodes[i].bytes : rest;
    uint64_t kept = choose(nodes, n, cap, budget, rest);
    kept = settle(nodes, n, cap, rest, kept);
    if (kept > rest)
        return 0;
    /* What the rounding left over keeps the head of a layer that is too large for anything else. */
    for (size_t i = 0; i < n; i++) {
        nodes[i].keep_head = 0;
        if (!nodes[i].oversize || nodes[i].keep)
            continue;
        uint64_t head = room - kept < nodes[i].bytes ? room - kept : nodes[i].bytes;
        nodes[i].keep_head = head / (2 * MIB) * (2 * MIB);
        kept += nodes[i].keep_head;
    }
    out->window_bytes = window;
    out->kept_bytes = kept;
    out->streamed_bytes = 0;
    for (size_t i = 0; i < n; i++)
        out->streamed_bytes += nodes[i].keep ? 0 : nodes[i].bytes - nodes[i].keep_head;
    out->latency_ns = swn_plan_simulate(nodes, n, window, bytes_per_ns, latency_ns);
    return 1;
}

int swn_plan_make(struct swn_plan_node *nodes, size_t n, uint64_t budget, double bytes_per_ns, double latency_ns,
                  struct swn_plan *out)
{
    if (!n)
        return -EINVAL;
    memset(out, 0, sizeof *out);
    uint64_t total = 0, *caps = malloc((n + 1) * sizeof *caps);
    if (!caps)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        total += nodes[i].bytes;
        out->compute_ns += nodes[i].compute_ns;
        caps[i] = nodes[i].bytes;
        nodes[i].keep = nodes[i].oversize = 0;
        nodes[i].keep_head = 0;
    }
    if (total <= budget) {
        keep_all(nodes, n, out);
        free(caps);
        return 0;
    }
    qsort(caps, n, sizeof *caps, by_bytes);
    struct swn_plan best = {0};
    struct {
        uint64_t cap, window;
        int heads;
    } best_at = {0};
    int found = 0;
    for (size_t i = 0; i < n; i++) {
        /* Near-equal sizes are one candidate, as long as the larger one has a window at all. */
        if (i + 1 < n && caps[i + 1] <= budget && caps[i + 1] <= caps[i] + caps[i] / 8)
            continue;
        for (unsigned variant = 0; variant < 10;
             variant++) { /* window = 1, 1.5 ... 3 times the largest streamed node */
            unsigned half = 2 + variant / 2;
            int heads = variant % 2;
            uint64_t window = caps[i] * half / 2 > LEAST_WINDOW ? caps[i] * half / 2 : LEAST_WINDOW;
            struct swn_plan plan = *out;
            if (!try_candidate(nodes, n, caps[i], window, budget, heads, bytes_per_ns, latency_ns, &plan))
                continue;
            /* A percent of predicted time is noise; fewer bytes read are not. */
            if (!found || plan.latency_ns < best.latency_ns * 0.99 ||
                (plan.latency_ns <= best.latency_ns * 1.01 && plan.streamed_bytes < best.streamed_bytes)) {
                best = plan;
                best_at.cap = caps[i];
                best_at.window = window;
                best_at.heads = heads;
                found = 1;
            }
        }
    }
    if (found) {
        try_candidate(nodes, n, best_at.cap, best_at.window, budget, best_at.heads, bytes_per_ns, latency_ns, out);
    } else {
        /* Less than the least window: everything goes through the mapping. */
        for (size_t i = 0; i < n; i++) {
            nodes[i].keep = 0;
            nodes[i].oversize = 1;
            out->streamed_bytes += nodes[i].bytes;
        }
        out->latency_ns = swn_plan_simulate(nodes, n, 0, bytes_per_ns, latency_ns);
    }
    free(caps);
    return 0;
}
