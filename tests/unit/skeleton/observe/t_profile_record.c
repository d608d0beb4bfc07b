/* Description: a profile holds every weight in the order it is read, what was done with it, and outlives the model. */
/* wraps: swn_now_ns swn_io_load_set swn_io_load_disk swn_io_load_rest swn_io_load_ready */
#define _GNU_SOURCE
#include "tests/unit/support/sliced_op.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "skeleton/observe/io_load.h"
#include "profiles/disk_speed.h"
#include "profiles/profile.h"
#include "skeleton/observe/profile_record.h"
#include "skeleton/core/op_window.h"

#define WEIGHTS 12
#define WEIGHT_BYTES ((size_t)1 << 20)
#define PASSES 30

static struct tensor weights[WEIGHTS];
static struct swn_engine *const e = &swn_engine_one;

static void pass(void)
{
    static const enum swn_use use = SWN_USE_WEIGHT;
    for (unsigned i = 0; i < WEIGHTS; i++) {
        struct swn_op op;
        struct tensor *t = &weights[i];
        op_open(&op, &t, &use, 0); /* time goes by */
        op_close(&op);
        op_open(&op, &t, &use, 1);
        op_close(&op);
    }
}

/* As op_open, with operations, and small parameters: one of 4 bytes before each, and others of 8. */
static void read_counted(struct tensor *t, uint64_t before, uint64_t flops, size_t small)
{
    struct swn_op op = {.name = "aten::test",
                        .n = 1,
                        .flops_before = before,
                        .flops = flops,
                        .small_before = {1, 4},
                        .small = {small, 8 * small}};
    op.args[0] = (struct swn_arg){.data = t->own, .bytes = t->len, .use = SWN_USE_WEIGHT};
    swn_engine_op_begin(&op);
    CHECK(tensor_right(t, (uintptr_t)__atomic_load_n(&t->word, __ATOMIC_ACQUIRE)));
    swn_engine_op_end(&op);
}

static void counted_pass(void)
{
    for (unsigned i = 0; i < WEIGHTS; i++)
        read_counted(&weights[i], i ? 10 : 1000, 100 * (i + 1), i % 3);
}

static struct swn_profile *load(const char *path)
{
    struct swn_profile *p;
    char why[SWN_PROFILE_WHY] = "";
    if (swn_profile_load(&p, path, why)) {
        fprintf(stderr, "%s\n", why);
        _exit(1);
    }
    return p;
}

static void run(size_t budget, const char *path)
{
    CHECK(engine_begin(budget, SWN_CONFIG_AUTO, NULL) == 0);
    snprintf(e->config.profile_path, sizeof e->config.profile_path, "%s", path);
    CHECK(swn_record_create(&e->features.record) == 0);
    for (unsigned i = 0; i < WEIGHTS; i++)
        CHECK(tensor_make(&weights[i], WEIGHT_BYTES + i * 65536, i + 1));
    for (unsigned i = 0; i < 6; i++)
        pass(); /* old enough to be weights */
    for (unsigned k = 0; k < PASSES; k++)
        counted_pass();
}

/* What must hold with and without streaming. */
static void check(const struct swn_profile *p)
{
    CHECK(p->layer_count == WEIGHTS);
    CHECK(p->passes >= PASSES && p->latency_s > 0);
    size_t first = 0;
    double op_s = 0, compute_s = 0;
    while (first < WEIGHTS && p->layers[first].l.bytes >= WEIGHT_BYTES + 65536)
        first++;
    for (size_t i = 0; i < WEIGHTS; i++) { /* a cycle: it may begin anywhere */
        const struct swn_profile_layer *l = &p->layers[(first + i) % WEIGHTS];
        /* its own small parameters and operations, and those up to the next weight */
        CHECK(l->l.bytes == WEIGHT_BYTES + i * 65536 + 8 * (i % 3) + 4);
        CHECK(l->l.compute_s > 0 && l->l.depth == 1 + i % 3 + 1);
        CHECK(l->op_s > 0);
        op_s += l->op_s;
        compute_s += l->l.compute_s;
        CHECK(l->l.flops == 100 * (i + 1) + (i + 1 < WEIGHTS ? 10 : 1000));
    }
    /* Each operator has others behind it. Of one weight alone both are medians of different passes, and may differ by
     * what a busy machine does. */
    CHECK(op_s < compute_s);
}

static void profile_path(char *path, size_t size)
{
    snprintf(path, size, "%s/profile.json", getenv("XDG_RUNTIME_DIR"));
}

static struct swn_profile *saved(void)
{
    profile_path(e->config.profile_path, sizeof e->config.profile_path);
    CHECK(swn_record_save(e) == 0);
    return load(e->config.profile_path);
}

static unsigned long long read_bytes(void)
{
    unsigned long long bytes = 0;
    char line[64];
    FILE *f = fopen("/proc/self/io", "re");
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "read_bytes: %llu", &bytes);
    if (f)
        fclose(f);
    return bytes;
}

/* The disk is made busy for some passes, and is left alone after them. */
static void in_turns(void)
{
    unsigned long long before = read_bytes();
    for (unsigned i = 0; i < 20000 && read_bytes() - before < (16 << 20); i++) {
        counted_pass();
        usleep(10000);
    }
    for (unsigned i = 0; i < 100; i++) {
        counted_pass();
        usleep(10000);
    }
    usleep(200000); /* the last read */
    before = read_bytes();
    CHECK(before > 0);
    for (unsigned i = 0; i < 50; i++) {
        counted_pass();
        usleep(1000);
    }
    CHECK(read_bytes() == before);
}

static unsigned rests;

static void without_streaming(void *arg)
{
    (void)arg;
    run(128 * MIB, "/dev/null");
    in_turns();
    struct swn_profile *p = saved();
    check(p);
    for (size_t i = 0; i < WEIGHTS; i++)
        CHECK(p->layers[i].read_count == 0);
    CHECK(p->busy_latency_s >= p->latency_s);
    CHECK(p->busy_alpha > 0 && p->busy_alpha < 1e-3);
    CHECK(rests == 8 && p->rest_alpha < 1e-3 && p->read_s < 1 && p->wait_s < 1); /* each turn beside the disk */
    CHECK((p->known & (SWN_ALPHA | SWN_GAMMA)) == SWN_GAMMA);
    swn_profile_free(p);
}

static int disk_busy;
void __real_swn_io_load_set(struct swn_io_load *c, int busy);
void __wrap_swn_io_load_set(struct swn_io_load *c, int busy);
void __wrap_swn_io_load_set(struct swn_io_load *c, int busy)
{
    disk_busy = busy;
    __real_swn_io_load_set(c, busy);
}

static int not_ready; /* for turns, whatever the disk says */
int __real_swn_io_load_ready(struct swn_io_load *c);
int __wrap_swn_io_load_ready(struct swn_io_load *c);
int __wrap_swn_io_load_ready(struct swn_io_load *c)
{
    return !not_ready && __real_swn_io_load_ready(c);
}

static double disk_alpha; /* 0: the disk's own; below: not known */
static unsigned disk_known = SWN_DISK_SPEED_SPEED;
unsigned __real_swn_io_load_disk(struct swn_io_load *c, int rest, struct swn_disk_model *out);
unsigned __wrap_swn_io_load_disk(struct swn_io_load *c, int rest, struct swn_disk_model *out);
unsigned __wrap_swn_io_load_disk(struct swn_io_load *c, int rest, struct swn_disk_model *out)
{
    if (disk_alpha > 0)
        *out =
            (struct swn_disk_model){.bytes_per_ns = (rest ? 2e-9 : 1e-9) / disk_alpha, .read_ns = 7e4, .wait_ns = 3e4};
    return disk_alpha > 0 ? disk_known : disk_alpha < 0 ? 0 : __real_swn_io_load_disk(c, rest, out);
}

void __real_swn_io_load_rest(struct swn_io_load *c);
void __wrap_swn_io_load_rest(struct swn_io_load *c);
void __wrap_swn_io_load_rest(struct swn_io_load *c)
{
    rests++;
    __real_swn_io_load_rest(c);
}

static double contend_alpha(struct swn_io_load *c, int rest)
{
    struct swn_disk_model disk;
    return swn_io_load_disk(c, rest, &disk) ? 1e-9 / disk.bytes_per_ns : 0;
}

/* A machine that becomes slower all the time, or for some seconds now and then, says nothing of the disk; a busy disk
 * does all the same. Unless each pass is as long as it likes. */
static double busy_by(unsigned most, double ramp_ns, unsigned wave, double noise_ns, double busy_ns)
{
    unsigned dice = 1;
    not_ready = 1; /* on a slow machine the disk would be for some of these, which take as long as they take */
    run(128 * MIB, "/dev/null");
    not_ready = 0;
    unsigned turns = 0; /* passes since it was busy first; it is when there is a file to be read */
    for (unsigned k = 0; k < 20000 && turns < most; k++) {
        turns += turns || disk_busy;
        double ns = 1e7 + ramp_ns * turns + (wave && turns / wave % 2 ? 5e6 : 0);
        if (turns) /* how many passes go before is another matter each time */
            ns += noise_ns * (double)rand_r(&dice) / RAND_MAX;
        pthread_mutex_lock(&e->lock);
        swn_record_pass(e, ns + (disk_busy ? busy_ns : 0), 0);
        pthread_mutex_unlock(&e->lock);
        usleep(turns ? 100 : 2000);
    }
    CHECK(turns == most);
    struct swn_profile *p = saved();
    CHECK(p->busy_latency_s >= p->latency_s && p->latency_s > 0);
    double by = (p->busy_latency_s - p->latency_s) / p->latency_s;
    int known = disk_alpha > 0, all = disk_known & SWN_DISK_SPEED_READ;
    CHECK(fabs(p->busy_alpha - (known ? disk_alpha : -1)) < 1e-15);
    CHECK(fabs(p->rest_alpha - (known && all ? disk_alpha / 2 : -1)) < 1e-15);
    CHECK(fabs(p->read_s - (known && all ? 7e-5 : -1)) < 1e-12);
    CHECK(fabs(p->wait_s - (known && disk_known & SWN_DISK_SPEED_WAIT ? 3e-5 : -1)) < 1e-12);
    swn_profile_free(p);
    return by;
}

/* What is known of the disk is written down, and nothing else. */
static void known_disk(void *arg)
{
    disk_known = *(unsigned *)arg;
    disk_alpha = 0.48e-9;
    busy_by(80, 0, 0, 1e4, 1e6);
}

static void test_known_disk(void **state)
{
    (void)state;
    unsigned known[] = {SWN_DISK_SPEED_SPEED, SWN_DISK_SPEED_SPEED | SWN_DISK_SPEED_READ,
                        SWN_DISK_SPEED_SPEED | SWN_DISK_SPEED_WAIT,
                        SWN_DISK_SPEED_SPEED | SWN_DISK_SPEED_READ | SWN_DISK_SPEED_WAIT};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(run_alone(known_disk, &known[i], 60), 0);
}

static void drifting(void *arg)
{
    const double *of = arg;
    disk_alpha = of[5];
    double by = busy_by(80, of[0], (unsigned)of[1], 0, of[2]);
    CHECK(by >= of[3] && by <= of[4]);
}

static void test_drifting(void **state)
{
    (void)state;
    double cases[][6] = {{0, 0, 0, 0, 1e-6},      {5e4, 0, 0, 0, 1e-6},      {0, 40, 0, 0, 0.01},
                         {0, 0, 1e6, 0.09, 0.11}, {2e4, 0, 1e6, 0.05, 0.11}, {0, 40, 1e6, 0.05, 0.12}};
    static const double alphas[] = {-1, 0.48e-9};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        cases[i / 2][5] = alphas[i % 2];
        assert_int_equal(run_alone(drifting, cases[i / 2], 60), 0);
    }
}

/* Where what was measured says little, it is what a disk of that speed usually does; where it says much, that. */
static void unsure(void *arg)
{
    const double *of = arg;
    disk_alpha = 0.48e-9; /* 2.1 GB/s: 5 % */
    double by = busy_by((unsigned)of[4], 0, 0, of[0], of[1]);
    CHECK(by >= of[2] && by <= of[3]);
}

static void test_unsure(void **state)
{
    (void)state;
    double cases[][5] = {{1e7, 0, 0.02, 0.08, 80},
                         {1e7, 5e5, 0.02, 0.08, 80},
                         {1e4, 0, 0, 0.005, 80},
                         {1e4, 2e6, 0.19, 0.21, 80},
                         {1e7, 0, 0.0499, 0.0501, 18}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(run_alone(unsure, cases[i], 60), 0);
}

static void stopped_for_a_while(void)
{
    pid_t parent = getpid(), child = fork();
    if (!child) {
        kill(parent, SIGSTOP);
        usleep(1500000);
        kill(parent, SIGCONT);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
}

static struct swn_io_load *contend(void)
{
    struct swn_io_load *c = swn_io_load_start(e->io, e->config.store_dir, &e->disk.preferred, 3 * MIB);
    for (int i = 0; i < 3000 && !swn_io_load_ready(c); i++)
        usleep(10000);
    CHECK(swn_io_load_ready(c));
    return c;
}

/* What it says of the disk is what was read, and not more than passed meanwhile; not at all while nothing ran. Returns
 * how many times as slow the disk seems after the process has stood still for a while. */
static double slower_after_a_stop(void)
{
    struct swn_io_load *c = contend();
    CHECK(contend_alpha(c, 0) == 0);
    uint64_t begin = swn_now_ns();
    swn_io_load_set(c, 1);
    for (int i = 0; i < 3000 && !(contend_alpha(c, 0) > 0); i++)
        usleep(10000);
    double alpha = contend_alpha(c, 0), passed = (double)(swn_now_ns() - begin) / 1e9;
    CHECK(alpha > 0 && alpha * (double)SWN_IO_LOAD_LEAST <= passed);
    begin = swn_now_ns();
    stopped_for_a_while();
    usleep(100000);
    passed = (double)(swn_now_ns() - begin) / 1e9;
    double after = contend_alpha(c, 0);
    CHECK(passed > 1 && after > 0);
    CHECK(contend_alpha(c, 1) == 0);
    swn_io_load_set(c, 0);
    swn_io_load_stop(c);
    return after / alpha;
}

/* On a busy machine the disk may really be slower after the stop, but not each time. */
static void busy_disk(void *arg)
{
    (void)arg;
    run(128 * MIB, "/dev/null");
    double least = slower_after_a_stop();
    for (int i = 0; i < 4 && least >= 5; i++) {
        double slower = slower_after_a_stop();
        least = slower < least ? slower : least;
    }
    CHECK(least < 5);
}

/* Whoever waits while it reads is not kept waiting for long, and it reads no more afterwards. */
static void resting_disk(void *arg)
{
    (void)arg;
    run(128 * MIB, "/dev/null");
    struct swn_io_load *c = contend();
    for (int i = 0; i < 200 && !(contend_alpha(c, 1) > 0); i++) {
        uint64_t begin = swn_now_ns();
        swn_io_load_rest(c);
        CHECK(swn_now_ns() - begin < 2000000000); /* a tenth of that, and what a busy machine makes of it */
    }
    CHECK(contend_alpha(c, 1) > 0 && contend_alpha(c, 0) == 0);
    struct swn_disk_model disk = {0};
    for (int i = 0; i < 30; i++)
        swn_io_load_rest(c);
    unsigned known = swn_io_load_disk(c, 1, &disk);
    CHECK(known & SWN_DISK_SPEED_SPEED && disk.bytes_per_ns > 0 && disk.read_ns > 0 && disk.wait_ns >= 0);
    /* Whenever it is told otherwise, also between two reads: it goes on. */
    for (int i = 0; i < 500; i++) {
        swn_io_load_set(c, i % 2);
        usleep((unsigned)i * 7 % 300);
    }
    struct swn_disk_model after = {0};
    for (int i = 0; i < 3; i++)
        swn_io_load_rest(c);
    CHECK(swn_io_load_disk(c, 1, &after) && memcmp(&after, &disk, sizeof disk));
    swn_io_load_end(c);
    uint64_t begin = swn_now_ns();
    swn_io_load_rest(c); /* there is nobody to wait for */
    CHECK(swn_now_ns() - begin < 100000000);
    swn_io_load_stop(c);
}

static void with_streaming(void *arg)
{
    char path[300] = "";
    (void)arg;
    run(8 * MIB, "/dev/null");
    profile_path(path, sizeof path);
    snprintf(e->config.profile_path, sizeof e->config.profile_path, "%s", path);
    for (unsigned i = 0; i < WEIGHTS; i++)
        tensor_free(&weights[i]); /* as Python does before the process ends */
    CHECK(swn_record_save(e) == 0);
    struct swn_profile *p = load(path);
    check(p);
    size_t reads = 0;
    for (size_t i = 0; i < WEIGHTS; i++) {
        const struct swn_profile_layer *l = &p->layers[i];
        reads += l->read_count;
        for (size_t k = 0; k < l->read_count; k++)
            CHECK(l->reads[k].references == l->l.depth && l->reads[k].bytes < l->l.bytes + 4096);
        for (size_t k = 0; k < l->release_count; k++)
            CHECK(l->releases[k].references == l->l.depth);
    }
    CHECK(reads > WEIGHTS && p->busy_latency_s < 0);
    CHECK(p->fit[SWN_FIT_IN].fit.samples == reads);
    swn_profile_free(p);
}

static _Atomic uint64_t stands; /* the clock, at this time; 0: it does not */
uint64_t __real_swn_now_ns(void);
uint64_t __wrap_swn_now_ns(void);
uint64_t __wrap_swn_now_ns(void)
{
    uint64_t at = atomic_load(&stands);
    return at ? at : __real_swn_now_ns();
}

/* Every layer takes longer now and then, and in every pass some do. What all are said to take is a pass. */
static void tails(void *arg)
{
    double sum = 0;
    (void)arg;
    run(128 * MIB, "/dev/null");
    atomic_store(&stands, __real_swn_now_ns()); /* it moves when an operator has computed */
    for (unsigned k = 0; k < 4 * PASSES; k++)
        for (unsigned i = 0; i < WEIGHTS; i++) {
            read_counted(&weights[i], 0, 100, 0);
            atomic_fetch_add(&stands, (k + i) % 4 ? 500000 : 1000000);
        }
    struct swn_profile *p = saved();
    for (size_t i = 0; i < p->layer_count; i++)
        sum += p->layers[i].l.compute_s;
    CHECK(p->layer_count == WEIGHTS && sum > 0.9 * p->latency_s && sum < 1.1 * p->latency_s);
    swn_profile_free(p);
}

/* A program that waits for its next input computes nothing meanwhile: not its last layer either. */
static void idle(void *arg)
{
    double sum = 0;
    (void)arg;
    run(128 * MIB, "/dev/null");
    for (unsigned k = 0; k < 4 * PASSES; k++) {
        for (unsigned i = 0; i < WEIGHTS; i++)
            read_counted(&weights[i], 0, 100, 0);
        usleep(50000);
    }
    for (size_t i = 0; i < e->weights.count; i++)
        sum += e->weights.all[i].range ? e->weights.all[i].compute_ns / 1e9 : 0;
    CHECK(sum < 0.04);
    struct swn_profile *p = saved();
    CHECK(p->layer_count == WEIGHTS && p->latency_s < 0.04);
    for (size_t i = 0; i < p->layer_count; i++)
        CHECK(p->layers[i].l.compute_s < 0.04);
    swn_profile_free(p);
}

/* An operator that reads several weights: what it computes belongs to the last of them, whatever the others were
 * thought to compute before that one was known. */
static void several(void *arg)
{
    char path[300] = "";
    struct tensor *both[2] = {&weights[0], &weights[1]};
    (void)arg;
    CHECK(engine_begin(128 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    profile_path(path, sizeof path);
    snprintf(e->config.profile_path, sizeof e->config.profile_path, "%s", path);
    CHECK(swn_record_create(&e->features.record) == 0);
    CHECK(tensor_make(&weights[0], WEIGHT_BYTES, 1) && tensor_make(&weights[2], WEIGHT_BYTES + 131072, 3));
    for (unsigned i = 0; i < 200; i++) {
        read_counted(&weights[0], 0, 100, 5);
        read_counted(&weights[2], 0, 100, 5);
    }
    CHECK(tensor_make(&weights[1], WEIGHT_BYTES + 65536, 2));
    for (unsigned i = 0; i < 200; i++) {
        struct swn_op op = {.name = "aten::test", .n = 2, .flops = 100, .small = {5, 40}};
        for (unsigned k = 0; k < 2; k++)
            op.args[k] = (struct swn_arg){.data = both[k]->own, .bytes = both[k]->len, .use = SWN_USE_WEIGHT};
        swn_engine_op_begin(&op);
        swn_engine_op_end(&op);
        read_counted(&weights[2], 0, 100, 5);
    }
    CHECK(swn_record_save(e) == 0);
    struct swn_profile *p = load(path);
    CHECK(p->layer_count == 3);
    for (size_t i = 0; i < 3; i++) {
        const struct swn_layer *l = &p->layers[i].l;
        int first = l->bytes < WEIGHT_BYTES + 65536;
        CHECK(l->flops == (first ? 0u : 100u) && (first ? l->depth == 1 : l->depth >= 6));
        CHECK(l->compute_s >= 0 && (l->compute_s > 0) == !first);
    }
    swn_profile_free(p);
}

/* A plan for any budget has to know in which slices a weight can be lent, though none is while all are in memory. */
static void slices(void *arg)
{
    static const size_t right_from[] = {0, 3 * MIB, SIZE_MAX};
    const size_t row = 4096, bytes = 16 * MIB;
    struct tensor large[3];
    (void)arg;
    CHECK(engine_begin(128 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    CHECK(swn_record_create(&e->features.record) == 0);
    for (unsigned i = 0; i < 3; i++)
        CHECK(tensor_make(&large[i], bytes + i * 65536, i + 1));
    op_age();
    for (unsigned k = 0; k < 8; k++)
        for (unsigned i = 0; i < 3; i++) {
            op_shape = i + 1;
            op_right_from = right_from[i];
            CHECK(op_sliced(&large[i], row, SIZE_MAX) == 0);
        }
    profile_path(e->config.profile_path, sizeof e->config.profile_path);
    CHECK(swn_record_save(e) == 0);
    struct swn_profile *p = load(e->config.profile_path);
    CHECK(p->layer_count == 3);
    for (unsigned i = 0; i < 3; i++) {
        const struct swn_profile_layer *l = &p->layers[i];
        size_t of = (l->l.bytes - bytes) / 65536;
        CHECK(of < 3 && l->slice_bytes == (of == 0 ? 65536 : of == 1 ? 4 * MIB : 0));
    }
    swn_profile_free(p);
}

static void test_slices(void **state)
{
    (void)state;
    assert_int_equal(run_alone(slices, NULL, 60), 0);
}

static void test_several(void **state)
{
    (void)state;
    assert_int_equal(run_alone(several, NULL, 60), 0);
}

/* Each operator makes a tensor. `made` more of the pass's are made outside of any. */
static void making_pass(unsigned made, unsigned to_watch_us)
{
    for (unsigned i = 0; i < WEIGHTS; i++) {
        struct tensor result;
        if (engine_watched)
            read_counted(&weights[i], 0, 100, 0);
        else
            CHECK(tensor_right(&weights[i], weights[i].own));
        atomic_fetch_add(&stands, 1000 * (engine_watched ? 300 + to_watch_us : 300));
        for (unsigned k = 0; k < 1 + (i ? 0 : made); k++) {
            CHECK(tensor_make(&result, MIB, 1));
            tensor_free(&result);
        }
    }
}

/* Some passes of a profile go by without the hook, and what it costs is how much shorter those are. Nothing else that
 * is written down comes from them. */
static void unwatched(void *arg)
{
    (void)arg;
    run(128 * MIB, "/dev/null");
    atomic_store(&stands, swn_now_ns());
    unsigned without = 0;
    for (unsigned passes = 0; without < 9 && passes < 5000; passes++) {
        making_pass(0, 100);
        without += !engine_watched;
        usleep(1000); /* until the disk is ready to be busy */
    }
    CHECK(without == 9);
    for (unsigned k = 0; k < 100; k++) /* until all turns are over */
        making_pass(0, 100);
    CHECK(engine_watched);
    struct swn_profile *p = saved();
    CHECK(p->layer_count == WEIGHTS && p->watching_s > 0.249 * p->latency_s && p->watching_s < 0.251 * p->latency_s);
    for (size_t i = 0; i < WEIGHTS; i++)
        CHECK(p->layers[i].l.compute_s < 0.5 * p->latency_s);
    swn_profile_free(p);
}

/* How many tensors the next pass makes cannot be told here. */
static void always_watched(void *arg)
{
    (void)arg;
    run(128 * MIB, "/dev/null");
    atomic_store(&stands, swn_now_ns());
    for (unsigned passes = 0; passes < 1000; passes++) {
        making_pass(passes % 3, 0);
        usleep(1000);
        CHECK(engine_watched);
    }
    struct swn_profile *p = saved();
    CHECK(p->latency_s > 0 && p->watching_s < 0);
    swn_profile_free(p);
}

/* A process without weights, started by one that has some, inherits its settings. */
static void empty(void *arg)
{
    char path[300] = "", text[4] = "";
    (void)arg;
    CHECK(engine_begin(8 * MIB, SWN_CONFIG_AUTO, NULL) == 0);
    profile_path(path, sizeof path);
    snprintf(e->config.profile_path, sizeof e->config.profile_path, "%s", path);
    CHECK(swn_record_create(&e->features.record) == 0);
    FILE *f = fopen(path, "w");
    CHECK(f && fputs("abc", f) >= 0 && fclose(f) == 0);
    CHECK(swn_record_save(e) == 0);
    f = fopen(path, "r");
    CHECK(f && fread(text, 1, 3, f) == 3 && !strcmp(text, "abc") && fclose(f) == 0);
    unlink(path);
    CHECK(swn_record_save(e) == 0 && access(path, F_OK) == 0);
}

static void test_empty(void **state)
{
    (void)state;
    assert_int_equal(run_alone(empty, NULL, 60), 0);
}

static void test_without_streaming(void **state)
{
    (void)state;
    assert_int_equal(run_alone(without_streaming, NULL, 60), 0);
}

static void test_resting_disk(void **state)
{
    (void)state;
    assert_int_equal(run_alone(resting_disk, NULL, 90), 0);
}

static void test_busy_disk(void **state)
{
    (void)state;
    assert_int_equal(run_alone(busy_disk, NULL, 90), 0);
}

static void test_with_streaming(void **state)
{
    (void)state;
    assert_int_equal(run_alone(with_streaming, NULL, 60), 0);
}

static void test_unwatched(void **state)
{
    (void)state;
    assert_int_equal(run_alone(unwatched, NULL, 90), 0);
    assert_int_equal(run_alone(always_watched, NULL, 90), 0);
}

static void test_idle(void **state)
{
    (void)state;
    assert_int_equal(run_alone(idle, NULL, 90), 0);
}

static void test_tails(void **state)
{
    (void)state;
    assert_int_equal(run_alone(tails, NULL, 60), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_streaming),
        cmocka_unit_test(test_with_streaming),
        cmocka_unit_test(test_known_disk),
        cmocka_unit_test(test_busy_disk),
        cmocka_unit_test(test_resting_disk),
        cmocka_unit_test(test_drifting),
        cmocka_unit_test(test_unsure),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_unwatched),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_tails),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
