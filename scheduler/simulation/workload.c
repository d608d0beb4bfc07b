/* scheduler/simulation/workload.c - see workload.h. */
#include "scheduler/simulation/workload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/simulation/random.h"

#define PARETO_SHAPE 1.5

static const char *const scenarios[SWN_SCENARIOS] = {"fixed", "one-as-printed", "one", "three", "subset", "geometric"};
static const char *const spacings[SWN_SPACINGS] = {"scenario", "constant", "normal", "poisson", "pareto"};

static int find(const char *const *names, unsigned count, const char *name)
{
    for (unsigned i = 0; i < count; i++)
        if (!strcmp(names[i], name))
            return (int)i;
    return -EINVAL;
}

int swn_scenario_parse(const char *name, enum swn_scenario *out)
{
    int found = find(scenarios, SWN_SCENARIOS, name);

    *out = found < 0 ? SWN_SCENARIO_FIXED : (enum swn_scenario)found;
    return found < 0 ? found : 0;
}

int swn_spacing_parse(const char *name, enum swn_spacing *out)
{
    int found = find(spacings, SWN_SPACINGS, name);

    *out = found < 0 ? SWN_SPACING_OF_SCENARIO : (enum swn_spacing)found;
    return found < 0 ? found : 0;
}

uint64_t swn_workload_alone_ns(const struct swn_task_network *network, double disk_bytes_per_ns, uint32_t inputs)
{
    double read = 0, computed = 0;

    for (uint32_t l = 0; l < network->layer_count; l++) {
        read += (double)network->layers[l].load_bytes / disk_bytes_per_ns;
        computed = (computed > read ? computed : read) + (double)network->layers[l].compute_ns * inputs;
    }
    return (uint64_t)computed;
}

/* The networks of one job, as places in the list of members. */
static uint32_t choose(const struct swn_workload *how, struct swn_random *r, uint32_t *to)
{
    uint32_t n = how->member_count, count = 0, places[SWN_TABLE_NETWORKS];

    for (uint32_t k = 0; k < n; k++)
        places[k] = k;
    switch (how->scenario) {
    case SWN_SCENARIO_ONE_AS_PRINTED:
    case SWN_SCENARIO_ONE:
        to[count++] = swn_random_below(r, n);
        break;
    case SWN_SCENARIO_THREE:
        while (count < 3)
            to[count++] = swn_random_below(r, n);
        break;
    case SWN_SCENARIO_SUBSET:
        while (!count)
            for (uint32_t k = 0; k < n; k++)
                if (swn_random_below(r, 2))
                    to[count++] = k;
        break;
    case SWN_SCENARIO_GEOMETRIC:
        do {
            uint32_t k = count + swn_random_below(r, n - count), other = places[count];

            places[count] = places[k];
            places[k] = other;
            to[count] = places[count];
            count++;
        } while (count < n && swn_random_below(r, 2));
        break;
    default:
        memcpy(to, places, n * sizeof *to);
        count = n;
    }
    return count;
}

/* E[S], from the jobs that there are. */
static double mean_alone_ns(const struct swn_network_table *networks, const struct swn_arrival_table *t,
                            double disk_bytes_per_ns)
{
    double sum = 0;

    for (uint32_t i = 0; i < t->count; i++)
        sum += (double)swn_workload_alone_ns(&networks->networks[t->arrivals[i].network], disk_bytes_per_ns,
                                             t->arrivals[i].inputs);
    return sum / t->job_count;
}

static double interval_ns(const struct swn_network_table *networks, const struct swn_workload *how,
                          const struct swn_arrival_table *t, double disk_bytes_per_ns)
{
    double sum = 0;

    if (how->interval_ns)
        return (double)how->interval_ns;
    if (how->scenario != SWN_SCENARIO_ONE_AS_PRINTED)
        return mean_alone_ns(networks, t, disk_bytes_per_ns) / how->rho;
    for (uint32_t k = 0; k < how->member_count; k++)
        sum += (double)swn_workload_alone_ns(&networks->networks[how->members[k]], disk_bytes_per_ns, how->inputs);
    return sum;
}

static double space(const struct swn_workload *how, struct swn_random *r, double mean)
{
    enum swn_spacing spacing = how->spacing;
    double gap = mean;

    if (spacing == SWN_SPACING_OF_SCENARIO)
        spacing = how->scenario == SWN_SCENARIO_FIXED || how->scenario == SWN_SCENARIO_SUBSET ? SWN_SPACING_CONSTANT
                                                                                              : SWN_SPACING_NORMAL;
    if (spacing == SWN_SPACING_NORMAL)
        gap = swn_random_normal(r, mean, (double)how->deviation_ns);
    else if (spacing == SWN_SPACING_POISSON)
        gap = swn_random_exponential(r, mean);
    else if (spacing == SWN_SPACING_PARETO)
        gap = swn_random_pareto(r, mean, PARETO_SHAPE);
    return gap > 0 ? gap : 0;
}

/* Times, once it is known which networks come; a permutation has the exact share of positive jobs. */
static int set_times(const struct swn_workload *how, struct swn_random *r, double mean, struct swn_arrival_table *t)
{
    uint8_t *positive = calloc(t->job_count, 1);
    uint32_t count = (uint32_t)(how->probability * t->job_count + 0.5), i = 0;
    double at = 0;

    if (!positive)
        return -ENOMEM;
    memset(positive, 1, count);
    for (uint32_t j = t->job_count; j > 1; j--) {
        uint32_t k = swn_random_below(r, j);
        uint8_t other = positive[j - 1];

        positive[j - 1] = positive[k];
        positive[k] = other;
    }
    for (uint32_t job = 0; job < t->job_count; job++) {
        for (; i < t->count && t->arrivals[i].job == job; i++) {
            t->arrivals[i].arrived_ns = (uint64_t)at;
            /* What is behind another one always asks for what is behind it, as in the paper. */
            t->arrivals[i].outcome = positive[job] || t->arrivals[i].upstream != SWN_TABLE_NONE;
        }
        at += space(how, r, mean);
    }
    free(positive);
    return at < (double)SWN_TABLE_ARRIVED_MOST ? 0 : -EINVAL;
}

static int check(const struct swn_network_table *networks, const struct swn_workload *how, double disk_bytes_per_ns)
{
    if ((unsigned)how->scenario >= SWN_SCENARIOS || (unsigned)how->spacing >= SWN_SPACINGS || !how->jobs ||
        !how->inputs || how->inputs > SWN_TASK_INPUTS || !(how->rho > 0) ||
        !(how->probability >= 0 && how->probability <= 1) || !how->member_count ||
        how->member_count > SWN_TABLE_NETWORKS || how->jobs > SWN_TABLE_PASSES / SWN_TABLE_NETWORKS ||
        !(disk_bytes_per_ns > 0))
        return -EINVAL;
    for (uint32_t k = 0; k < how->member_count; k++)
        if (how->members[k] >= networks->count || (how->upstream[k] != SWN_TABLE_NONE && how->upstream[k] >= k))
            return -EINVAL;
    return 0;
}

int swn_workload_make(const struct swn_network_table *networks, const struct swn_workload *how,
                      double disk_bytes_per_ns, struct swn_arrival_table *out)
{
    struct swn_random r = {how->seed};
    uint32_t chosen[SWN_TABLE_NETWORKS];
    int rc = check(networks, how, disk_bytes_per_ns);

    memset(out, 0, sizeof *out);
    if (rc)
        return rc;
    out->arrivals = calloc((size_t)how->jobs * SWN_TABLE_NETWORKS, sizeof *out->arrivals);
    if (!out->arrivals)
        return -ENOMEM;
    out->job_count = how->jobs;
    for (uint32_t job = 0; job < how->jobs; job++) {
        uint32_t n = choose(how, &r, chosen), first = out->count;

        for (uint32_t k = 0; k < n; k++) {
            uint32_t upstream = how->scenario == SWN_SCENARIO_FIXED ? how->upstream[chosen[k]] : SWN_TABLE_NONE;

            out->arrivals[out->count++] =
                (struct swn_arrival){.job = job,
                                     .network = how->members[chosen[k]],
                                     .inputs = how->inputs,
                                     .upstream = upstream == SWN_TABLE_NONE ? upstream : first + upstream};
        }
    }
    rc = set_times(how, &r, interval_ns(networks, how, out, disk_bytes_per_ns), out);
    if (rc)
        swn_arrivals_free(out);
    return rc;
}
