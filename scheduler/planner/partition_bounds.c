/* scheduler/planner/partition_bounds.c - bounds of the best partition, by dynamic programming over pairs of
 * neighbouring boundaries.
 *
 * Let block k be [b, c) and the one before it [a, b). Block k begins to compute at T, and the disk is free for block k
 * + 1 = [c, d) at R = T + t_out(a, b):
 *     T' = max(R + t_in(c, d), T + t_ex(b, c)),    R' = T' + t_out(b, c)
 * Both T and R depend on a, so one number per (b, c) is not enough. Two relaxed problems need only one number, and
 * bound the true cost from below. H counts from T, with the least possible t_out(a, b) (exact where eta is 0). G counts
 * from R, with each t_out in full, and assumes the earliest T, that of the largest [a, b) that fits beside [b, c). Both
 * are filled backward in constant time per (b, c): for a given c, the ends d that are read while [b, c) computes are a
 * prefix of all d, and both of its ends move in one direction as b does.
 */
#include "scheduler/planner/partition_search.h"

#include <errno.h>
#include <stdlib.h>

/* 256 MiB for both relaxed problems, and half a second. */
#define MOST_CELLS ((size_t)1 << 24)

/* The most bytes that j blocks in a row can hold: every second block is full. */
static uint64_t most_bytes(const struct search *s, size_t j)
{
    uint64_t bytes;
    return __builtin_mul_overflow((uint64_t)((j + 1) / 2), s->memory, &bytes) ? UINT64_MAX : bytes;
}

/* Where block k (from 0) may end: the layers before and after must fit the other blocks. */
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
    while (a < b) { /* the first c with few enough bytes behind it */
        size_t middle = a + (b - a) / 2;
        if (bytes[layers] - bytes[middle] <= behind_most)
            b = middle;
        else
            a = middle + 1;
    }
    *low = a;
    a = *low;
    b = *high + 1;
    while (a < b) { /* behind the last c with few enough bytes before it */
        size_t middle = a + (b - a) / 2;
        if (bytes[middle] <= before_most)
            a = middle + 1;
        else
            b = middle;
    }
    *high = a - 1;
}

/* *cells: how many there may still be. */
static int make_cells(const struct search *s, struct level *l, size_t *cells)
{
    size_t rows = l->b_high - l->b_low + 1;
    if (rows > *cells)
        return -E2BIG;
    *cells -= rows;
    l->row = malloc(rows * sizeof *l->row);
    if (!l->row)
        return -ENOMEM;
    for (size_t b = l->b_low; b <= l->b_high; b++) {
        size_t from = first_end(s, l, b), to = last_end(s, l, b);
        l->row[b - l->b_low] = l->cells - from; /* unsigned: wraps, and is right once c is added */
        l->cells += to >= from ? to - from + 1 : 0;
        if (l->cells > *cells)
            return -E2BIG;
    }
    *cells -= l->cells;
    return 0;
}

static int make_levels(struct search *s)
{
    size_t cells = MOST_CELLS;
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
        int rc = make_cells(s, l, &cells);
        if (rc)
            return rc;
    }
    return 0;
}

/* Finds the ends of blocks that fit the memory and can end in time. Before [b, c) computes, c layers are read and b are
 * computed; after that, the layers from b are computed and those from c are read. */
static void find_ends(struct search *s, double most_s)
{
    const struct swn_part_model *m = s->m;
    size_t layers = m->layers, low = 0, high = 0, first = 0, last = 0;
    for (size_t b = 0; b <= layers; b++) {
        while (last < layers && m->bytes[last + 1] - m->bytes[b] <= s->memory)
            last++;
        s->fits_last[b] = last = last > b ? last : b;
        while (m->bytes[b] - m->bytes[first] > s->memory)
            first++;
        s->fits_first[b] = first;
        while (low < layers && m->ex[b] + (m->in[layers] - m->in[low]) > most_s)
            low++;
        s->end_low[b] = low;
        while (high < layers && m->in[high + 1] + (m->ex[layers] - m->ex[b]) <= most_s)
            high++;
        s->end_high[b] = high < last ? high : last;
    }
}

int search_open(struct search *s, double most_s)
{
    size_t each = s->m->layers + 1;
    s->fits_first = malloc(4 * each * sizeof *s->fits_first);
    if (!s->fits_first)
        return -ENOMEM;
    s->fits_last = s->fits_first + each;
    s->end_low = s->fits_last + each;
    s->end_high = s->end_low + each;
    find_ends(s, most_s);
    return make_levels(s);
}

void search_close(struct search *s)
{
    for (size_t k = 0; s->levels && k < s->n; k++) {
        struct level *l = &s->levels[k];
        free(l->g);
        free(l->h);
        free(l->row);
    }
    free(s->levels);
    free(s->fits_first);
}

static double *costs(const struct level *l, int counts_out)
{
    return counts_out ? l->g : l->h;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* t_out of the block before [b, c): G needs the largest possible value, H the least. */
static double out_before(const struct search *s, int counts_out, size_t k, size_t b, size_t c)
{
    if (!k)
        return 0;
    size_t low = s->levels[k - 1].b_low, high = s->levels[k - 1].b_high, a = high < b - 1 ? high : b - 1;
    if (counts_out)
        a = s->fits_first[c] > low ? s->fits_first[c] : low;
    return s->m->out[b] - s->m->out[a];
}

/* The t_out that G counts for block k (none for the last two blocks, as nothing waits for their end), and that H counts
 * for the block before. */
static double out_counted(const struct search *s, int counts_out, size_t k, size_t b, size_t c, double before)
{
    if (!counts_out)
        return before;
    return k + 2 < s->n ? s->m->out[c] - s->m->out[b] : 0;
}

static void last_level(const struct search *s, int counts_out)
{
    const struct swn_part_model *m = s->m;
    struct level *l = &s->levels[s->n - 1];
    for (size_t b = l->b_low; b <= l->b_high && b < m->layers; b++)
        if (first_end(s, l, b) <= m->layers && last_end(s, l, b) == m->layers)
            costs(l, counts_out)[cell(l, b, m->layers)] = m->ex[m->layers] - m->ex[b];
}

/* All b for one c. As b grows, more d have room, and [b, c) computes for less time. The d whose reading is not hidden
 * by that computing grow at both ends, so a running minimum over them is kept; for the hidden ones, from the first d
 * on, the minimum of every prefix is computed once. (Where the least t_out falls for a moment, some d count as not
 * hidden although they are hidden again: that counts less for them, and the result remains a bound.) */
static void sweep(const struct search *s, int counts_out, size_t k, size_t c, double *prefix)
{
    const struct swn_part_model *m = s->m;
    struct level *l = &s->levels[k], *next = &s->levels[k + 1];
    size_t low = first_end(s, next, c), high = last_end(s, next, c);
    const double *row = costs(next, counts_out) + cell(next, c, low); /* (c, d) by d - low */
    double *to = costs(l, counts_out);
    size_t b = l->b_low > s->fits_first[c] ? l->b_low : s->fits_first[c];
    while (b < c && s->end_high[b] < c)
        b++;
    double least = INFINITE, open = INFINITE;
    for (size_t d = low; d <= high; d++)
        prefix[d - low] = least = smaller(least, row[d - low]);
    size_t hidden = high + 1 > low ? high + 1 : low; /* smaller d are hidden; falls as b grows */
    size_t open_low = low, open_high = low;          /* the d that are not hidden and have room */
    for (; b <= l->b_high && b < c && s->end_low[b] <= c; b++) {
        double before = out_before(s, counts_out, k, b, c), computing = m->ex[c] - m->ex[b] - before, best = INFINITE;
        size_t fit = s->fits_last[b] < high ? s->fits_last[b] + 1 : high + 1; /* d from low to fit - 1 have room */
        fit = fit > low ? fit : low;
        while (hidden > low && m->in[hidden - 1] - m->in[c] > computing)
            hidden--;
        size_t from = hidden < fit ? hidden : fit;
        if (open_low == open_high) /* empty so far */
            open_low = open_high = from;
        while (open_low > from) {
            open_low--;
            open = smaller(open, row[open_low - low] + (m->in[open_low] - m->in[c]));
        }
        for (; open_high < fit; open_high++)
            open = smaller(open, row[open_high - low] + (m->in[open_high] - m->in[c]));
        if (from > low)
            best = prefix[from - 1 - low] + computing;
        best = smaller(best, open) + out_counted(s, counts_out, k, b, c, before);
        to[cell(l, b, c)] = best < INFINITE ? best : INFINITE;
    }
}

/* The d that the relaxed problem takes after (b, c). */
static size_t next_end(const struct search *s, int counts_out, size_t k, size_t b, size_t c)
{
    const struct swn_part_model *m = s->m;
    const struct level *next = &s->levels[k + 1];
    double computing = m->ex[c] - m->ex[b] - out_before(s, counts_out, k, b, c), best = INFINITE;
    size_t from = first_end(s, next, c), choice = from;
    for (size_t d = from; d <= last_end(s, next, c) && d <= s->fits_last[b]; d++) {
        double read = m->in[d] - m->in[c];
        double cost = costs(next, counts_out)[cell(next, c, d)] + (read > computing ? read : computing);
        if (cost < best) {
            best = cost;
            choice = d;
        }
    }
    return choice;
}

static double follow(const struct search *s, int counts_out, size_t *first)
{
    const struct level *l = &s->levels[0];
    double best = INFINITE;
    size_t b = 0, c = 0;
    for (size_t i = first_end(s, l, 0); i <= last_end(s, l, 0); i++) {
        double cost = costs(l, counts_out)[cell(l, 0, i)] + s->m->in[i];
        if (cost < best) {
            best = cost;
            c = i;
        }
    }
    for (size_t k = 0; k < s->n && best < INFINITE; k++) {
        first[k] = b;
        size_t d = k + 1 < s->n ? next_end(s, counts_out, k, b, c) : 0;
        b = c;
        c = d;
    }
    return best;
}

int search_relax(struct search *s, int counts_out, size_t *first, double *bound)
{
    double *prefix = malloc((s->m->layers + 1) * sizeof *prefix);
    int rc = prefix ? 0 : -ENOMEM;
    for (size_t k = 0; !rc && k < s->n; k++) {
        struct level *l = &s->levels[k];
        double **cells = counts_out ? &l->g : &l->h;
        *cells = malloc((l->cells + 1) * sizeof **cells);
        rc = *cells ? 0 : -ENOMEM;
    }
    if (!rc) {
        last_level(s, counts_out);
        for (size_t k = s->n - 1; k-- > 0;)
            for (size_t c = s->levels[k].c_low; c <= s->levels[k].c_high; c++)
                sweep(s, counts_out, k, c, prefix);
        *bound = follow(s, counts_out, first);
    }
    free(prefix);
    return rc;
}
