/* skeleton/observe/hook_baseline.c - see hook_baseline.h. */
#include "skeleton/observe/hook_baseline.h"

#include "skeleton/engine/engine_internal.h"

/* After this many passes in a row with equal numbers of allocations, later passes are expected to have as many. */
#define ALIKE 2
/* With fewer times of a kind the cost is unknown. */
#define ENOUGH 4
/* Part of a pass: a larger difference is not caused by the hook. */
#define MOST_COST 0.3

void swn_hook_baseline_pass(struct swn_hook_baseline *u, int counts)
{
    u->begun = 1;
    u->counts = counts;
}

int swn_hook_baseline_begin(struct swn_hook_baseline *u, int passes)
{
    if (u->allocs && u->alike >= ALIKE)
        u->wanted = passes;
    return u->wanted != 0;
}

int swn_hook_baseline_end(struct swn_hook_baseline *u, const struct swn_torch_backend *backend)
{
    int was = u->left != 0;
    u->wanted = u->left = 0;
    u->first = 0;
    if (was)
        backend->watching(1);
    return was;
}

/* Counts the watched pass between two first allocations. */
static void count_watched(struct swn_hook_baseline *u, uint64_t number, uint64_t now)
{
    uint64_t allocs = number - u->first;
    u->alike = allocs == u->allocs ? u->alike + 1 : 0;
    u->allocs = allocs;
    if (u->counts && u->alike)
        swn_times_add(&u->watched, (double)(now - u->first_ns));
}

int swn_hook_baseline_alloc(struct swn_hook_baseline *u, const struct swn_torch_backend *backend, uint64_t number)
{
    if (u->left ? number - u->first < u->allocs : !u->begun)
        return 0;
    uint64_t now = swn_now_ns();
    if (u->left)
        swn_times_add(&u->unwatched, (double)(now - u->first_ns));
    else if (u->first)
        count_watched(u, number, now);
    u->begun = 0;
    u->first = number;
    u->first_ns = now;
    if (u->left > 1)
        u->left--;
    else if (u->left)
        return swn_hook_baseline_end(u, backend);
    else if (u->wanted && !backend->watching(0))
        u->left = u->wanted;
    u->wanted = 0;
    return 0;
}

/* The difference of two medians, as far as it is credible: on a busy machine VGG-19's hook seemed to cost 8 %. */
double swn_hook_baseline_cost(const struct swn_hook_baseline *u)
{
    if (u->watched.n < ENOUGH || u->unwatched.n < ENOUGH)
        return -1;
    double watched = swn_times_median(&u->watched), cost = watched - swn_times_median(&u->unwatched);
    double variance = swn_times_variance(&u->watched) + swn_times_variance(&u->unwatched);
    if (cost > MOST_COST * watched)
        return -1;
    return swn_times_believed(cost, variance);
}
