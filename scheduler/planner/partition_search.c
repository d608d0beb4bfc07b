/* scheduler/planner/partition_search.c - the best partition. The relaxed problems of
 * scheduler/planner/partition_bounds.c give partitions, and a lower bound of every partition's cost. If the better of
 * their partitions costs no more than the bound, it is the optimum. Otherwise the search extends partial partitions,
 * block by block, as long as they might beat the best one known. Of those with the same (b, c) it keeps only the ones
 * that no other beats in both T and R. It first extends only some of each length, those with the least bounds, to find
 * better ones soon; then more and more, until none is left out that might be better.
 *
 * A deep model is first cut at every tenth layer or so: that is fast, and with a nearly optimal partition known half of
 * the cells are left out. Of a model with too many layers for that, groups of layers are searched, half as many each
 * time.
 */
#include "scheduler/planner/partition_search.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/planner/partition_groups.h"

/* Part of the latency: smaller differences are rounding. */
#define SAME 1e-12
/* Partial partitions of one length that are kept: the first number, the growth per round, and the last number. With
 * more, there are near ties everywhere, and nothing is gained. */
#define FEW_LABELS ((size_t)64)
#define MORE_LABELS 8
#define MOST_LABELS ((size_t)1 << 12)
/* So many more of the next length are thinned out before there are more of them. */
#define MOST_PUSHED ((size_t)1 << 20)
/* Part of the latency: a gap that few labels may close. */
#define SMALL_GAP 2e-3
/* A model with more layers is made coarser first, to COARSE parts. */
#define DEEP 256
#define COARSE 100

/* A partition of the first k blocks. */
struct label {
    double t, r, bound;
    uint32_t b, c;
    uint32_t from; /* index of its label one block before */
};

struct list {
    struct label *at;
    size_t n, room;
};

static int push(struct list *list, const struct label *label)
{
    if (list->n == list->room) {
        size_t room = list->room ? list->room * 2 : 256;
        struct label *grown = realloc(list->at, room * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        list->at = grown;
        list->room = room;
    }
    list->at[list->n++] = *label;
    return 0;
}

static int by_state(const void *a, const void *b)
{
    const struct label *x = a, *y = b;
    if (x->b != y->b)
        return x->b < y->b ? -1 : 1;
    if (x->c != y->c)
        return x->c < y->c ? -1 : 1;
    if (x->t != y->t)
        return x->t < y->t ? -1 : 1;
    return (x->r > y->r) - (x->r < y->r);
}

/* Of labels with the same (b, c), in ascending t, keeps those whose r is below that of all before them. */
static void keep_best(struct list *list)
{
    size_t kept = 0;
    if (!list->n)
        return;
    qsort(list->at, list->n, sizeof *list->at, by_state);
    for (size_t i = 0; i < list->n; i++) {
        const struct label *last = kept ? &list->at[kept - 1] : NULL, *it = &list->at[i];
        if (!last || last->b != it->b || last->c != it->c || it->r < last->r)
            list->at[kept++] = *it;
    }
    list->n = kept;
}

static int by_bound(const void *a, const void *b)
{
    const struct label *x = a, *y = b;
    return (x->bound > y->bound) - (x->bound < y->bound);
}

/* Computes the label's lower bound in block k. Returns whether it is below `limit`. */
static int promising(const struct search *s, size_t k, struct label *x, double limit)
{
    const struct level *l = &s->levels[k];
    size_t at = cell(l, x->b, x->c);
    double by_t = l->h ? x->t + l->h[at] : 0, by_r = l->g ? x->r + l->g[at] : 0;
    x->bound = by_t > by_r ? by_t : by_r;
    return x->bound < limit;
}

/* Keeps at most `most` labels; *left_out becomes the least bound of the dropped ones, if that is less. */
static void thin_out(struct list *list, size_t most, double *left_out)
{
    keep_best(list);
    if (list->n <= most)
        return;
    qsort(list->at, list->n, sizeof *list->at, by_bound);
    *left_out = list->at[most].bound < *left_out ? list->at[most].bound : *left_out;
    list->n = most;
}

static int extend(const struct search *s, size_t k, const struct list *from, struct list *to, double limit, size_t most,
                  double *left_out)
{
    const struct swn_part_model *m = s->m;
    const struct level *next = &s->levels[k + 1];
    int rc = 0;
    for (size_t i = 0; !rc && i < from->n; i++) {
        const struct label *x = &from->at[i];
        size_t last = last_end(s, next, x->c);
        double computed = x->t + m->ex[x->c] - m->ex[x->b];
        double out = k + 2 < s->n ? m->out[x->c] - m->out[x->b] : 0; /* nothing waits for the last two */
        last = s->fits_last[x->b] < last ? s->fits_last[x->b] : last;
        for (size_t d = first_end(s, next, x->c); !rc && d <= last; d++) {
            double read = x->r + m->in[d] - m->in[x->c];
            struct label y = {.b = x->c, .c = (uint32_t)d, .from = (uint32_t)i, .t = read > computed ? read : computed};
            y.r = y.t + out;
            if (promising(s, k + 1, &y, limit))
                rc = push(to, &y);
        }
        if (to->n > MOST_PUSHED)
            thin_out(to, most, left_out);
    }
    return rc;
}

/* Looks for a partition below `limit` with at most that number of labels. 1: first[] is the best one found; 0: none;
 * -errno. */
static int search_labels(const struct search *s, double limit, size_t most, size_t *first, double *left_out)
{
    const struct swn_part_model *m = s->m;
    struct list *lists = calloc(s->n, sizeof *lists);
    int rc = lists ? 0 : -ENOMEM;
    *left_out = INFINITE;
    for (size_t c = first_end(s, &s->levels[0], 0); !rc && c <= last_end(s, &s->levels[0], 0); c++) {
        struct label x = {.t = m->in[c], .r = m->in[c], .b = 0, .c = (uint32_t)c};
        if (promising(s, 0, &x, limit))
            rc = push(&lists[0], &x);
    }
    for (size_t k = 0; !rc && k + 1 < s->n; k++) {
        thin_out(&lists[k], most, left_out);
        rc = extend(s, k, &lists[k], &lists[k + 1], limit, most, left_out);
    }
    const struct list *last = lists ? &lists[s->n - 1] : NULL;
    double best = limit;
    size_t at = 0;
    for (size_t i = 0; !rc && i < last->n; i++) {
        double end = last->at[i].t + m->ex[m->layers] - m->ex[last->at[i].b];
        if (end < best) {
            best = end;
            at = i;
        }
    }
    if (!rc && best < limit) {
        rc = 1;
        for (size_t k = s->n; k-- > 0; at = lists[k].at[at].from)
            first[k] = lists[k].at[at].b;
    }
    for (size_t k = 0; lists && k < s->n; k++)
        free(lists[k].at);
    free(lists);
    return rc;
}

static double below(const struct swn_part *part)
{
    return part->latency_s * (1 - SAME);
}

/* Widens the search until no label was left out that might be better, or until `most` labels did not suffice: then
 * out->exact is 0. */
static int search_wider(const struct search *s, size_t most, size_t *first, struct swn_part *out)
{
    double left_out = 0;
    int rc = 0;
    for (size_t labels = FEW_LABELS; rc >= 0 && left_out < below(out) && labels <= most; labels *= MORE_LABELS) {
        rc = search_labels(s, below(out), labels, first, &left_out);
        if (rc == 1)
            *out = swn_partition_judge(s->m, first, s->n);
    }
    out->exact = left_out >= below(out);
    return rc < 0 ? rc : 0;
}

/* The bound of a relaxed problem, and its partition if that is better than the best one known. */
static int relax(struct search *s, int counts_out, size_t *first, struct swn_part *out, double *bound)
{
    size_t *other = malloc(s->n * sizeof *other);
    int rc = other ? search_relax(s, counts_out, other, bound) : -ENOMEM;
    if (!rc && *bound < INFINITE) {
        struct swn_part part = swn_partition_judge(s->m, other, s->n);
        if (part.latency_s < out->latency_s) {
            *out = part;
            memcpy(first, other, s->n * sizeof *first);
        }
    }
    free(other);
    return rc;
}

/* first[] and out: the best partition known, or an INFINITE latency. */
static int choose(struct search *s, size_t most, size_t *first, struct swn_part *out)
{
    const struct swn_part_model *m = s->m;
    double with_out = m->out[m->layers], bound;
    int counts_out =
        with_out > 0 && m->in[m->layers] + with_out > m->ex[m->layers]; /* this bound is mostly the tighter one */
    int rc = relax(s, counts_out, first, out, &bound);
    out->exact = 1;
    if (rc || bound >= INFINITE) /* no cell can hold a better partition */
        return rc || out->latency_s < INFINITE ? rc : -ENOSPC;
    if (bound < below(out) && out->latency_s - bound < SMALL_GAP * out->latency_s) {
        rc = search_wider(s, FEW_LABELS, first, out);
        if (rc || out->exact)
            return rc;
    }
    if (bound >= below(out) || with_out <= 0)
        return 0;
    rc = relax(s, !counts_out, first, out, &bound);
    out->exact = 1;
    return rc || bound >= below(out) ? rc : search_wider(s, most, first, out);
}

/* The best partition, or a good one with few labels. `known`: first[] and out hold one already. */
static int find(const struct swn_part_model *m, size_t blocks, uint64_t memory_bytes, size_t most, size_t *first,
                struct swn_part *out, int known)
{
    struct search s = {.m = m, .n = blocks, .memory = memory_bytes};
    if (!known)
        out->latency_s = INFINITE;
    int rc = search_open(&s, out->latency_s);
    if (!rc)
        rc = choose(&s, most, first, out);
    search_close(&s);
    return rc;
}

/* The model with the layers from at[i] to at[i + 1] as one, for i below n. 0 or -ENOMEM. */
static int make_coarse(struct swn_part_model *coarse, const struct swn_part_model *m, const size_t *at, size_t n)
{
    *coarse = (struct swn_part_model){.layers = n, .bytes = malloc((n + 1) * sizeof *m->bytes)};
    coarse->in = malloc(3 * (n + 1) * sizeof *m->in);
    if (!coarse->bytes || !coarse->in)
        return -ENOMEM;
    coarse->ex = coarse->in + n + 1;
    coarse->out = coarse->ex + n + 1;
    for (size_t i = 0; i <= n; i++) {
        coarse->bytes[i] = m->bytes[at[i]];
        coarse->in[i] = m->in[at[i]];
        coarse->ex[i] = m->ex[at[i]];
        coarse->out[i] = m->out[at[i]];
    }
    return 0;
}

/* A good partition of the model made coarser, with COARSE parts of several layers each. -ENOSPC may only mean that the
 * parts are too large. */
static int find_coarse(const struct swn_part_model *m, size_t blocks, uint64_t memory_bytes, size_t *first,
                       struct swn_part *out)
{
    size_t each = m->layers / COARSE, n = (m->layers + each - 1) / each, at[2 * COARSE + 1];
    struct swn_part_model coarse;
    if (blocks > n)
        return -ENOSPC;
    for (size_t i = 0; i <= n; i++)
        at[i] = i < n ? i * each : m->layers;
    int rc = make_coarse(&coarse, m, at, n);
    if (!rc)
        rc = find(&coarse, blocks, memory_bytes, FEW_LABELS, first, out, 0);
    for (size_t k = 0; !rc && k < blocks; k++)
        first[k] = at[first[k]];
    swn_partition_model_free(&coarse);
    return rc;
}

static int find_best(const struct swn_part_model *m, size_t blocks, uint64_t memory_bytes, size_t *first,
                     struct swn_part *out)
{
    int rc = m->layers >= DEEP ? find_coarse(m, blocks, memory_bytes, first, out) : -ENOSPC;
    return rc && rc != -ENOSPC ? rc : find(m, blocks, memory_bytes, MOST_LABELS, first, out, !rc);
}

/* As find_best, of at most `most` + 1 groups of layers. */
static int find_groups(const struct swn_part_model *m, size_t blocks, uint64_t memory_bytes, size_t most, size_t *first,
                       struct swn_part *out)
{
    size_t *at = malloc((most + 2) * sizeof *at), n = at ? swn_partition_groups(m->bytes, m->layers, most, at) : 0;
    struct swn_part_model coarse = {0};
    int rc = !at ? -ENOMEM : blocks > n ? -ENOSPC : make_coarse(&coarse, m, at, n);
    if (!rc)
        rc = find_best(&coarse, blocks, memory_bytes, first, out);
    for (size_t k = 0; !rc && k < blocks; k++)
        first[k] = at[first[k]];
    out->exact = 0;
    swn_partition_model_free(&coarse);
    free(at);
    return rc;
}

int swn_partition_best(const struct swn_part_model *m, size_t blocks, uint64_t memory_bytes, size_t *first,
                       struct swn_part *out)
{
    if (!blocks || blocks > m->layers)
        return -EINVAL;
    int rc = find_best(m, blocks, memory_bytes, first, out);
    for (size_t most = m->layers / 2; rc == -E2BIG && most; most /= 2)
        rc = find_groups(m, blocks, memory_bytes, most, first, out);
    return rc;
}
