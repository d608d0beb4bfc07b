/* pass.c - the simulator of a pass over blocks (scheduler/planner/block_pipeline.h) against a disk.
 *
 *     cmake --build build/release --target bench-pass && build/release/bin/bench-pass [DIR [REPEATS]]
 *
 * A made-up model of 60 layers is fitted (alpha, beta) from reads of its layers, cut for a few budgets, and then passes
 * are made with two blocks in memory: one thread reads the layers, the other one spins for as long as each block is
 * to compute. Prints predicted and measured latency, medians; the exit status is 1 if one is more than 10 % off.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "blocks/memory/fetch_queue.h"
#include "scheduler/planner/partition.h"
#include "scheduler/planner/block_pipeline.h"
#include "profiles/probe_layers.h"
#include "profiles/scratch_file.h"

#define LAYERS 60
#define LARGEST ((size_t)4 << 20)
#define AHEAD 4
#define MOST_ERROR 0.1

static struct swn_layer layers[LAYERS];
static struct swn_scratch scratch;
static struct swn_fetch *fetch;

/* One pass, two threads. */
struct pass {
    const size_t *first;
    size_t blocks;
    sem_t loaded, done;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static size_t end_of(const struct pass *p, size_t k)
{
    return k + 1 < p->blocks ? p->first[k + 1] : LAYERS;
}

/* With a few under way at once, as when a model is streamed, and when the disk is probed. */
static void read_block(size_t first, size_t end)
{
    struct swn_scratch_read reads[AHEAD];
    for (size_t i = first; i < end + AHEAD; i++) {
        if (i >= first + AHEAD && swn_scratch_await(&reads[i % AHEAD]))
            abort();
        if (i >= end)
            continue;
        size_t bytes = (size_t)layers[i].bytes;
        if (swn_scratch_submit(&scratch, fetch, swn_scratch_next(&scratch, bytes), bytes, &reads[i % AHEAD]))
            abort();
    }
}

static void *load(void *arg)
{
    struct pass *p = arg;
    for (size_t k = 0; k < p->blocks; k++) {
        if (k >= 2)
            sem_wait(&p->done); /* block k - 2 */
        read_block(p->first[k], end_of(p, k));
        sem_post(&p->loaded);
    }
    return NULL;
}

static double run_pass(const size_t *first, size_t blocks)
{
    struct pass p = {.first = first, .blocks = blocks};
    pthread_t loader;
    sem_init(&p.loaded, 0, 0);
    sem_init(&p.done, 0, 0);
    double begin = now();
    if (pthread_create(&loader, NULL, load, &p))
        abort();
    for (size_t k = 0; k < blocks; k++) {
        double ex = 0;
        sem_wait(&p.loaded);
        for (size_t i = first[k]; i < end_of(&p, k); i++)
            ex += layers[i].compute_s;
        for (double until = now() + ex; now() < until;)
            ;
        sem_post(&p.done);
    }
    double took = now() - begin;
    pthread_join(loader, NULL);
    sem_destroy(&p.loaded);
    sem_destroy(&p.done);
    return took;
}

static int fit(struct swn_coefficients *c, const char *dir)
{
    struct swn_profile *p = swn_profile_new(SWN_PROFILE_MODEL, "bench");
    for (size_t i = 0; p && i < LAYERS; i++) {
        struct swn_profile_layer *l = swn_profile_add(p, "layer");
        if (!l)
            return -ENOMEM;
        l->l = layers[i];
    }
    int rc = p ? swn_probe(p, &swn_io_sys, dir, NULL) : -ENOMEM;
    if (!rc)
        rc = swn_profile_fit(p);
    if (!rc)
        rc = p->fit[SWN_FIT_IN].rc;
    if (!rc) {
        *c = p->c;
        printf("alpha %.4g s/byte, beta %.4g s/reference, R^2 %.3f\n", c->alpha, c->beta, p->fit[SWN_FIT_IN].fit.r2);
    }
    swn_profile_free(p);
    return rc;
}

static int open_disk(const char *dir)
{
    struct swn_fetch_opts opts = {.io = &swn_io_sys, .best_path = SWN_FETCH_URING};
    int rc = swn_scratch_open(&scratch, &swn_io_sys, dir, LAYERS * LARGEST / 2, SWN_SCRATCH_WINDOW, 0);
    return rc ? rc : swn_fetch_start(&fetch, &opts);
}

static void make_layers(double ratio)
{
    uint64_t x = 88172645463325252ULL;
    for (size_t i = 0; i < LAYERS; i++) {
        x = x * 6364136223846793005ULL + 1442695040888963407ULL;
        layers[i] = (struct swn_layer){((x >> 33) % 1000 + 24) * 4096, 1, 0, ratio * (double)((x >> 20) % 100) * 4e-5};
    }
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 ? argv[1] : "/var/tmp/swapnet-bench-pass";
    size_t repeats = argc > 2 ? strtoul(argv[2], NULL, 10) : 15, blocks, first[LAYERS];
    int missed = 0;
    static const double ratios[] = {0.3, 1, 3}; /* computing by reading, roughly */
    make_layers(1);
    if (!repeats || open_disk(dir))
        return 1;
    printf("%8s %8s %7s %12s %12s %7s\n", "compute", "budget", "blocks", "predicted ms", "measured ms", "error");
    for (size_t r = 0; r < 3; r++) {
        struct swn_coefficients c;
        struct swn_part_model m;
        struct swn_part part;
        make_layers(ratios[r]);
        if (fit(&c, dir) || swn_partition_model(&m, layers, LAYERS, &c))
            return 1;
        for (unsigned share = 2; share <= 8; share *= 2) {
            double *times = calloc(repeats, sizeof *times);
            if (!times || swn_partition_for_budget(&m, m.bytes[LAYERS] / share, 0, &blocks, first, &part))
                return 1;
            for (size_t i = 0; i < repeats; i++)
                times[i] = run_pass(first, blocks);
            double median = swn_median(times, repeats), error = part.latency_s / median - 1;
            missed |= fabs(error) > MOST_ERROR;
            printf("%8.1f %7u/%u %7zu %12.2f %12.2f %+6.1f%%\n", ratios[r], 1, share, blocks, part.latency_s * 1e3,
                   median * 1e3, error * 100);
            free(times);
        }
        swn_partition_model_free(&m);
    }
    swn_fetch_stop(fetch);
    swn_scratch_close(&scratch);
    return missed;
}
