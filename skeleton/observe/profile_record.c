/* skeleton/observe/profile_record.c - see profile_record.h. */
#define _GNU_SOURCE
#include "skeleton/observe/profile_record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "skeleton/observe/io_load.h"
#include "skeleton/load/load.h"
#include "profiles/disk_speed.h"
#include "scheduler/planner/predict.h"
#include "profiles/profile.h"
#include "profiles/scratch_file.h"
#include "skeleton/observe/hook_baseline.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/weights.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/engine/section.h"

/* Lock rank is the loader's lock, then the engine's; swn_load_tensor only tries the former. */

/* Only the newest reads: a program's first passes differ from later ones. */
#define READS 16
#define PASSES 256
/* The passes after which a program has settled, and the passes of each kind in a turn. The first pass of a turn still
 * has effects of the kind before. */
#define SETTLED 4
#define TURN 3
#define TURNS 25
/* Memory bandwidth that the disk uses is lost to operators: with disks of 1.9 to 3.5 GB/s passes took 3 to 8 % longer
 * while the disk was read. That is this time for each byte per second, give or take half of it. */
#define USUAL_S_PER_BYTE 0.024e-9
/* The kinds of passes: the disk rests; the disk rests, and operators are not watched; the disk is busy. */
enum { RESTED, UNWATCHED, BUSY, KINDS };
/* In a program that waits for more than this part of a pass between operators, passes without the hook cannot be
 * recognised. */
#define IDLE_MOST 0.05
/* Passes from which the time of a pass is known. */
#define ENOUGH_PASSES (SETTLED + TURN)
/* The most by which the medians of layers may add up to less than the median of passes. */
#define TAIL_MOST 1.4

struct weight {
    uint32_t id; /* of the weight; its place may belong to another one later */
    struct swn_times compute, own, release;
    struct swn_profile_read reads[READS];
    unsigned read_count;
    uint64_t flops, other;
    struct swn_small small;
};

struct swn_record {
    struct weight *weights; /* by the place of the weight */
    size_t room;
    double passes[PASSES];
    uint64_t pass_count, undisturbed; /* undisturbed: those that have the times */
    struct swn_times computed_passes; /* of passes in which nothing was read: the time of computing all layers */
    size_t reads;                     /* in this pass */
    struct swn_io_load *contend;
    /* Passes without load on the disk; and how much longer a pass of a busy turn takes than those of the turns before
     * and after: load from elsewhere on the machine that lasts for seconds is in all three. */
    struct swn_times rested, longer;
    struct {
        double sum, rested, busy; /* ns: of this turn's passes; means of the newest turns, busy 0: none yet */
        unsigned n;
    } mean;
    /* The disk while it was busy, and right after that, and which values are known. */
    struct swn_disk_model busy, at_rest;
    unsigned busy_known, rest_known;
    unsigned turn; /* passes since the turns began */
    int disturbed; /* times of the present pass do not count */
    struct swn_hook_baseline unwatch;
    size_t computed;             /* number of times since the record was last written */
    struct swn_profile *written; /* or NULL */
};

int swn_record_create(struct swn_record **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : -ENOMEM;
}

/* NULL: no memory, and the weight is not recorded. */
static struct weight *weight_of(struct swn_record *r, const struct swn_weight *weight)
{
    size_t i = (weight->id & (SWN_WEIGHT_MOST - 1)) - 1;
    if (i >= r->room) {
        size_t room = r->room ? r->room : 256;
        while (room <= i)
            room *= 2;
        struct weight *grown = realloc(r->weights, room * sizeof *grown);
        if (!grown)
            return NULL;
        memset(grown + r->room, 0, (room - r->room) * sizeof *grown);
        r->weights = grown;
        r->room = room;
    }
    struct weight *w = &r->weights[i];
    if (w->id != weight->id)
        *w = (struct weight){.id = weight->id};
    return w;
}

void swn_record_computed(struct swn_record *r, const struct swn_weight *weight, double ns, double op_ns,
                         const struct swn_thread_state *t)
{
    struct weight *w = weight_of(r, weight);
    r->computed++;
    if (!w || r->disturbed)
        return;
    swn_times_add(&w->compute, ns);
    swn_times_add(&w->own, op_ns);
    w->flops = t->flops;
    w->small = t->small;
    w->other = t->nonweight; /* in first passes it includes weights that did not count as such yet */
}

void swn_record_read(struct swn_record *r, const struct swn_weight *weight, size_t bytes, double ns)
{
    struct weight *w = weight_of(r, weight);
    r->reads++;
    if (w)
        w->reads[w->read_count++ % READS] = (struct swn_profile_read){bytes, ns / 1e9, 0};
}

void swn_record_released(struct swn_record *r, const struct swn_weight *weight, double ns)
{
    struct weight *w = weight_of(r, weight);
    if (w)
        swn_times_add(&w->release, ns);
}

/* Twice the size, as the program's next allocations are unknown. */
static int has_room(struct swn_engine *e)
{
    return !e->life.forked && swn_engine_resident(e) + 2 * SWN_SCRATCH_WINDOW <= e->budget.limit;
}

static int kind_of(unsigned pass)
{
    return pass / TURN < TURNS ? (int)(pass / TURN % KINDS) : RESTED;
}

static void make_busy(struct swn_record *r, unsigned pass)
{
    int busy = kind_of(pass) == BUSY;
    if (busy != (kind_of(pass - 1) == BUSY))
        swn_io_load_set(r->contend, busy);
    r->disturbed |= busy;
}

/* Passes of a turn of that kind have been added up. */
static void end_turn(struct swn_record *r, int kind)
{
    double mean = r->mean.n ? r->mean.sum / r->mean.n : 0;
    r->mean.sum = r->mean.n = 0;
    if (kind == BUSY)
        r->mean.busy = mean;
    if (kind != RESTED)
        return;
    /* between the two turns, of which the first is two turns back */
    if (r->mean.busy > 0 && r->mean.rested > 0 && mean > 0)
        swn_times_add(&r->longer, r->mean.busy - (r->mean.rested + 2 * mean) / 3);
    r->mean.rested = mean;
    r->mean.busy = 0;
}

/* Measures what the disk gives a program that waits, in the same seconds; the program is made to wait. Returns the ns.
 */
static uint64_t let_rest(struct swn_record *r)
{
    uint64_t begin = swn_now_ns();
    swn_io_load_rest(r->contend);
    r->rest_known = swn_io_load_disk(r->contend, 1, &r->at_rest);
    return swn_now_ns() - begin;
}

/* A pass of the turns has ended. Returns the ns that the program was made to wait. */
static uint64_t take_turns(struct swn_record *r, double ns, double idle_ns)
{
    unsigned pass = r->turn++;
    int kind = kind_of(pass), first = !(pass % TURN), waits = idle_ns > IDLE_MOST * ns;
    if (!first && pass / TURN < TURNS && kind != UNWATCHED) {
        r->mean.sum += ns;
        r->mean.n++;
        if (kind == RESTED)
            swn_times_add(&r->rested, ns);
    }
    if (pass % TURN == TURN - 1 && pass / TURN < TURNS)
        end_turn(r, kind);
    if (kind == BUSY)
        r->busy_known = swn_io_load_disk(r->contend, 0, &r->busy);
    r->disturbed = kind == BUSY; /* the last read may end a little after the pass */
    swn_hook_baseline_pass(&r->unwatch, !first && kind == RESTED && !waits);
    if (kind != UNWATCHED && kind_of(pass + 1) == UNWATCHED && !waits && swn_hook_baseline_begin(&r->unwatch, TURN)) {
        r->turn += TURN;
        r->disturbed = 1;
    } else {
        make_busy(r, pass + 1);
    }
    return kind == BUSY && pass % TURN == TURN - 1 ? let_rest(r) : 0;
}

int swn_record_alloc(struct swn_engine *e)
{
    struct swn_record *r = e->features.record;
    int resumed = r->unwatch.left && !has_room(e) ? swn_hook_baseline_end(&r->unwatch, e->torch)
                                                  : swn_hook_baseline_alloc(&r->unwatch, e->torch, e->counters.allocs);
    if (resumed && r->contend)
        make_busy(r, r->turn);
    return resumed;
}

void swn_record_fork_child(struct swn_record *r)
{
    r->contend = NULL; /* a thread that does not exist here may hold its lock: it is not destroyed */
    r->disturbed = 0;
}

/* Bytes of one read, if weights were streamed. */
static size_t read_bytes(const struct swn_engine *e)
{
    struct swn_layer *layers = calloc(e->weights.count + 1, sizeof *layers);
    for (size_t i = 0; layers && i < e->weights.count; i++)
        layers[i].bytes = e->weights.all[i].range ? swn_weight_bytes(e->weights.all[i].range) : 0;
    size_t bytes = swn_predict_read_bytes(layers, layers ? e->weights.count : 0);
    free(layers);
    return bytes;
}

uint64_t swn_record_pass(struct swn_engine *e, double ns, double idle_ns)
{
    uint64_t paused = 0;
    struct swn_record *r = e->features.record;
    int streams = r->reads != 0;
    r->reads = 0;
    r->pass_count++;
    if (!r->disturbed)
        r->passes[r->undisturbed++ % PASSES] = ns / 1e9;
    if (!r->disturbed && !streams)
        swn_times_add(&r->computed_passes, ns);
    if (r->contend && streams) {
        swn_io_load_set(r->contend, 0);
        r->disturbed = 0;
    } else if (!r->contend && !streams && r->pass_count == SETTLED && has_room(e)) {
        r->contend = swn_io_load_start(e->io, e->config.store_dir, &e->disk.preferred, read_bytes(e));
    } else if (r->contend && r->turn <= TURN * TURNS && swn_io_load_ready(r->contend)) {
        paused = take_turns(r, ns, idle_ns);
        if (r->turn > TURN * TURNS)
            swn_io_load_end(r->contend);
    } else {
        r->disturbed = 0; /* also where it has ended by itself, as its disk failed */
        swn_hook_baseline_pass(&r->unwatch, 0);
    }
    return paused;
}

/* How many times as long a pass takes while the disk is read; 0: not known. On a shared machine the measurement may say
 * little; so this is the mean of the measurement and of the usual value, each weighted by its certainty. */
static double contention(const struct swn_record *r)
{
    double rested = swn_times_median(&r->rested);
    if (!r->longer.n || !(rested > 0))
        return 0;
    double longer = swn_times_median(&r->longer) / rested, varies = swn_times_variance(&r->longer) / (rested * rested);
    double usual = USUAL_S_PER_BYTE * 1e9 * r->busy.bytes_per_ns, usually_varies = usual * usual / 4;
    if (!(usual > 0))
        longer = swn_times_believed(longer, varies);
    else if (r->longer.n <= 2) /* their variation is unknown */
        longer = usual;
    else if (varies > 0)
        longer = (longer * usually_varies + usual * varies) / (usually_varies + varies);
    return 1 + (longer > 0 ? longer : 0);
}

/* Only the weight comes and goes here: the other references of its layer never leave, so with the weight the layer is
 * complete. */
static int put_samples(struct swn_profile_layer *l, const struct weight *w)
{
    double times[SWN_TIMES];
    size_t n = swn_times_copy(&w->compute, times), reads = w->read_count < READS ? w->read_count : READS;
    l->l.compute_s = n ? swn_median(times, n) : -1;
    l->op_s = n ? swn_times_median(&w->own) : -1;
    if (reads) {
        l->reads = calloc(reads, sizeof *l->reads);
        if (!l->reads)
            return -ENOMEM;
        memcpy(l->reads, w->reads, reads * sizeof *l->reads);
        l->read_count = reads;
        for (size_t i = 0; i < reads; i++)
            l->reads[i].references = l->l.depth;
    }
    n = swn_times_copy(&w->release, times);
    if (n) {
        l->releases = calloc(n, sizeof *l->releases);
        if (!l->releases)
            return -ENOMEM;
        l->release_count = n;
        for (size_t i = 0; i < n; i++)
            l->releases[i] = (struct swn_profile_release){times[i], l->l.depth};
    }
    return 0;
}

/* A layer is a weight and the small parameters that belong to it: each tensor is a reference. */
static int put(struct swn_engine *e, struct swn_profile *p, uint32_t id)
{
    const struct swn_range *r = swn_weight_of(e, id)->range;
    const struct weight *w = weight_of(e->features.record, swn_weight_of(e, id));
    char name[32];
    snprintf(name, sizeof name, "block %u", r->id);
    struct swn_profile_layer *l = swn_profile_add(p, name);
    if (!l || !w)
        return -ENOMEM;
    l->l.bytes = swn_weight_bytes(r) + w->small.bytes;
    l->l.depth = 1 + w->small.count;
    l->l.flops = w->flops < (uint64_t)1 << 59 ? w->flops : (uint64_t)1 << 59;
    l->activation_bytes = w->other;
    l->slice_bytes = swn_tensor_of(r)->slice_unit;
    return put_samples(l, w);
}

/* First the learned order, *in_order weights, then those that are in no cycle: read once, or written. */
static size_t all_weights(struct swn_engine *e, uint32_t *ids, size_t most, size_t *in_order)
{
    size_t n = *in_order = swn_plan_gather(e, ids, most);
    unsigned char *seen = calloc(e->weights.count + 1, 1);
    for (size_t i = 0; seen && i < n; i++)
        seen[swn_weight_of(e, ids[i]) - e->weights.all] = 1;
    for (size_t i = 0; seen && i < e->weights.count && n < most; i++)
        if (e->weights.all[i].range && !seen[i] && !swn_tensor_of(e->weights.all[i].range)->written)
            ids[n++] = e->weights.all[i].id;
    free(seen);
    return n;
}

static void put_disk(const struct swn_record *r, struct swn_profile *p)
{
    if (r->busy_known & SWN_DISK_SPEED_SPEED)
        p->busy_alpha = 1e-9 / r->busy.bytes_per_ns;
    if (r->busy_known & SWN_DISK_SPEED_READ)
        p->read_s = r->busy.read_ns / 1e9;
    if (r->busy_known & SWN_DISK_SPEED_WAIT)
        p->wait_s = r->busy.wait_ns / 1e9;
    if (r->busy_known & r->rest_known & SWN_DISK_SPEED_READ)
        p->rest_alpha = 1e-9 / r->at_rest.bytes_per_ns;
}

static int fill(struct swn_engine *e, struct swn_profile *p, uint32_t *ids, size_t n, struct swn_load_place *places)
{
    int rc = 0;
    size_t small = 0;
    p->torch_version = strdup(e->torch ? e->torch->version : "unknown");
    p->passes = e->features.record->pass_count;
    size_t passes = e->features.record->undisturbed < PASSES ? (size_t)e->features.record->undisturbed : PASSES;
    p->latency_s = passes ? swn_median(e->features.record->passes, passes) : -1;
    double times = contention(e->features.record);
    p->busy_latency_s = passes && times > 0 ? times * p->latency_s : -1;
    if (times > 0)
        put_disk(e->features.record, p);
    p->watching_s = swn_hook_baseline_cost(&e->features.record->unwatch);
    for (size_t i = 0; !rc && i < n; i++) {
        const struct swn_range *r = swn_weight_of(e, ids[i])->range;
        rc = put(e, p, ids[i]);
        places[i] = (struct swn_load_place){r->file, r->extent};
        small += rc ? 0 : p->layers[i].l.bytes - swn_weight_bytes(r);
    }
    /* Small parameters count as nonweight bytes, but are parts of layers here. */
    p->other_bytes = e->nonweight.peak_ever > small ? e->nonweight.peak_ever - small : 0;
    return rc;
}

/* The tensor's name, if its bytes come from a store. */
static void put_names(struct swn_profile *p, const struct swn_load_place *places)
{
    char text[512];
    for (size_t i = 0; i < p->layer_count; i++) {
        char *copy = swn_load_tensor(&places[i], text, sizeof text) ? strdup(text) : NULL;
        if (copy) {
            free(p->layers[i].name);
            p->layers[i].name = copy;
        }
    }
}

/* The times of a layer have a long tail, and each pass has some long ones: the medians of MobileNetV2's layers add up
 * to 15 % less than the median of its passes. So the layers' times are scaled to add up to a pass, where passes that
 * only computed are known. Not where the two differ by much: then a pass has other work, too. */
static void add_up_to_a_pass(const struct swn_record *r, struct swn_profile *p, size_t in_order)
{
    double sum = 0;
    for (size_t i = 0; i < in_order; i++)
        sum += p->layers[i].l.compute_s > 0 ? p->layers[i].l.compute_s : 0;
    double factor = r->computed_passes.n >= ENOUGH_PASSES && sum > 0 ? swn_times_median(&r->computed_passes) / sum : 1;
    for (size_t i = 0; i < in_order && factor > 1 && factor < TAIL_MOST; i++)
        if (p->layers[i].l.compute_s > 0) {
            p->layers[i].l.compute_s *= factor;
            p->layers[i].op_s *= factor;
        }
}

/* Replaces the last written record by the present one. 0 or -ENOMEM. Engine lock held. */
static int write_down(struct swn_engine *e)
{
    struct swn_record *r = e->features.record;
    size_t most = e->weights.live * 4 + 16, in_order = 0;
    uint32_t *ids = malloc(most * sizeof *ids);
    struct swn_load_place *places = calloc(most, sizeof *places);
    struct swn_profile *p = swn_profile_new(SWN_PROFILE_MODEL, program_invocation_short_name);
    int rc = -ENOMEM;
    if (ids && places && p)
        rc = fill(e, p, ids, all_weights(e, ids, most, &in_order), places);
    if (!rc) {
        add_up_to_a_pass(r, p, in_order);
        put_names(p, places);
        struct swn_profile *before = r->written;
        r->written = p;
        p = before;
    }
    swn_profile_free(p);
    free(places);
    free(ids);
    r->computed = 0;
    return rc;
}

/* Whether there are enough times for a new record: a program that ends computes no more, and a few operators in between
 * show nothing. */
static int enough(const struct swn_engine *e)
{
    return e->features.record->computed && e->features.record->computed >= e->weights.live;
}

void swn_record_leaving(struct swn_engine *e)
{
    if (enough(e) && !e->life.forked)
        write_down(e);
}

int swn_record_save(struct swn_engine *e)
{
    struct swn_record *r = e->features.record;
    swn_lock(&e->lock);
    struct swn_io_load *contend = r->contend;
    r->contend = NULL;
    swn_unlock(&e->lock);
    if (contend)
        swn_io_load_stop(contend);
    swn_lock(&e->lock);
    int rc = !r->written || enough(e) ? write_down(e) : 0;
    struct swn_profile *p = r->written;
    r->written = NULL;
    swn_unlock(&e->lock);
    if (!rc)
        rc = swn_profile_fit(p);
    /* A child process of the program has the same setting; its empty profile must not replace a full one. */
    if (!rc && (p->layer_count || access(e->config.profile_path, F_OK)))
        rc = swn_profile_save(p, e->config.profile_path);
    swn_profile_free(p);
    return rc;
}
