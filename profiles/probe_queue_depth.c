/* profiles/probe_queue_depth.c - see probe_queue_depth.h. */
#define _GNU_SOURCE
#include "profiles/probe_queue_depth.h"

#include <errno.h>
#include <stdlib.h>

#include "blocks/memory/fetch_queue.h"
#include "profiles/least_squares.h"
#include "profiles/scratch_file.h"
#include "base/clock.h"

/* One measurement reads what the disk delivers in SAMPLE_S, but at least WAITS times what one read waits for the disk,
 * as otherwise too few reads in flight would go unnoticed; and more than a few reads, unless they take LONG_S. On a
 * busy machine single measurements of 16 ms were off by half, medians of five by a twentieth. */
#define SAMPLE_S 0.016
#define WAITS 6
#define WAITS_S 0.06
#define LONG_S 0.1
#define SAMPLE_BYTES ((size_t)2 << 20)
#define LEAST_BYTES ((size_t)256 << 10)
#define SCRATCH_BYTES ((size_t)64 << 20)
#define PILOT_BYTES ((size_t)4 << 20)
#define ROUNDS 5
#define WRITE_S 0.5
#define READ_S 2.0

static const unsigned depths[] = {1, 2, 4, 8, 16, 32};
static const size_t sizes[] = {(size_t)128 << 10, (size_t)512 << 10, (size_t)1 << 20, (size_t)4 << 20};
#define DEPTHS (sizeof depths / sizeof depths[0])
#define SIZES (sizeof sizes / sizeof sizes[0])
#define CELLS (DEPTHS * SIZES)
_Static_assert(CELLS <= SWN_READS_MOST, "a profile holds what was measured");

struct cell {
    unsigned depth;
    size_t request;
    double seconds[ROUNDS];
};

struct grid {
    struct swn_scratch scratch;
    const struct swn_io *io;
    struct cell cells[CELLS];
    size_t count, rounds;
    size_t sample; /* bytes */
};

/* Reads `bytes` in a queue of its own. */
static int read_stretch(struct grid *g, unsigned depth, size_t request, size_t bytes, double *seconds)
{
    struct swn_fetch_opts opts = {.io = g->io, .depth = depth, .piece_bytes = request, .best_path = SWN_FETCH_URING};
    struct swn_fetch *f;
    struct swn_scratch_read r;
    int rc = swn_fetch_start(&f, &opts);
    if (rc)
        return rc;
    rc = swn_scratch_submit(&g->scratch, f, swn_scratch_next(&g->scratch, bytes), bytes, &r);
    if (!rc)
        rc = swn_scratch_await(&r);
    *seconds = r.back_s - r.begun_s;
    if (!rc && swn_fetch_path_now(f) == SWN_FETCH_BUFFERED)
        rc = -EOPNOTSUPP;
    swn_fetch_stop(f);
    return rc;
}

/* The wait of one read, and the speed at the usual depth and size: the best of some tries, as other programs may use
 * the disk. */
static int try_disk(struct grid *g, double *wait_s, double *speed)
{
    size_t bytes = LEAST_BYTES;
    double seconds = 0;
    *wait_s = WAITS_S;
    *speed = 0;
    for (int i = 0; i < 4; i++) {
        int rc = read_stretch(g, 0, 0, 4096, &seconds);
        if (rc)
            return rc;
        *wait_s = seconds < *wait_s ? seconds : *wait_s;
    }
    seconds = 0;
    for (int i = 0; i < 6 && seconds < SAMPLE_S + *wait_s; i++) {
        int rc = read_stretch(g, 0, 0, bytes, &seconds);
        if (rc)
            return rc;
        double now = (double)bytes / (seconds > 1e-6 ? seconds : 1e-6);
        *speed = now > *speed ? now : *speed;
        bytes = bytes < PILOT_BYTES ? 4 * bytes : bytes;
    }
    return 0;
}

static int choose_sample(struct grid *g)
{
    double wait_s, speed;
    int rc = try_disk(g, &wait_s, &speed);
    if (rc)
        return rc;
    double seconds = WAITS * wait_s < SAMPLE_S ? SAMPLE_S : WAITS * wait_s < WAITS_S ? WAITS * wait_s : WAITS_S;
    double bytes = speed * seconds, most = speed * LONG_S;
    if (bytes < (double)SAMPLE_BYTES)
        bytes = most < (double)SAMPLE_BYTES ? most : (double)SAMPLE_BYTES;
    bytes = bytes < (double)g->scratch.bytes ? bytes : (double)g->scratch.bytes;
    g->sample = (size_t)bytes / LEAST_BYTES * LEAST_BYTES;
    g->sample = g->sample ? g->sample : LEAST_BYTES;
    return 0;
}

/* The usual depth and size is always measured, for comparison. Cells with more than half of a sample in flight are left
 * out, as they say little. */
static void lay_out(struct grid *g)
{
    for (size_t d = 0; d < DEPTHS; d++)
        for (size_t s = 0; s < SIZES; s++)
            if (depths[d] * sizes[s] <= g->sample / 2 || (depths[d] == SWN_FETCH_DEPTH && sizes[s] == SWN_FETCH_PIECE))
                g->cells[g->count++] = (struct cell){.depth = depths[d], .request = sizes[s]};
}

/* Measures the cells in turns, in both directions, so that other load on the disk affects all cells alike. */
static int measure(struct grid *g)
{
    double begin = swn_seconds(), round_s = 0;
    while (g->rounds < ROUNDS && swn_seconds() - begin + round_s < READ_S) {
        double since = swn_seconds();
        for (size_t i = 0; i < g->count; i++) {
            struct cell *c = &g->cells[g->rounds % 2 ? g->count - 1 - i : i];
            int rc = read_stretch(g, c->depth, c->request, g->sample, &c->seconds[g->rounds]);
            if (rc)
                return rc;
        }
        g->rounds++;
        round_s = swn_seconds() - since;
    }
    return 0;
}

static int write_down(struct grid *g, struct swn_queue_depth *out)
{
    *out = (struct swn_queue_depth){.measured = calloc(CELLS, sizeof *out->measured)};
    if (!out->measured)
        return -ENOMEM;
    for (size_t i = 0; i < g->count; i++) {
        struct cell *c = &g->cells[i];
        double seconds = swn_median(c->seconds, g->rounds);
        out->measured[out->measured_count++] = (struct swn_read_rate){
            .depth = c->depth,
            .request_bytes = c->request,
            .bytes_per_s = (double)g->sample / (seconds > 1e-9 ? seconds : 1e-9),
        };
    }
    const struct swn_read_rate *chosen = swn_queue_depth_choose(out->measured, out->measured_count);
    if (!chosen) {
        swn_queue_depth_free(out);
        return -ENODATA;
    }
    out->depth = chosen->depth;
    out->request_bytes = chosen->request_bytes;
    return 0;
}

int swn_probe_queue(struct swn_queue_depth *out, const struct swn_io *io, const char *dir)
{
    struct grid g = {.io = io};
    int rc = swn_scratch_open(&g.scratch, io, dir, SCRATCH_BYTES, SCRATCH_BYTES, WRITE_S);
    if (!rc)
        rc = choose_sample(&g);
    if (!rc) {
        lay_out(&g);
        rc = measure(&g);
    }
    if (!rc)
        rc = write_down(&g, out);
    swn_scratch_close(&g.scratch);
    return rc;
}
