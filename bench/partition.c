/* partition.c - how long planning a deep model for a new budget takes.
 *
 *     cmake --build build/release --target bench-partition && build/release/bin/bench-partition [LAYERS] [ETA]
 *
 * Random layers; for budgets from half of the model to a 64th: the number of blocks and the search, median and slowest
 * of 21, in milliseconds.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "swn_fit.h"
#include "swn_partition.h"

#define REPEATS 21

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
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
    printf("%8s %8s %10s %10s %6s\n", "budget", "blocks", "median ms", "most ms", "exact");
    for (double share = 2; share <= 64; share *= 1.2) {
        uint64_t budget = (uint64_t)((double)m.bytes[n] / share);
        double search[REPEATS];
        struct swn_part part;
        size_t blocks = 0;
        for (int i = 0; i < REPEATS; i++) {
            double begin = now_ms();
            if (swn_partition_for_budget(&m, budget, 0.036, &blocks, first, &part))
                return 1;
            search[i] = now_ms() - begin;
        }
        double median = swn_median(search, REPEATS); /* sorts them */
        printf("1/%-6.1f %8zu %10.3f %10.3f %6s\n", share, blocks, median, search[REPEATS - 1],
               part.exact ? "yes" : "no");
    }
    swn_partition_model_free(&m);
    free(layers);
    free(first);
    return 0;
}
