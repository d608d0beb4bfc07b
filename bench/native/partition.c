/* partition.c - how long planning a deep model for a new budget takes.
 *
 *     cmake --build build/release --target bench-partition && build/release/bin/bench-partition [LAYERS] [ETA]
 *
 * Random layers; for budgets from half of the model to a 64th, median and slowest of 21, in milliseconds of processor
 * time: the search for the best partition; looking it up in a table made before ("-": not in it); and the plan that the
 * library makes while the model runs, of what to keep and what to stream.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "profiles/least_squares.h"
#include "scheduler/planner/partition.h"
#include "scheduler/planner/plan.h"
#include "scheduler/planner/partition_table.h"

#define REPEATS 21

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* others may be at work on the machine */
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Median and slowest of what `run` takes. */
struct times {
    double ms[REPEATS], median, most;
};

static void sum_up(struct times *t)
{
    t->median = swn_median(t->ms, REPEATS); /* sorts them */
    t->most = t->ms[REPEATS - 1];
}

static void weights_of(const struct swn_part_model *m, struct swn_plan_weight *weights)
{
    for (size_t i = 0; i < m->layers; i++)
        weights[i] = (struct swn_plan_weight){.bytes = m->bytes[i + 1] - m->bytes[i],
                                              .compute_ns = (m->ex[i + 1] - m->ex[i]) * 1e9};
}

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    struct swn_coefficients c = {1e-9, 5e-6, 2e-11, argc > 2 ? strtod(argv[2], NULL) : 2e-7};
    struct swn_layer *layers = calloc(n, sizeof *layers);
    size_t *first = calloc(n, sizeof *first);
    struct swn_part_model m;
    uint64_t x = 88172645463325252ULL;
    for (size_t i = 0; layers && i < n; i++) {
        x = x * 6364136223846793005ULL + 1442695040888963407ULL;
        layers[i] =
            (struct swn_layer){100000 + (x >> 33) % 2000000, 1 + (x >> 40) % 6, (1 + (x >> 20) % 100) * 1000000, -1};
    }
    if (!layers || !first || swn_partition_model(&m, layers, n, &c))
        return 1;
    struct swn_table *table;
    struct swn_plan_weight *weights = calloc(n, sizeof *weights);
    unsigned char *file;
    size_t file_bytes;
    double begin = now_ms();
    if (!weights || swn_table_make(&table, &m, 0))
        return 1;
    double made = now_ms() - begin;
    if (swn_table_write(table, &m, &file, &file_bytes))
        return 1;
    printf("%zu layers; lookup table: %.0f ms to make, %zu KiB\n", n, made, file_bytes >> 10);
    free(file);
    printf("%8s %8s %21s %6s %21s %21s\n", "budget", "blocks", "search ms", "exact", "lookup ms", "library's plan ms");
    for (double share = 2; share <= 64; share *= 1.2) {
        uint64_t budget = (uint64_t)((double)m.bytes[n] / share);
        struct times search, lookup, plan;
        struct swn_part part, found;
        size_t blocks = 0, looked_up = 0;
        int rc = 0;
        for (int i = 0; i < REPEATS; i++) {
            struct swn_plan made_plan;
            double t0 = now_ms();
            if (swn_partition_for_budget(&m, budget, 0.036, &blocks, first, &part))
                return 1;
            double t1 = now_ms();
            rc = swn_table_for_budget(table, &m, budget, 0.036, &looked_up, first, &found);
            double t2 = now_ms();
            weights_of(&m, weights);
            double t3 = now_ms();
            if (swn_plan_predict(weights, n, budget,
                                 &(struct swn_disk_model){.bytes_per_ns = 1e-9 / c.alpha, .read_ns = 50e3}, &made_plan))
                return 1;
            search.ms[i] = t1 - t0;
            lookup.ms[i] = t2 - t1;
            plan.ms[i] = now_ms() - t3;
        }
        sum_up(&search);
        sum_up(&lookup);
        sum_up(&plan);
        char text[32] = "-";
        if (!rc)
            snprintf(text, sizeof text, "%.3f %.3f", lookup.median, lookup.most);
        printf("1/%-6.1f %8zu %11.3f %9.3f %6s %21s %11.3f %9.3f\n", share, blocks, search.median, search.most,
               part.exact ? "yes" : "no", text, plan.median, plan.most);
    }
    swn_table_free(table);
    free(weights);
    swn_partition_model_free(&m);
    free(layers);
    free(first);
    return 0;
}
