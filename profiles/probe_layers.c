/* profiles/probe_layers.c - see probe_layers.h. */
#define _GNU_SOURCE
#include "profiles/probe_layers.h"

#include <errno.h>
#include <stdlib.h>

#include "blocks/memory/fetch_queue.h"
#include "profiles/probe_mapping.h"
#include "profiles/scratch_file.h"

#define PAGE ((uint64_t)4096)
#define LARGEST ((uint64_t)256 << 20)
/* More than processor caches hold, for a model that is larger. */
#define FILE_BYTES ((uint64_t)128 << 20)
#define MOST_LAYERS ((size_t)96)
#define ROUNDS 3
#define MOST_BYTES ((uint64_t)4 << 30)
#define ALONE 32 /* reads with nothing before them */
/* Larger layers are read in parts, as the library does. */
#define PART ((uint64_t)8 << 20)
_Static_assert(2 * PART <= SWN_SCRATCH_WINDOW, "two are under way at once");

struct probe {
    struct swn_scratch scratch;
    struct swn_fetch *fetch;
    struct swn_probe_refs refs;
};

static uint64_t whole_pages(uint64_t bytes)
{
    bytes = bytes < LARGEST ? bytes : LARGEST;
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static int open_probe(struct probe *b, const struct swn_profile *p, const struct swn_io *io, const char *dir,
                      const struct swn_queue_depth *queue)
{
    uint64_t bytes = PAGE;
    for (size_t i = 0; i < p->layer_count; i++)
        bytes += whole_pages(p->layers[i].l.bytes);
    bytes = bytes < FILE_BYTES ? bytes : FILE_BYTES;
    int rc = swn_scratch_open(&b->scratch, io, dir, (size_t)bytes, SWN_SCRATCH_WINDOW, 0);
    struct swn_fetch_opts opts = {.io = io, .best_path = SWN_FETCH_URING};
    if (queue)
        opts.depth = queue->depth, opts.piece_bytes = queue->request_bytes;
    if (!rc)
        rc = swn_fetch_start(&b->fetch, &opts);
    return rc ? rc : swn_probe_refs_open(&b->refs, io, b->scratch.file);
}

static void close_probe(struct probe *b)
{
    if (b->fetch)
        swn_fetch_stop(b->fetch);
    swn_probe_refs_close(&b->refs);
    swn_scratch_close(&b->scratch);
}

/* Reads under way at once, as when layers are read ahead: as many as a window would hold, but two of large ones. */
#define DEPTH 8
#define WINDOW ((uint64_t)8 << 20)

/* The reads of one layer in one round: a small layer is read several times, a large one in parts. */
struct stretch {
    struct swn_profile_layer *layer;
    int round;
    uint64_t bytes; /* of each read */
    unsigned reads;
    unsigned layers; /* in all of these reads */
    double seconds;  /* the time of these reads */
};

static struct stretch stretch_of(struct swn_profile_layer *l, int round)
{
    uint64_t bytes = whole_pages(l->l.bytes);
    struct stretch s = {.layer = l, .round = round, .bytes = bytes, .reads = DEPTH, .layers = DEPTH};
    if (bytes > PART)
        s.bytes = PART, s.reads = (unsigned)(bytes / PART), s.layers = 1;
    else if (bytes >= WINDOW / DEPTH)
        s.reads = s.layers =
            bytes <= WINDOW / 2 ? (unsigned)(WINDOW / bytes) : 2; /* one read may end before the one ahead of it */
    return s;
}

static uint64_t all_of(const struct stretch *s)
{
    return s->bytes * s->reads;
}

/* Reads one after the other without a pause, as in a pass that waits for the disk. Reads of one layer alone would
 * include the wait for an idle disk, and the last piece's. So the time of a read begins when the read before ended. All
 * reads have ended when this returns. */
static int read_all(struct probe *b, struct stretch *stretches, size_t count)
{
    struct swn_scratch_read reads[DEPTH];
    struct stretch *of[DEPTH];
    size_t first = 0, next = 0, stretch = 0;
    unsigned done = 0; /* reads of the stretch */
    uint64_t flight = 0;
    double back_s = 0;
    int rc = 0;
    for (;;) {
        struct stretch *s = &stretches[stretch];
        size_t under_way = next - first;
        if (!rc && stretch < count && (under_way < 2 || (under_way < DEPTH && flight + s->bytes <= WINDOW))) {
            size_t at = swn_scratch_next(&b->scratch, (size_t)s->bytes);
            of[next % DEPTH] = s;
            rc = swn_scratch_submit(&b->scratch, b->fetch, at, (size_t)s->bytes, &reads[next % DEPTH]);
            next += !rc;
            flight += rc ? 0 : s->bytes;
            done = rc || done + 1 < s->reads ? done + 1 : 0;
            stretch += !done;
        } else if (under_way) {
            struct swn_scratch_read *r = &reads[first % DEPTH];
            int err = swn_scratch_await(r);
            double begun = r->begun_s > back_s ? r->begun_s : back_s;
            rc = rc ? rc : err;
            of[first % DEPTH]->seconds += r->back_s > begun ? r->back_s - begun : 0;
            back_s = r->back_s > back_s ? r->back_s : back_s;
            flight -= of[first++ % DEPTH]->bytes;
        } else {
            return rc;
        }
    }
}

/* Reads single layers with no other read under way, and compares their times with those of reads in a row. */
static int read_alone(struct probe *b, const struct stretch *stretches, size_t n, double *wait_s)
{
    double waits[ALONE];
    for (size_t i = 0; i < ALONE; i++) {
        const struct stretch *s = &stretches[1 + i % (n - 1)];
        struct swn_scratch_read r;
        size_t at = swn_scratch_next(&b->scratch, (size_t)s->bytes);
        int rc = swn_scratch_submit(&b->scratch, b->fetch, at, (size_t)s->bytes, &r);
        rc = rc ? rc : swn_scratch_await(&r);
        if (rc)
            return rc;
        waits[i] = r.back_s - r.begun_s - s->seconds / s->reads;
    }
    *wait_s = swn_median(waits, ALONE);
    *wait_s = *wait_s > 0 ? *wait_s : 0;
    return 0;
}

static int make_room(struct swn_profile_layer *l)
{
    struct swn_profile_read *reads = realloc(l->reads, (l->read_count + 1) * sizeof *reads);
    l->reads = reads ? reads : l->reads;
    struct swn_profile_release *releases = realloc(l->releases, (l->release_count + 1) * sizeof *releases);
    l->releases = releases ? releases : l->releases;
    return reads && releases ? 0 : -ENOMEM;
}

/* Layers of one model have nearly the same number of references per byte, and then the cost of a byte cannot be told
 * from the cost of a reference. So each layer is measured with its own number of references, and with more. */
static size_t references_of(const struct swn_profile_layer *l, int round)
{
    static const size_t more[ROUNDS] = {0, 16, 64};
    uint64_t n = (l->l.depth ? l->l.depth : 1) + more[round];
    return n < SWN_PROBE_REFS ? (size_t)n : SWN_PROBE_REFS;
}

/* Measures the references of a stretch, and adds the read and the release to the profile. */
static int note(struct probe *b, const struct stretch *s)
{
    struct swn_profile_layer *l = s->layer;
    size_t references = references_of(l, s->round);
    double in = 0, out = 0;
    int rc = make_room(l);
    if (!rc)
        rc = swn_probe_refs_time(&b->refs, references, &in, &out);
    if (rc)
        return rc;
    l->reads[l->read_count++] =
        (struct swn_profile_read){all_of(s) / s->layers, s->seconds / s->layers + in, references};
    l->releases[l->release_count++] = (struct swn_profile_release){out, references};
    return 0;
}

/* Chooses the layers to read, in the order of a pass, in all rounds. A first stretch warms up and does not count. */
static size_t choose(const struct swn_profile *p, struct stretch *out)
{
    size_t n = 0, chosen, step = (p->layer_count + MOST_LAYERS - 1) / MOST_LAYERS;
    uint64_t left = MOST_BYTES - ALONE * PART;
    out[n++] = (struct stretch){.bytes = PAGE, .reads = DEPTH, .layers = DEPTH};
    for (size_t i = 0; i < p->layer_count; i += step) {
        struct stretch s = stretch_of(&p->layers[i], 0);
        if (!s.bytes || ROUNDS * all_of(&s) > left)
            continue;
        left -= ROUNDS * all_of(&s);
        out[n++] = s;
    }
    chosen = n;
    for (int round = 1; round < ROUNDS; round++)
        for (size_t i = 1; i < chosen; i++) {
            out[n] = out[i];
            out[n++].round = round;
        }
    return n;
}

static int probe(struct probe *b, struct stretch *stretches, size_t n, double *wait_s)
{
    double in, out;
    int rc = read_all(b, stretches, n);
    if (!rc && n > 1)
        rc = read_alone(b, stretches, n, wait_s);
    if (!rc)
        rc = swn_probe_refs_time(&b->refs, SWN_PROBE_REFS, &in, &out); /* after this the addresses have page tables */
    for (size_t i = 1; !rc && i < n; i++)
        rc = note(b, &stretches[i]);
    return rc;
}

int swn_probe(struct swn_profile *p, const struct swn_io *io, const char *dir, const struct swn_queue_depth *queue)
{
    struct probe b = {.refs = {.res = {.pagemap_fd = -1}}}; /* closing must work where opening never began */
    if (!p->layer_count)
        return -ENODATA;
    struct stretch *stretches = calloc(p->layer_count + 1, ROUNDS * sizeof *stretches);
    double wait_s = 0;
    int rc = stretches ? open_probe(&b, p, io, dir, queue) : -ENOMEM;
    if (!rc)
        rc = probe(&b, stretches, choose(p, stretches), &wait_s);
    if (!rc && p->wait_s < 0) /* else it was measured beside the program */
        p->wait_s = wait_s;
    close_probe(&b);
    free(stretches);
    return rc;
}
