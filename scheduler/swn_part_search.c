/* swn_part_search.c - the best partition, by dynamic programming over pairs of neighbouring boundaries.
 *
 * Let block k be [b, c) and the one before it [a, b). With T when block k begins to compute, and R = T + t_out(a, b)
 * when the disk is free for block k + 1 = [c, d):
 *     T' = max(R + t_in(c, d), T + t_ex(b, c)),    R' = T' + t_out(b, c)
 * T and R are two numbers, and which a was taken matters to both, so one number per (b, c) is not enough. Two relaxed
 * problems need only one, and bound the true cost from below: H lets t_out be nothing (exact where eta is 0), and G
 * counts it in full but lets computing begin too early by as much as any t_out. Going backward, each is filled in
 * constant time per (b, c): for a given c the d that are read while [b, c) computes are a prefix, and both ends of it
 * move one way as b does. Following their choices gives partitions; if the better one costs no more than a bound
 * promises, it is the optimum. Else all partial partitions that might still beat it are extended, block by block, and
 * of those with the same (b, c) only the ones are kept that no other beats in both numbers.
 */
#include <errno.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "swn_partition.h"

#define INFINITE DBL_MAX
/* Of the latency: differences below are rounding. */
#define SAME 1e-12
/* Partial partitions of one length; with more of them near ties are everywhere, and the gain is none. */
#define MOST_LABELS ((size_t)1 << 20)

/* For block k: its first layer b and the layer c behind it. Of each b only those c that fit have a cell. */
struct level {
    size_t b_low, b_high, c_low, c_high; /* inclusive; none when low > high */
    size_t *row;                         /* by b - b_low: (b, c) has cell row + c */
    double *h, *g;                       /* least cost from here, or INFINITE */
};

struct search {
    const struct swn_part_model *m;
    size_t n; /* blocks */
    uint64_t memory;
    double most_out; /* t_out of any block that fits */
    size_t *last;    /* by b: the last c with [b, c) within the memory */
    struct level *levels;
};

static int fits(const struct search *s, size_t b, size_t d)
{
    return s->m->bytes[d] - s->m->bytes[b] <= s->memory;
}

static size_t first_end(const struct level *l, size_t b)
{
    return l->c_low > b + 1 ? l->c_low : b + 1;
}

/* The last c for a block that begins at b; first_end(b) - 1 or less when there is none. */
static size_t last_end(const struct search *s, const struct level *l, size_t b)
{
    return l->c_high < s->last[b] ? l->c_high : s->last[b];
}

static size_t cell(const struct level *l, size_t b, size_t c)
{
    return l->row[b - l->b_low] + c;
}

/* The most that j blocks in a row can hold: every second one full. */
static uint64_t most_bytes(const struct search *s, size_t j)
{
    uint64_t bytes;
    return __builtin_mul_overflow((uint64_t)((j + 1) / 2), s->memory, &bytes) ? UINT64_MAX : bytes;
}

/* Where block k (from 0) may end: what is before and behind has to fit its blocks. */
static void window(const struct search *s, size_t k, size_t *low, size_t *high)
{
    const uint64_t *bytes = s->m->bytes;
    size_t layers = s->m->layers, behind = s->n - 1 - k;
    *low = k + 1;
    *high = layers - behind;
    if (!behind)
        *low = layers;
    uint64_t before_most = most_bytes(s, k + 1), behind_most = most_bytes(s, behind);
    size_t a = *low, b = *high;
    while (a < b) { /* the first c with little enough behind it */
        size_t middle = a + (b - a) / 2;
        if (bytes[layers] - bytes[middle] <= behind_most)
            b = middle;
        else
            a = middle + 1;
    }
    *low = a;
    a = *low;
    b = *high + 1;
    while (a < b) { /* behind the last c with little enough before it */
        size_t middle = a + (b - a) / 2;
        if (bytes[middle] <= before_most)
            a = middle + 1;
        else
            b = middle;
    }
    *high = a - 1;
}

static int make_cells(const struct search *s, struct level *l, int two)
{
    size_t cells = 0;
    l->row = malloc((l->b_high - l->b_low + 1) * sizeof *l->row);
    if (!l->row)
        return -ENOMEM;
    for (size_t b = l->b_low; b <= l->b_high; b++) {
        size_t from = first_end(l, b), to = last_end(s, l, b);
        l->row[b - l->b_low] = cells - from; /* unsigned: comes out right when c is added */
        cells += to >= from ? to - from + 1 : 0;
    }
    l->h = malloc((cells + 1) * sizeof *l->h);
    l->g = two ? malloc((cells + 1) * sizeof *l->g) : l->h;
    return l->h && l->g ? 0 : -ENOMEM;
}

static int make_levels(struct search *s)
{
    int two = s->m->out[s->m->layers] > 0;
    s->levels = calloc(s->n, sizeof *s->levels);
    if (!s->levels)
        return -ENOMEM;
    for (size_t k = 0; k < s->n; k++) {
        struct level *l = &s->levels[k];
        window(s, k, &l->c_low, &l->c_high);
        l->b_low = k ? s->levels[k - 1].c_low : 0;
        l->b_high = k ? s->levels[k - 1].c_high : 0;
        if (l->c_low > l->c_high)
            return -ENOSPC;
        int rc = make_cells(s, l, two);
        if (rc)
            return rc;
    }
    return 0;
}

static void free_levels(struct search *s)
{
    for (size_t k = 0; s->levels && k < s->n; k++) {
        struct level *l = &s->levels[k];
        if (l->g != l->h)
            free(l->g);
        free(l->h);
        free(l->row);
    }
    free(s->levels);
}

/* One relaxed problem: which of the two. */
struct relaxed {
    int counts_out;
    double early; /* how much too early computing may begin */
};

static double *costs(const struct level *l, const struct relaxed *x)
{
    return x->counts_out ? l->g : l->h;
}

static void last_level(const struct search *s, const struct relaxed *x)
{
    const struct swn_part_model *m = s->m;
    struct level *l = &s->levels[s->n - 1];
    for (size_t b = l->b_low; b <= l->b_high && b < m->layers; b++)
        if (last_end(s, l, b) == m->layers)
            costs(l, x)[cell(l, b, m->layers)] = m->ex[m->layers] - m->ex[b] - x->early;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* All b for one c. As b grows there is room for more d, and [b, c) computes for less time: the d whose reading is not
 * hidden by it become more at both ends, so their minimum is kept up as they come; for the hidden ones, from the first
 * d on, the minimum of every prefix is made once. */
static void sweep(const struct search *s, const struct relaxed *x, size_t k, size_t c, double *prefix)
{
    const struct swn_part_model *m = s->m;
    struct level *l = &s->levels[k], *next = &s->levels[k + 1];
    size_t low = first_end(next, c), high = last_end(s, next, c), fit = low; /* d from low to fit - 1 have room */
    const double *row = costs(next, x) + cell(next, c, low);                 /* (c, d) by d - low */
    size_t b = l->b_low;
    while (b < c && !fits(s, b, c))
        b++;
    double least = INFINITE, open = INFINITE;
    for (size_t d = low; d <= high; d++)
        prefix[d - low] = least = smaller(least, row[d - low]);
    size_t hidden = high + 1 > low ? high + 1 : low; /* d below it are hidden; falls as b grows */
    size_t open_low = low, open_high = low;          /* those that are not, and have room */
    for (; b <= l->b_high && b < c; b++) {
        double computing = m->ex[c] - m->ex[b] - x->early, best = INFINITE;
        while (fit <= high && fits(s, b, fit))
            fit++;
        while (hidden > low && m->in[hidden - 1] - m->in[c] > computing)
            hidden--;
        size_t from = hidden < fit ? hidden : fit;
        if (open_low == open_high) /* nothing yet */
            open_low = open_high = from;
        while (open_low > from) {
            open_low--;
            open = smaller(open, row[open_low - low] + (m->in[open_low] - m->in[c]));
        }
        for (; open_high < fit; open_high++)
            open = smaller(open, row[open_high - low] + (m->in[open_high] - m->in[c]));
        if (from > low)
            best = prefix[from - 1 - low] + computing;
        best = smaller(best, open) + (x->counts_out ? m->out[c] - m->out[b] : 0);
        costs(l, x)[cell(l, b, c)] = best < INFINITE ? best : INFINITE;
    }
}

static void relax(const struct search *s, const struct relaxed *x, double *prefix)
{
    last_level(s, x);
    for (size_t k = s->n - 1; k-- > 0;)
        for (size_t c = s->levels[k].c_low; c <= s->levels[k].c_high; c++)
            sweep(s, x, k, c, prefix);
}

/* The d that the relaxed problem takes after (b, c). */
static size_t next_end(const struct search *s, const struct relaxed *x, size_t k, size_t b, size_t c)
{
    const struct swn_part_model *m = s->m;
    const struct level *next = &s->levels[k + 1];
    double computing = m->ex[c] - m->ex[b] - x->early, best = INFINITE;
    size_t from = first_end(next, c), choice = from;
    for (size_t d = from; d <= last_end(s, next, c) && fits(s, b, d); d++) {
        double read = m->in[d] - m->in[c];
        double cost = costs(next, x)[cell(next, c, d)] + (read > computing ? read : computing);
        if (cost < best) {
            best = cost;
            choice = d;
        }
    }
    return choice;
}

/* The partition that the relaxed problem chooses. Returns the bound that it gives; INFINITE: there is none. */
static double follow(const struct search *s, const struct relaxed *x, size_t *first)
{
    const struct level *l = &s->levels[0];
    double best = INFINITE;
    size_t b = 0, c = 0;
    for (size_t i = first_end(l, 0); i <= last_end(s, l, 0); i++) {
        double cost = costs(l, x)[cell(l, 0, i)] + s->m->in[i];
        if (cost < best) {
            best = cost;
            c = i;
        }
    }
    for (size_t k = 0; k < s->n && best < INFINITE; k++) {
        first[k] = b;
        size_t d = k + 1 < s->n ? next_end(s, x, k, b, c) : 0;
        b = c;
        c = d;
    }
    return best;
}

/* A partition of the first k blocks. */
struct label {
    double t, r;
    uint32_t b, c;
    uint32_t from; /* its label one block before */
};

struct list {
    struct label *at;
    size_t n, room;
};

static int push(struct list *list, const struct label *label)
{
    if (list->n == MOST_LABELS)
        return -E2BIG;
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

/* Of labels with the same (b, c), in ascending t, those stay whose r is below all before them. */
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

/* Whether a label in block k may end below `limit`. */
static int promising(const struct search *s, size_t k, const struct label *x, double limit)
{
    const struct level *l = &s->levels[k];
    size_t at = cell(l, x->b, x->c);
    return x->t + l->h[at] < limit && x->r + l->g[at] < limit;
}

static int extend(const struct search *s, size_t k, const struct list *from, struct list *to, double limit)
{
    const struct swn_part_model *m = s->m;
    const struct level *next = &s->levels[k + 1];
    int rc = 0;
    for (size_t i = 0; !rc && i < from->n; i++) {
        const struct label *x = &from->at[i];
        size_t last = last_end(s, next, x->c);
        for (size_t d = first_end(next, x->c); !rc && d <= last && fits(s, x->b, d); d++) {
            double read = x->r + m->in[d] - m->in[x->c], computed = x->t + m->ex[x->c] - m->ex[x->b];
            struct label y = {.b = x->c, .c = (uint32_t)d, .from = (uint32_t)i, .t = read > computed ? read : computed};
            y.r = y.t + m->out[x->c] - m->out[x->b];
            if (promising(s, k + 1, &y, limit))
                rc = push(to, &y);
        }
    }
    if (!rc)
        keep_best(to);
    return rc;
}

/* Looks for a partition below `limit`. 1: first[] is the best one; 0: there is none; -errno. */
static int search_exactly(const struct search *s, double limit, size_t *first)
{
    const struct swn_part_model *m = s->m;
    struct list *lists = calloc(s->n, sizeof *lists);
    int rc = lists ? 0 : -ENOMEM;
    for (size_t c = first_end(&s->levels[0], 0); !rc && c <= last_end(s, &s->levels[0], 0); c++) {
        struct label x = {.t = m->in[c], .r = m->in[c], .b = 0, .c = (uint32_t)c};
        if (promising(s, 0, &x, limit))
            rc = push(&lists[0], &x);
    }
    for (size_t k = 0; !rc && k + 1 < s->n; k++)
        rc = extend(s, k, &lists[k], &lists[k + 1], limit);
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

/* The ends of the largest blocks, and the most that letting go of one takes. */
static int prepare(struct search *s)
{
    size_t c = 0, layers = s->m->layers;
    s->last = malloc((layers + 1) * sizeof *s->last);
    if (!s->last)
        return -ENOMEM;
    for (size_t b = 0; b <= layers; b++) {
        c = c < b ? b : c;
        while (c < layers && fits(s, b, c + 1))
            c++;
        s->last[b] = c;
        double out = s->m->out[c] - s->m->out[b];
        s->most_out = out > s->most_out ? out : s->most_out;
    }
    return 0;
}

static int choose(struct search *s, size_t *first, struct swn_part *out)
{
    const struct relaxed h = {0, 0}, g = {1, s->most_out};
    double *prefix = malloc((s->m->layers + 1) * sizeof *prefix);
    size_t *other = malloc(s->n * sizeof *other);
    int rc = prefix && other ? 0 : -ENOMEM;
    if (!rc) {
        relax(s, &h, prefix);
        double bound = follow(s, &h, first);
        if (bound >= INFINITE)
            rc = -ENOSPC;
        else
            *out = swn_partition_judge(s->m, first, s->n);
        if (!rc && s->most_out > 0) {
            relax(s, &g, prefix);
            double second = follow(s, &g, other);
            struct swn_part part = swn_partition_judge(s->m, other, s->n);
            bound = second > bound ? second : bound;
            if (part.latency_s < out->latency_s) {
                *out = part;
                memcpy(first, other, s->n * sizeof *first);
            }
        }
        double limit = rc ? 0 : out->latency_s * (1 - SAME);
        if (!rc && bound < limit) {
            rc = search_exactly(s, limit, first);
            if (rc == 1)
                *out = swn_partition_judge(s->m, first, s->n);
            out->exact = rc != -E2BIG;
            rc = rc == -E2BIG || rc > 0 ? 0 : rc;
        }
    }
    free(other);
    free(prefix);
    return rc;
}

int swn_partition_best(const struct swn_part_model *m, size_t blocks, uint64_t memory_bytes, size_t *first,
                       struct swn_part *out)
{
    struct search s = {.m = m, .n = blocks, .memory = memory_bytes};
    if (!blocks || blocks > m->layers)
        return -EINVAL;
    int rc = prepare(&s);
    if (!rc)
        rc = make_levels(&s);
    if (!rc)
        rc = choose(&s, first, out);
    free_levels(&s);
    free(s.last);
    return rc;
}
