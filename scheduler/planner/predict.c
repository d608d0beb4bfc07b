/* scheduler/planner/predict.c - see predict.h. */
#include "scheduler/planner/predict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
/* scheduler/planner/plan.c cuts larger weights into pieces of at least half this size; the window has to hold two of
 * them. */
#define CUT_FROM (16 * MIB)
#define RING_LEAST (4 * MIB)
/* The size of such a piece. */
#define MOST_READ (8.0 * MIB)
#define PAGE ((uint64_t)4096)
/* Each round uses the plan of the round before; after three the results differ by less than measurements do. */
#define ROUNDS 3

static uint64_t always_there(const struct swn_predict *p)
{
    uint64_t bytes = p->other_bytes;
    for (size_t i = 0; i < p->n; i++)
        bytes += p->layers[i].bytes < SWN_PREDICT_STREAMED ? p->layers[i].bytes : 0;
    return bytes;
}

uint64_t swn_predict_demand(const struct swn_predict *p)
{
    uint64_t bytes = p->other_bytes;
    for (size_t i = 0; i < p->n; i++)
        bytes += p->layers[i].bytes;
    return bytes;
}

uint64_t swn_predict_least(const struct swn_predict *p)
{
    uint64_t window = RING_LEAST, demand = swn_predict_demand(p);
    for (size_t i = 0; i < p->n; i++)
        window = p->layers[i].bytes > window ? p->layers[i].bytes : window;
    window = window > CUT_FROM ? CUT_FROM : window;
    uint64_t least = always_there(p) + window;
    return least < demand ? least : demand;
}

/* 0 s per byte: no disk is that fast. */
static double bytes_per_ns(double alpha)
{
    return alpha > 0 ? 1e-9 / alpha : 1e9;
}

/* Seconds per byte of the idle disk. Preferably measured beside the passes: a disk that was measured alone, and was
 * faster then, with less of the processors, tells less about the disk that passes will see (with it, GPT-2 within 25 %
 * was predicted to take a quarter longer than it did). */
static double resting_alpha(const struct swn_predict *p)
{
    if (p->rest_alpha > 0) /* measured in the same seconds, with the same reads */
        return p->busy_alpha > 0 && p->busy_alpha < p->rest_alpha ? p->busy_alpha : p->rest_alpha;
    if (!(p->busy_alpha > 0) || p->busy_alpha >= p->c.alpha)
        return p->c.alpha;
    /* busy_alpha is without the cost of each read, which is most of a small read's time, and not known well. */
    return p->busy_alpha > p->c.alpha / 2 ? p->busy_alpha : p->c.alpha / 2;
}

/* The part of the budget for weights that come and go. */
static uint64_t for_weights(const struct swn_predict *p, uint64_t budget_bytes)
{
    uint64_t taken = always_there(p);
    return budget_bytes > taken ? budget_bytes - taken : 0;
}

/* Whether a pass within that budget is short of the disk. */
static int short_of_disk(const struct swn_predict *p, uint64_t budget_bytes)
{
    double ns = 0;
    for (size_t i = 0; i < p->n; i++)
        ns += swn_delay_of(&p->c, &p->layers[i]).ex * 1e9;
    return swn_plan_short_of_disk(swn_predict_demand(p) - always_there(p), for_weights(p, budget_bytes), ns,
                                  bytes_per_ns(resting_alpha(p)));
}

static struct swn_plan_weight weight_of(const struct swn_predict *p, size_t i, uint64_t budget_bytes, int is_short,
                                        double ns)
{
    struct swn_plan_weight weight = {.bytes = p->layers[i].bytes, .compute_ns = ns};
    const struct swn_predict_more *more = p->more ? &p->more[i] : NULL;
    if (more &&
        (swn_plan_worth_slicing(weight.bytes, budget_bytes) ||
         (is_short && swn_plan_gains_by_slices(weight.bytes, budget_bytes, ns, bytes_per_ns(resting_alpha(p))))))
        weight.unit = more->slice_bytes;
    if (more)
        weight.op_ns = more->own * ns;
    return weight;
}

/* The time of layers that never leave is added to the weight that is read before them; before the first weight, to the
 * last weight of the pass before. */
static size_t make_weights(const struct swn_predict *p, uint64_t budget_bytes, struct swn_plan_weight *weights)
{
    size_t n = 0;
    double first = 0;
    int is_short = short_of_disk(p, budget_bytes);
    for (size_t i = 0; i < p->n; i++) {
        double ns = swn_delay_of(&p->c, &p->layers[i]).ex * 1e9;
        if (p->layers[i].bytes >= SWN_PREDICT_STREAMED)
            weights[n++] = weight_of(p, i, budget_bytes, is_short, ns);
        else if (n)
            weights[n - 1].compute_ns += ns;
        else
            first += ns;
    }
    if (n)
        weights[n - 1].compute_ns += first;
    return n;
}

double swn_predict_read_s(const struct swn_layer *layers, size_t n, double beta)
{
    uint64_t references = 0, reads = 0;
    for (size_t i = 0; i < n; i++) {
        references += layers[i].depth;
        reads += layers[i].bytes >= SWN_PREDICT_STREAMED;
    }
    return reads ? beta * (double)references / (double)reads : beta;
}

uint64_t swn_predict_read_bytes(const struct swn_layer *layers, size_t n)
{
    double sum = 0, weighted = 0;
    for (size_t i = 0; i < n; i++) {
        double bytes = layers[i].bytes >= SWN_PREDICT_STREAMED ? (double)layers[i].bytes : 0;
        sum += bytes;
        weighted += bytes * (bytes < MOST_READ ? bytes : MOST_READ);
    }
    uint64_t bytes = sum > 0 ? (uint64_t)(weighted / sum) : SWN_PREDICT_STREAMED;
    return bytes / PAGE * PAGE;
}

static int predict(const struct swn_predict *p, struct swn_plan_weight *weights, size_t n, uint64_t weight_bytes,
                   double alpha, struct swn_plan *out)
{
    struct swn_disk_model disk = {.bytes_per_ns = bytes_per_ns(alpha),
                                  .read_ns = swn_predict_read_s(p->layers, p->n, p->c.beta) * 1e9,
                                  .wait_ns = p->wait_s * 1e9};
    /* The disk's part of beta is known. The rest is lending: the library lends a weight by one reference, in the
     * program's thread. */
    if (p->read_s > 0) {
        disk.read_ns = p->read_s * 1e9;
        disk.lend_ns = (p->c.beta + p->c.eta) * 1e9;
    }
    return swn_plan_predict(weights, n, weight_bytes, &disk, out);
}

/* The part of a pass's time that is spent computing. */
static double computing(const struct swn_plan *plan)
{
    return plan->latency_ns > plan->compute_ns ? plan->compute_ns / plan->latency_ns : 1;
}

int swn_predict_plan(const struct swn_predict *p, uint64_t budget_bytes, struct swn_plan_weight *weights,
                     struct swn_plan *out)
{
    struct swn_plan_weight *own = weights ? NULL : calloc(p->n + 1, sizeof *own);
    if (!weights && !own)
        return -ENOMEM;
    weights = weights ? weights : own;
    size_t n = make_weights(p, budget_bytes, weights);
    uint64_t weight_bytes = for_weights(p, budget_bytes);
    double resting = resting_alpha(p), slower = p->busy_alpha > resting ? p->busy_alpha - resting : 0;
    int rc = n ? predict(p, weights, n, weight_bytes, resting, out) : -EINVAL;
    double longer = 1;
    int rounds = slower > 0 ? ROUNDS : p->contention > 0;
    for (int round = 0; !rc && out->latency_ns > 0 && round < rounds; round++) {
        /* The disk has all processors while the program waits for it; the plan of the round before says for how long.
         */
        double alpha = resting + slower * computing(out), before = longer;
        double busy = (double)out->streamed_bytes * alpha * 1e9 / out->latency_ns; /* part of the time */
        longer = 1 + p->contention * (busy < 1 ? busy : 1);
        for (size_t i = 0; i < n; i++) {
            weights[i].compute_ns *= longer / before;
            weights[i].op_ns *= longer / before;
        }
        rc = predict(p, weights, n, weight_bytes, alpha, out);
    }
    if (!rc && !out->streamed_bytes && out->latency_ns > p->watching_s * 1e9)
        out->latency_ns -= p->watching_s * 1e9;
    free(own);
    return rc ? rc : (int)n;
}

int swn_predict_curve(const struct swn_predict *p, struct swn_divide_point *curve, size_t points)
{
    uint64_t least = swn_predict_least(p), demand = swn_predict_demand(p);
    if (points < 2)
        return -EINVAL;
    for (size_t i = 0; i < points; i++) {
        struct swn_plan plan;
        uint64_t budget = least + (uint64_t)((double)(demand - least) * (double)i / (double)(points - 1));
        budget = i + 1 == points ? demand : budget;
        int rc = swn_predict_plan(p, budget, NULL, &plan);
        if (rc < 0)
            return rc;
        curve[i] = (struct swn_divide_point){budget, plan.latency_ns / 1e9};
    }
    return 0;
}
