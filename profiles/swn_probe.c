#define _GNU_SOURCE
#include "swn_probe.h"

#include <errno.h>
#include <stdlib.h>

#include "swn_fetch.h"
#include "swn_probe_refs.h"
#include "swn_scratch.h"

#define PAGE ((uint64_t)4096)
#define LARGEST ((uint64_t)256 << 20)
/* More than caches hold, in so far as the model is more. */
#define FILE_BYTES ((uint64_t)128 << 20)
#define MOST_LAYERS ((size_t)96)
#define ROUNDS 3
#define MOST_BYTES ((uint64_t)4 << 30)
/* What is larger is read in parts, as the library does. */
#define PART ((uint64_t)8 << 20)
_Static_assert(2 * PART <= SWN_SCRATCH_WINDOW, "two are under way at once");

struct probe {
    struct swn_scratch scratch;
    struct swn_fetch *fetch;
    struct swn_probe_refs refs;
    uint64_t left;
};

static uint64_t whole_pages(uint64_t bytes)
{
    bytes = bytes < LARGEST ? bytes : LARGEST;
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static int open_probe(struct probe *b, const struct swn_profile *p, const struct swn_io *io, const char *dir)
{
    uint64_t bytes = PAGE;
    for (size_t i = 0; i < p->layer_count; i++)
        bytes += whole_pages(p->layers[i].l.bytes);
    bytes = bytes < FILE_BYTES ? bytes : FILE_BYTES;
    b->left = MOST_BYTES;
    int rc = swn_scratch_open(&b->scratch, io, dir, (size_t)bytes, SWN_SCRATCH_WINDOW, 0);
    struct swn_fetch_opts opts = {.io = io, .best_path = SWN_FETCH_URING};
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

/* Reads under way at once, as when layers are read ahead: so many as a window would hold, and the queue has in flight.
 * One alone would say what it costs to wait for a disk. Of a large one that is little. */
#define DEPTH 8
#define WINDOW ((uint64_t)8 << 20)

static int submit(struct probe *b, uint64_t bytes, struct swn_scratch_read *r)
{
    size_t at = swn_scratch_next(&b->scratch, (size_t)bytes);
    return swn_scratch_submit(&b->scratch, b->fetch, at, (size_t)bytes, r);
}

/* `count` reads of so many bytes, `depth` of them at once. *seconds: from the first one's beginning to the last one's
 * end. All have ended when this returns. */
static int read_all(struct probe *b, uint64_t bytes, uint64_t count, unsigned depth, double *seconds)
{
    struct swn_scratch_read reads[DEPTH];
    uint64_t submitted = 0, ended = 0;
    double begin = 0, end = 0;
    int rc = 0;
    for (;;) {
        if (!rc && submitted < count && submitted - ended < depth) {
            struct swn_scratch_read *r = &reads[submitted % DEPTH];
            rc = submit(b, bytes, r);
            begin = submitted ? begin : r->begun_s;
            submitted += !rc;
        } else if (ended < submitted) {
            struct swn_scratch_read *r = &reads[ended++ % DEPTH];
            int err = swn_scratch_await(r);
            rc = rc ? rc : err;
            end = r->back_s > end ? r->back_s : end;
        } else {
            break;
        }
    }
    *seconds = end - begin;
    return rc;
}

/* *bytes: of a layer, of which whole parts are read if it is large. *seconds: what it takes. */
static int read_layer(struct probe *b, uint64_t *bytes, double *seconds)
{
    if (*bytes > PART) {
        *bytes -= *bytes % PART;
        return read_all(b, PART, *bytes / PART, 2, seconds);
    }
    unsigned depth = *bytes < WINDOW / DEPTH ? DEPTH : (unsigned)(WINDOW / *bytes);
    int rc = read_all(b, *bytes, depth, depth, seconds);
    *seconds /= depth;
    return rc;
}

static int make_room(struct swn_profile_layer *l)
{
    struct swn_profile_read *reads = realloc(l->reads, (l->read_count + ROUNDS) * sizeof *reads);
    l->reads = reads ? reads : l->reads;
    struct swn_profile_release *releases = realloc(l->releases, (l->release_count + ROUNDS) * sizeof *releases);
    l->releases = releases ? releases : l->releases;
    return reads && releases ? 0 : -ENOMEM;
}

/* Layers of one model hardly differ in how many references they have to the byte, and then nobody could tell what a
 * byte takes from what a reference takes: so each comes with its own number, and with more. */
static size_t references_of(const struct swn_profile_layer *l, int round)
{
    static const size_t more[ROUNDS] = {0, 16, 64};
    uint64_t n = (l->l.depth ? l->l.depth : 1) + more[round];
    return n < SWN_PROBE_REFS ? (size_t)n : SWN_PROBE_REFS;
}

static int probe_layer(struct probe *b, struct swn_profile_layer *l)
{
    uint64_t bytes = whole_pages(l->l.bytes);
    if (!bytes)
        return 0;
    uint64_t all = (bytes > WINDOW ? bytes : WINDOW) * ROUNDS;
    if (all > b->left)
        return 0;
    int rc = make_room(l);
    b->left -= all;
    for (int i = 0; !rc && i < ROUNDS; i++) {
        size_t references = references_of(l, i);
        double seconds, in = 0, out = 0;
        rc = read_layer(b, &bytes, &seconds);
        if (!rc)
            rc = swn_probe_refs_time(&b->refs, references, &in, &out);
        if (rc)
            return rc;
        l->reads[l->read_count++] = (struct swn_profile_read){bytes, seconds + in, references};
        l->releases[l->release_count++] = (struct swn_profile_release){out, references};
    }
    return rc;
}

int swn_probe(struct swn_profile *p, const struct swn_io *io, const char *dir)
{
    struct probe b = {0};
    if (!p->layer_count)
        return -ENODATA;
    int rc = open_probe(&b, p, io, dir);
    size_t step = p->layer_count > MOST_LAYERS ? p->layer_count / MOST_LAYERS : 1;
    double first, in, out;
    if (!rc)
        rc = read_all(&b, PAGE, 1, 1, &first); /* the queue's thread is awake now */
    if (!rc)
        rc = swn_probe_refs_time(&b.refs, SWN_PROBE_REFS, &in, &out); /* and these have page tables */
    for (size_t i = 0; !rc && i < p->layer_count; i += step)
        rc = probe_layer(&b, &p->layers[i]);
    close_probe(&b);
    return rc;
}
