/* scheduler/planner/simulate.c - see simulate.h. */
#include "scheduler/planner/simulate.h"

#include <math.h>
#include <stdlib.h>

#define MIB ((uint64_t)1 << 20)

/* A mapping is read page by page as the kernel touches it, at a fraction of the disk's speed. */
#define MAPPING_PENALTY 16
/* A weight that was read is mapped at its address, and its extent is mapped again when it goes: 7 to 40 us per MiB for
 * chunks of a huge page that hold several weights (docs/decisions/0001-one-address-per-weight.md). */
#define PUBLISH_NS_PER_BYTE (15e3 / (double)MIB)

#define PASSES 4
#define COUNTED 2 /* passes at the end that count; before them the window fills */
/* Sums of the same terms in another order differ by less than this part of them. */
#define ROUNDING 1e-9

/* One step of a pass, or several equal ones in a row: computing with kept bytes, reads, then computing. */
struct swn_step {
    uint64_t bytes, piece;                  /* to be read, in parts of `piece` bytes; 0: nothing */
    double read_ns, last_ns;                /* of one part, and of the last one, which may be shorter */
    double before_ns, compute_ns, after_ns; /* bytes that were read may leave before after_ns */
    size_t times;
    int mapped; /* read through the mapping */
};

/* The bytes of the window that a step holds until it is done. */
struct swn_held {
    uint64_t bytes;
    double until;
};

void swn_steps_free(struct swn_steps *s)
{
    free(s->step);
    free(s->held);
    *s = (struct swn_steps){0};
}

/* Memory for n elements of that size; the old memory if it suffices. Its content is lost. NULL: no memory. */
static void *reserve(void *at, size_t *room, size_t n, size_t size)
{
    if (n <= *room)
        return at;
    free(at);
    at = malloc(n * size);
    *room = at ? n : 0;
    return at;
}

/* ---- the steps of a pass ---- */

static double read_time(const struct swn_disk_model *d, uint64_t bytes, double saved)
{
    return d->read_ns + (double)bytes * (1 - saved) / d->bytes_per_ns;
}

static void set_reads(struct swn_step *step, const struct swn_disk_model *d, double saved)
{
    uint64_t last = step->piece != step->bytes ? step->bytes % step->piece : 0; /* mostly equal: no division */
    step->read_ns = read_time(d, step->piece, saved);
    step->last_ns = last ? read_time(d, last, saved) : step->read_ns;
    if (step->mapped)
        step->read_ns = step->last_ns = (double)step->bytes / d->bytes_per_ns * MAPPING_PENALTY;
}

static double own_time(const struct swn_plan_weight *weight)
{
    return weight->op_ns > 0 && weight->op_ns < weight->compute_ns ? weight->op_ns : weight->compute_ns;
}

/* The step of a weight whose operator takes all of it at once. */
static struct swn_step step_of(const struct swn_plan_weight *weight, const struct swn_disk_model *d)
{
    uint64_t tail = weight->keep ? 0 : weight->bytes - weight->keep_bytes, piece = weight->piece ? weight->piece : tail;
    double publish = weight->oversize ? 0 : PUBLISH_NS_PER_BYTE;
    struct swn_step step = {.bytes = tail,
                            .piece = piece,
                            .compute_ns = own_time(weight) + (double)tail * publish,
                            .after_ns = weight->compute_ns - own_time(weight),
                            .times = 1,
                            .mapped = weight->oversize};
    if (tail && !weight->oversize)
        step.compute_ns += d->lend_ns;
    if (tail)
        set_reads(&step, d, weight->saved);
    return step;
}

/* The steps of a weight whose operator takes slices: slices of equal size and a last one, which is up to twice as
 * large, each after its share of the kept ones. Returns the number of steps. */
static size_t steps_of(const struct swn_plan_weight *weight, const struct swn_disk_model *d, struct swn_step *to)
{
    size_t n = 0;
    uint64_t tail = weight->bytes - weight->keep_bytes, same = tail >= 2 * weight->piece ? tail / weight->piece - 1 : 0;
    double each = own_time(weight) / (double)weight->bytes;
    double before = each * (double)weight->keep_bytes / (double)(same + 1);
    for (int last = !same; tail && last < 2; last++) {
        uint64_t bytes = last ? tail - same * weight->piece : weight->piece;
        to[n] = (struct swn_step){.bytes = bytes,
                                  .piece = bytes,
                                  .before_ns = before,
                                  .compute_ns = (each + PUBLISH_NS_PER_BYTE) * (double)bytes + d->lend_ns,
                                  .after_ns = last ? weight->compute_ns - own_time(weight) : 0,
                                  .times = last ? 1 : same};
        set_reads(&to[n++], d, weight->saved);
    }
    return n;
}

/* ---- the simulation ---- */

struct run {
    const struct swn_step *steps;
    size_t count;          /* of them */
    struct swn_held *held; /* first in, first out */
    size_t oldest, newest;
    uint64_t window, used;
    double wait_ns;        /* from the request of a read until its bytes begin to come */
    double disk_free, end; /* when the disk is done with all requests; when the step before is done */
};

/* Reads the bytes that the step needs, part by part. */
static inline __attribute__((always_inline)) void read_step(struct run *r, const struct swn_step *step)
{
    double begin = r->disk_free;
    uint64_t bytes = step->bytes, piece;
    if (step->mapped) {
        if (r->end > begin)
            begin = r->end; /* nothing is read ahead for a mapping */
        begin += step->read_ns;
        bytes = 0;
    }
    for (; bytes; bytes -= piece) {
        piece = bytes < step->piece ? bytes : step->piece;
        double took = bytes < step->piece ? step->last_ns : step->read_ns;
        for (; r->used + piece > r->window && r->oldest < r->newest; r->oldest++) {
            const struct swn_held *old = &r->held[r->oldest];
            r->used -= old->bytes;
            if (old->until + r->wait_ns > begin)
                begin = old->until + r->wait_ns;
        }
        r->used += piece;
        begin += took;
    }
    r->disk_free = begin;
}

static inline __attribute__((always_inline)) void run_step(struct run *r, const struct swn_step *step)
{
    r->end += step->before_ns;
    if (step->bytes) {
        read_step(r, step);
        r->end = r->end > r->disk_free ? r->end : r->disk_free;
    }
    r->end += step->compute_ns;
    uint64_t has = step->mapped ? 0 : step->bytes;
    if (has)
        r->held[r->newest++] = (struct swn_held){.bytes = has, .until = r->end};
    r->end += step->after_ns;
}

/* The least time in which a pass can compute and read. */
static void least_times(const struct swn_step *steps, size_t count, double *compute, double *read)
{
    *compute = *read = 0;
    for (size_t i = 0; i < count; i++) {
        const struct swn_step *s = &steps[i];
        double times = (double)s->times;
        uint64_t parts = !s->bytes ? 0 : s->mapped || s->bytes <= s->piece ? 1 : (s->bytes + s->piece - 1) / s->piece;
        *compute += times * (s->before_ns + s->compute_ns + s->after_ns);
        *read += parts ? times * ((double)(parts - 1) * s->read_ns + s->last_ns) : 0;
    }
}

/* Whether the pass left the same state as it found: then all later passes take as long. `before`: the state when the
 * pass began. */
static int is_steady(const struct run *r, const struct run *before)
{
    double later = r->end - before->end, near = ROUNDING * r->end;
    size_t n = r->newest - r->oldest;
    int same = r->used == before->used && n == before->newest - before->oldest &&
               fabs(r->disk_free - before->disk_free - later) <= near;
    for (size_t k = 0; same && k < n; k++) {
        const struct swn_held *now = &r->held[r->oldest + k], *then = &r->held[before->oldest + k];
        same = now->bytes == then->bytes && fabs(now->until - then->until - later) <= near;
    }
    return same;
}

static double simulate(struct run *r, double limit_ns)
{
    double first_end = 0, compute, read;
    least_times(r->steps, r->count, &compute, &read);
    for (int left = PASSES; left; left--) {
        const struct run before = *r;
        if (left == COUNTED)
            first_end = r->end;
        double computed = r->end + left * compute, has_read = read > 0 ? r->disk_free + left * read : 0;
        double least = ((computed > has_read ? computed : has_read) - first_end) / COUNTED;
        if (left <= COUNTED && least > limit_ns * (1 + ROUNDING))
            return INFINITY;
        for (size_t k = 0; k < r->count; k++)
            for (size_t again = 0; again < r->steps[k].times; again++)
                run_step(r, &r->steps[k]);
        if (left < PASSES && left > 1 && is_steady(r, &before))
            return r->end - before.end;
    }
    return (r->end - first_end) / COUNTED;
}

double swn_steps_pass(struct swn_steps *s, const struct swn_plan_weight *weights, size_t n, uint64_t window,
                      const struct swn_disk_model *disk, double limit_ns)
{
    size_t reading = 0;
    struct run run = {.window = window, .wait_ns = disk->wait_ns};
    s->step = reserve(s->step, &s->step_room, 2 * n, sizeof *s->step);
    if (!s->step)
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (weights[i].sliced)
            run.count += steps_of(&weights[i], disk, s->step + run.count);
        else
            s->step[run.count++] = step_of(&weights[i], disk);
        /* A step that reads nothing is added to the step before. */
        if (!weights[i].sliced && run.count > 1 && !s->step[run.count - 1].bytes) {
            const struct swn_step *own = &s->step[--run.count];
            s->step[run.count - 1].after_ns += own->compute_ns + own->after_ns;
        }
    }
    for (size_t i = 0; i < run.count; i++)
        reading += s->step[i].bytes ? s->step[i].times : 0;
    s->held = reserve(s->held, &s->held_room, reading * PASSES + 1, sizeof *s->held);
    if (!s->held)
        return 0;
    run.steps = s->step;
    run.held = s->held;
    return simulate(&run, limit_ns);
}
