/* scheduler/planner/block_pipeline.c - see block_pipeline.h. */
#include "scheduler/planner/block_pipeline.h"

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* Blocks k - m, k - m + 1 ... are still in memory, so only the last m ends of computing are needed. */
double swn_pass_latency(const struct swn_delay *blocks, size_t n, size_t m, double *done)
{
    enum { MOST = 64 };
    double ring[MOST], load = 0, end = 0;
    m = m < 1 ? 1 : m > MOST ? MOST : m; /* more blocks than that never overlap */
    for (size_t k = 0; k < n; k++) {
        if (k >= m)
            load = later(load, ring[k % m]) + blocks[k - m].out;
        load += blocks[k].in;
        end = later(load, end) + blocks[k].ex;
        ring[k % m] = end;
        if (done)
            done[k] = end;
    }
    return end;
}

double swn_pass_eq4(const struct swn_delay *blocks, size_t n)
{
    double sum = 0, before = 0;
    for (size_t i = 1; i < n; i++) {
        double in = i + 1 < n ? blocks[i + 1].in : 0;
        before = later(blocks[i - 1].out + in - (blocks[i].ex + before), 0);
        sum += before;
    }
    return sum;
}
