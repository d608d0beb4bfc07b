/* Description: the plan keeps to its budget, flags what only a mapping can serve, and is close to the best choice. */
/* timed: how long a plan takes */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>

#include "skeleton/engine/engine_internal.h"
#include "scheduler/planner/plan.h"
#include "scheduler/planner/plan_pieces.h"
#include "scheduler/planner/simulate.h"
#include "tests/unit/support/slowness.h"
#include "tests/unit/support/random.h"
#include "skeleton/core/plan.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define RING_LEAST MIB
#define BANDWIDTH 2.0 /* bytes per ns */
#define LATENCY 1e5

static const struct swn_disk_model usual_disk = {.bytes_per_ns = BANDWIDTH, .read_ns = LATENCY};
/* One whose reads cost nothing but their bytes. */
static const struct swn_disk_model prompt_disk = {.bytes_per_ns = BANDWIDTH};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 8
#else
#define SLOWER 1
#endif

/* Sizes from 64 KiB to 64 MiB, most of them small; in all `speed` times the time the disk needs for them. */
static uint64_t random_nodes(struct swn_plan_weight *weights, size_t n, double speed)
{
    uint64_t total = 0;
    memset(weights, 0, n * sizeof *weights);
    for (size_t i = 0; i < n; i++) {
        weights[i].bytes = (64 * KIB << rnd() % 10) + rnd() % 1024 * 4096;
        if (i && rnd() % 4 == 0)
            weights[i].bytes = weights[i - 1].bytes;
        total += weights[i].bytes;
    }
    for (size_t i = 0; i < n; i++)
        weights[i].compute_ns = uniform(0, 2) * speed * (double)total / BANDWIDTH / (double)n;
    return total;
}

/* What must hold of every plan. */
static void check(const struct swn_plan_weight *weights, size_t n, uint64_t budget, const struct swn_plan *plan)
{
    uint64_t kept = 0, streamed = 0, largest = 0;
    double compute = 0;
    for (size_t i = 0; i < n; i++) {
        assert_false(weights[i].keep && weights[i].oversize);
        assert_true(weights[i].keep_bytes <= weights[i].bytes);
        assert_true(!weights[i].keep_bytes || !weights[i].keep);
        kept += weights[i].keep ? weights[i].bytes : weights[i].keep_bytes;
        streamed += weights[i].keep ? 0 : weights[i].bytes - weights[i].keep_bytes;
        /* Left to the mapping: what no window could hold, and what the chosen one cannot. */
        assert_true(weights[i].bytes <= budget || weights[i].oversize || weights[i].sliced);
        assert_true(!weights[i].oversize || weights[i].bytes > plan->ring_bytes);
        uint64_t tail = weights[i].bytes - weights[i].keep_bytes;
        if (weights[i].sliced) {
            assert_false(weights[i].keep || weights[i].oversize);
            assert_true(weights[i].unit && weights[i].piece && weights[i].piece % weights[i].unit == 0);
            /* Whatever is kept of it, the same slices. */
            assert_int_equal(weights[i].keep_bytes % weights[i].piece, 0);
            assert_true(tail >= weights[i].piece || tail == weights[i].bytes);
            /* No slice is small, where there is a choice: math libraries compute small products in other ways. */
            uint64_t last = 0, least = budget < 8 * MIB && plan->ring_bytes < 4 * MIB ? 256 * KIB : 2 * MIB;
            for (uint64_t at = weights[i].unit; at <= weights[i].bytes; at += weights[i].unit) {
                int end = at + weights[i].unit > weights[i].bytes;
                if (!end && !swn_plan_cuts(&weights[i], at))
                    continue;
                assert_true((end ? weights[i].bytes : at) - last >= least);
                last = at;
            }
            tail = 2 * weights[i].piece; /* one slice computes, one is on its way */
        }
        if (!weights[i].keep && !weights[i].oversize)
            largest = tail > largest ? tail : largest;
        compute += weights[i].compute_ns;
    }
    assert_int_equal(kept, plan->kept_bytes);
    assert_int_equal(streamed, plan->streamed_bytes);
    assert_true(largest <= plan->ring_bytes);
    assert_true(plan->compute_ns >= compute * 0.9999 && plan->compute_ns < compute * 1.0001 + 1);
    double disk = (double)streamed / BANDWIDTH;
    assert_true(plan->latency_ns >= (disk > compute ? disk : compute) * 0.99);
    assert_true(kept + plan->ring_bytes <= budget);
}

static void nothing_to_plan(void **state)
{
    (void)state;
    struct swn_plan_weight weight = {.bytes = MIB};
    struct swn_plan plan;
    assert_int_equal(swn_plan_make(&weight, 0, MIB, &usual_disk, &plan), -EINVAL);
    assert_int_equal(swn_plan_make(NULL, 0, 0, &usual_disk, &plan), -EINVAL);
}

/* What is stored in half the bytes takes half the time to read, and no less of the window. */
static void half_the_bytes(void **state)
{
    (void)state;
    static struct swn_plan_weight weights[32], halved[32];
    struct swn_plan plan, half;
    for (size_t i = 0; i < 32; i++) {
        weights[i] = halved[i] = (struct swn_plan_weight){.bytes = 8 * MIB, .compute_ns = 1e5};
        halved[i].saved = 0.5;
    }
    assert_int_equal(swn_plan_make(weights, 32, 64 * MIB, &prompt_disk, &plan), 0);
    assert_int_equal(swn_plan_make(halved, 32, 64 * MIB, &prompt_disk, &half), 0);
    check(weights, 32, 64 * MIB, &plan);
    assert_true(half.latency_ns > plan.latency_ns * 0.45 && half.latency_ns < plan.latency_ns * 0.55);
    assert_true(half.kept_bytes + half.ring_bytes <= 64 * MIB && half.ring_bytes >= 8 * MIB);
}

/* Each slice is a step of the simulated passes: a weight that no machine has, as a hostile profile says, must not be
 * millions of them. Whatever takes a usual number is sliced all the same. */
static void slices_without_number(void **state)
{
    (void)state;
    struct swn_plan_weight weights[2] = {{.bytes = UINT64_C(1) << 44, .unit = 1, .compute_ns = 1e9},
                                         {.bytes = UINT64_C(1) << 32, .unit = 4096, .compute_ns = 1e9}};
    struct swn_plan plan;
    assert_int_equal(swn_plan_make(weights, 2, 1024 * MIB, &usual_disk, &plan), 0);
    assert_false(weights[0].sliced);
    assert_true(weights[1].sliced);
}

static void all_fits(void **state)
{
    (void)state;
    static struct swn_plan_weight weights[64];
    struct swn_plan plan;
    for (int k = 0; k < 200; k++) {
        size_t n = 1 + rnd() % 64;
        uint64_t total = random_nodes(weights, n, 1), budget = total + (k % 2 ? rnd() % total : 0);
        assert_int_equal(swn_plan_make(weights, n, budget, &usual_disk, &plan), 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(weights[i].keep, 1);
        assert_int_equal(plan.kept_bytes, total);
        assert_int_equal(plan.streamed_bytes, 0);
        assert_true(plan.latency_ns <= plan.compute_ns * 1.0001);
        check(weights, n, budget, &plan);
    }
}

static void within_the_budget(void **state)
{
    (void)state;
    static struct swn_plan_weight weights[48];
    struct swn_plan plan;
    size_t oversize = 0, heads = 0;
    for (int k = 0; k < 8000; k++) {
        size_t n = 1 + rnd() % 48;
        uint64_t total = random_nodes(weights, n, uniform(0, 3));
        uint64_t budget = 8 * MIB + (uint64_t)(uniform(0, 1.05) * (double)total);
        assert_int_equal(swn_plan_make(weights, n, budget, &usual_disk, &plan), 0);
        check(weights, n, budget, &plan);
        for (size_t i = 0; i < n; i++) {
            oversize += weights[i].oversize != 0;
            heads += weights[i].keep_bytes != 0;
        }
    }
    assert_true(oversize > 10 && heads > 0);
}

/* Less than the least window, and a window that only some weights fit. */
static void narrow_windows(void **state)
{
    (void)state;
    struct swn_plan plan;
    struct swn_plan_weight small[2] = {{.bytes = 900 * KIB, .compute_ns = 1e6},
                                       {.bytes = 600 * KIB, .compute_ns = 1e6}};
    assert_int_equal(swn_plan_make(small, 2, 500 * KIB, &usual_disk, &plan), 0);
    assert_true(small[0].oversize && small[1].oversize);
    check(small, 2, 500 * KIB, &plan);
    /* A window of less than a MiB is better than none, where that is all there is. */
    assert_int_equal(swn_plan_make(small, 2, 900 * KIB, &usual_disk, &plan), 0);
    assert_true(plan.ring_bytes >= 600 * KIB && !small[1].oversize);
    check(small, 2, 900 * KIB, &plan);
    /* MobileNetV2's last layers within 4 MiB, and within 3: slices of one MiB or less. */
    for (uint64_t budget = 4 * MIB; budget >= 2 * MIB; budget -= MIB / 2) {
        struct swn_plan_weight last[4] = {{.bytes = 600 * KIB, .compute_ns = 8e6},
                                          {.bytes = 1200 * KIB, .compute_ns = 1e6},
                                          {.bytes = 1600 * KIB, .compute_ns = 3e6},
                                          {.bytes = 5000 * KIB, .compute_ns = 2e6, .unit = 320 * KIB}};
        assert_int_equal(swn_plan_make(last, 4, budget, &usual_disk, &plan), 0);
        assert_true(last[3].sliced && !last[2].oversize);
        check(last, 4, budget, &plan);
    }
    /* A layer that just fits the window next to one that just does not. */
    struct swn_plan_weight close[3] = {{.bytes = 100 * MIB}, {.bytes = 110 * MIB}, {.bytes = 10 * MIB}};
    assert_int_equal(swn_plan_make(close, 3, 105 * MIB, &usual_disk, &plan), 0);
    assert_true(plan.ring_bytes > 0);
    assert_true(close[1].oversize);
    assert_false(close[2].oversize);
    check(close, 3, 105 * MIB, &plan);
}

/* The best time over every set of weights that might be kept, with the windows the plan tries. */
static double best_of_all(const struct swn_plan_weight *given, size_t n, uint64_t budget)
{
    struct swn_plan_weight weights[10];
    double best = -1;
    memcpy(weights, given, n * sizeof *weights);
    for (unsigned set = 0; set < 1U << n; set++) {
        uint64_t kept = 0, largest = 0, tried = 0;
        for (size_t i = 0; i < n; i++) {
            weights[i].keep = set >> i & 1;
            weights[i].oversize = 0;
            weights[i].keep_bytes = 0;
            kept += weights[i].keep ? weights[i].bytes : 0;
            if (!weights[i].keep && weights[i].bytes > largest)
                largest = weights[i].bytes;
        }
        if (kept > budget)
            continue;
        for (size_t i = 0; i < n; i++)
            for (unsigned half = 2; half <= 6; half++) {
                uint64_t window = weights[i].bytes * half / 2 > RING_LEAST ? weights[i].bytes * half / 2 : RING_LEAST;
                if (window < largest || kept + window > budget || window == tried)
                    continue;
                tried = window;
                double t = swn_plan_simulate(weights, n, window, &usual_disk);
                best = best < 0 || t < best ? t : best;
            }
    }
    return best;
}

static void close_to_the_best(void **state)
{
    (void)state;
    struct swn_plan_weight weights[10];
    struct swn_plan plan;
    double worst = 0, sum = 0;
    size_t cases = 0, within = 0;
    for (int k = 0; k < 1200 / SLOWER; k++) {
        size_t n = 3 + rnd() % (SLOWER > 1 ? 6 : 8);
        uint64_t total = random_nodes(weights, n, uniform(0.1, 2));
        uint64_t budget = 8 * MIB + (uint64_t)(uniform(0.2, 1) * (double)total);
        if (total <= budget)
            continue;
        assert_int_equal(swn_plan_make(weights, n, budget, &usual_disk, &plan), 0);
        double best = best_of_all(weights, n, budget);
        if (best < 0) /* a layer larger than the budget: nothing to compare with */
            continue;
        double ratio = plan.latency_ns / best;
        worst = ratio > worst ? ratio : worst;
        sum += ratio;
        cases++;
        within += ratio <= 1.1;
    }
    print_message("%zu cases: %.4f times the best on average, %.3f at worst, %zu within a tenth\n", cases,
                  sum / (double)cases, worst, within);
    assert_true(cases > (size_t)(200 / SLOWER));
    /* Error diffusion on a handful of weights is coarse; most plans are within a tenth of the best all the same. */
    assert_true(worst <= 1.5);
    assert_true(sum <= (double)cases * 1.04);
    assert_true(within * 100 >= cases * 85);
}

static double latency_at(struct swn_plan_weight *weights, size_t n, uint64_t budget)
{
    struct swn_plan plan;
    assert_int_equal(swn_plan_make(weights, n, budget, &usual_disk, &plan), 0);
    check(weights, n, budget, &plan);
    return plan.latency_ns;
}

static void more_budget_is_no_slower(void **state)
{
    (void)state;
    static struct swn_plan_weight weights[40];
    double worst = 0;
    for (int k = 0; k < 200; k++) {
        size_t n = 8 + rnd() % 32;
        uint64_t total = random_nodes(weights, n, uniform(0.1, 2));
        double before = -1;
        for (int step = 0; step <= 20; step++) {
            double now = latency_at(weights, n, 8 * MIB + (uint64_t)((double)total * step / 20));
            if (before > 0 && now / before > worst)
                worst = now / before;
            before = before < 0 || now < before ? now : before;
        }
    }
    print_message("at worst %.4f times the time with less\n", worst);
    assert_true(worst <= 1.25); /* an upper bound of the heuristic, not a property to wish for */
}

/* Convolutions of a ResNet-101: four stages of bottlenecks, weights in fp32. */
static size_t resnet(struct swn_plan_weight *weights, double compute)
{
    static const size_t blocks[] = {3, 4, 23, 3};
    size_t n = 0;
    uint64_t total = 0, in = 64;
    memset(weights, 0, 104 * sizeof *weights);
    weights[n++].bytes = 64 * KIB;
    for (size_t s = 0; s < 4; s++) {
        uint64_t width = (uint64_t)64 << s;
        for (size_t b = 0; b < blocks[s]; b++) {
            weights[n++].bytes = in * width * 4;
            weights[n++].bytes = width * width * 9 * 4;
            weights[n++].bytes = width * width * 16;
            if (!b)
                weights[n++].bytes = in * width * 16;
            in = width * 4;
        }
    }
    assert_true(n <= 104);
    for (size_t i = 0; i < n; i++) {
        weights[i].bytes = weights[i].bytes < 64 * KIB ? 64 * KIB : weights[i].bytes;
        total += weights[i].bytes;
    }
    for (size_t i = 0; i < n; i++) /* much of it is the same for all layers */
        weights[i].compute_ns = compute * (0.7 / (double)n + 0.3 * (double)weights[i].bytes / (double)total);
    return n;
}

static void resnet_101(void **state)
{
    (void)state;
    static struct swn_plan_weight weights[104];
    static const int percent[] = {25, 50, 75};
    size_t n = resnet(weights, 400e6);
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += weights[i].bytes;
    assert_true(n == 104 && total > 150 * MIB && total < 180 * MIB);
    for (size_t k = 0; k < 3; k++) {
        /* The disk is faster than the processor: next to nothing is lost. */
        double t = latency_at(weights, n, total * (uint64_t)percent[k] / 100);
        print_message("%d %%: %.3f of the time with everything kept\n", percent[k], t / 400e6);
        assert_true(t <= 400e6 * 1.05);
    }
    resnet(weights, 40e6); /* a disk of half the processor's speed: bound by what it must read */
    for (size_t k = 0; k < 3; k++) {
        uint64_t budget = total * (uint64_t)percent[k] / 100;
        struct swn_plan plan;
        assert_int_equal(swn_plan_make(weights, n, budget, &usual_disk, &plan), 0);
        check(weights, n, budget, &plan);
        double least = (double)(total - budget + plan.ring_bytes) / BANDWIDTH;
        least = least > 40e6 ? least : 40e6;
        print_message("%d %%: %.3f of what reading takes\n", percent[k], plan.latency_ns / least);
        assert_true(plan.latency_ns <= least * 1.25);
    }
}

/* VGG-19's weights; its last three layers are linear: 4096 x 25088, 4096 x 4096 and 1000 x 4096 floats. */
static uint64_t vgg_nodes(struct swn_plan_weight *weights)
{
    static const uint64_t kib[] = {64,   144,  288,  576,  1152, 2304,       2304,      4608,
                                   9216, 9216, 9216, 9216, 9216, 392 * 1024, 64 * 1024, 16000};
    uint64_t total = 0;
    memset(weights, 0, 16 * sizeof *weights);
    for (size_t i = 0; i < 16; i++) {
        total += weights[i].bytes = kib[i] * KIB;
        weights[i].compute_ns = i < 13 ? 25e6 : 10e6;
    }
    return total;
}

/* Of many small weights several are read at once, however little of them is streamed. */
static void room_for_several_reads(void **state)
{
    (void)state;
    static struct swn_plan_weight weights[104];
    size_t n = resnet(weights, 400e6);
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += weights[i].bytes;
    for (uint64_t percent = 30; percent < 100; percent += 5) {
        struct swn_plan plan;
        uint64_t budget = total * percent / 100;
        assert_int_equal(swn_plan_make(weights, n, budget, &usual_disk, &plan), 0);
        check(weights, n, budget, &plan);
        assert_true(plan.ring_bytes >= budget / 32);
    }
}

struct timed_plan {
    struct swn_plan_candidate *candidate;
    const struct swn_plan_weight *weights;
};

/* What the budget's thread does for a new budget (swn_plan_candidate_solve), which with regions is two plans where the
 * second can gain something, and what `swapnet-partition plan` does. In processor time: others may be at work on the
 * machine. */
static double time_plan(void *arg)
{
    struct timed_plan *t = arg;
    memcpy(t->candidate->weights, t->weights, t->candidate->n * sizeof *t->weights);
    double begin = cpu_ms();
    assert_int_equal(swn_plan_candidate_solve(t->candidate), 0);
    return cpu_ms() - begin;
}

/* Two of three of the weights can be taken in slices, of rows of 1 to 16 KiB. */
static void slice_nodes(struct swn_plan_weight *weights, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        weights[i].unit = i % 3 ? 1024ull << rnd() % 5 : 0;
    }
}

/* n / 4 layers of a transformer, 250 of them of 12 GiB: attention's two weights, 12 and 4 MiB, and two of 16 MiB; times
 * `wide`. */
static uint64_t transformer_nodes(struct swn_plan_weight *weights, size_t n, uint64_t wide)
{
    const uint64_t sizes[] = {12 * MIB * wide, 4 * MIB * wide, 16 * MIB * wide, 16 * MIB * wide};
    uint64_t total = 0;
    memset(weights, 0, n * sizeof *weights);
    for (size_t i = 0; i < n; i++) {
        weights[i].bytes = sizes[i % 4];
        weights[i].compute_ns = uniform(0.8, 1.2) * (double)weights[i].bytes / BANDWIDTH;
        total += weights[i].bytes;
    }
    return total;
}

/* A new budget for a model of 1,000 layers takes less than 5 ms: of small layers and large ones, in slices or not, and
 * where activations have regions, so that a plan without them is made as well if that can be worth it. */
static void a_thousand_layers(void **state)
{
    (void)state;
    static struct swn_plan_weight weights[1000], planned[1000];
    const double most = here_ms(5);
    /* An emulator's time is that of no machine, and half a minute here. */
    const uint64_t step = slowness() > EMULATED ? 6 : 1;
    if (SLOWER > 1)
        skip();
    for (size_t kind = 0; kind < 6; kind++) { /* 7, 12 and 36 GiB */
        uint64_t total = kind < 2 ? random_nodes(weights, 1000, 1) : transformer_nodes(weights, 1000, kind < 4 ? 1 : 3);
        if (kind % 2)
            slice_nodes(weights, 1000);
        for (int regions = 0; regions < 2; regions++) {
            double slowest = 0;
            for (uint64_t part = 1; part < 20; part += step) {
                struct swn_plan_candidate d = {.weights = planned,
                                               .n = 1000,
                                               .nonweight = 12 * MIB,
                                               .goal = total * part / 20 + 12 * MIB,
                                               .disk = usual_disk,
                                               .keep = 1,
                                               .region_extra = regions ? 4 * MIB : 0};
                double took = least_ms(time_plan, &(struct timed_plan){&d, weights}, most);
                slowest = took > slowest ? took : slowest;
            }
            print_message("%.2f of %.2f ms at most, %d GiB%s%s\n", slowest, most, (int)(total >> 30),
                          kind % 2 ? ", slices" : "", regions ? ", regions" : "");
            assert_true(slowest < most);
        }
    }
}

/* What it takes to map a MiB that has been read, in ns. */
#define MAPPING 15e3

/* MobileNetV2's classifier, and after it the layers that the next pass begins with, which no weight is read for: while
 * these compute no more of it can be read ahead than the window holds, and it has gone from there when it is done. */
static void what_follows_an_operator(void **state)
{
    (void)state;
    struct swn_plan_weight weight = {
        .bytes = 8 * MIB, .compute_ns = 10e6, .op_ns = 0.5e6, .unit = MIB, .sliced = 1, .piece = MIB};
    double own = swn_plan_simulate(&weight, 1, 2 * MIB, &prompt_disk);
    double late = 6.0 * (double)MIB / BANDWIDTH; /* six of the eight slices */
    assert_true(own > 9.5e6 + late && own < 10e6 + late);
    weight.op_ns = 0; /* nobody knows: for all we know each slice takes its eighth of it */
    double all = swn_plan_simulate(&weight, 1, 2 * MIB, &prompt_disk);
    assert_true(all > 10e6 * 0.999 && all < 10e6 + (double)MIB / BANDWIDTH);
    /* Whole weights leave the window before what follows them: the next one comes meanwhile. */
    struct swn_plan_weight whole[2] = {{.bytes = MIB, .compute_ns = 2e6}, {.bytes = MIB, .compute_ns = 2e6}};
    double reading = (double)MIB / BANDWIDTH + MAPPING;
    double held = swn_plan_simulate(whole, 2, MIB, &prompt_disk);
    assert_true(held > (4e6 + 2 * reading) * 0.999 && held < (4e6 + 2 * reading) * 1.001);
    whole[0].op_ns = whole[1].op_ns = 0.5e6;
    double left = swn_plan_simulate(whole, 2, MIB, &prompt_disk);
    assert_true(left > (4e6 + 2 * MAPPING) * 0.999 && left < (4e6 + 2 * MAPPING) * 1.001);
}

/* Where the window has room for one weight only, each read waits for the disk's answer; where there is room for the
 * next one meanwhile, the disk is busy all the time. */
static void reads_that_wait(void **state)
{
    (void)state;
    struct swn_plan_weight weights[4];
    for (size_t i = 0; i < 4; i++)
        weights[i] = (struct swn_plan_weight){.bytes = MIB, .compute_ns = 0.1e6};
    struct swn_steps steps = {0};
    struct swn_disk_model disk = {BANDWIDTH, 0, 0, 0};
    double narrow[2], wide[2];
    for (int i = 0; i < 2; i++) {
        narrow[i] = swn_steps_pass(&steps, weights, 4, MIB, &disk, INFINITY);
        wide[i] = swn_steps_pass(&steps, weights, 4, 3 * MIB, &disk, INFINITY);
        disk.wait_ns = LATENCY;
    }
    assert_true(fabs(narrow[1] - narrow[0] - 4 * LATENCY) < 1);
    assert_true(fabs(wide[1] - wide[0]) < 1);
    /* The program's own part of each read is none that the disk waits for, but by what it keeps. */
    double computing[2], sliced[2];
    struct swn_plan_weight whole = {.bytes = 4 * MIB, .compute_ns = 50e6, .sliced = 1, .piece = MIB};
    for (size_t i = 0; i < 4; i++)
        weights[i].compute_ns = 20e6;
    weights[2].keep = 1;
    for (int i = 0; i < 2; i++) {
        disk.lend_ns = i * 1e5;
        computing[i] = swn_steps_pass(&steps, weights, 4, 3 * MIB, &disk, INFINITY);
        sliced[i] = swn_steps_pass(&steps, &whole, 1, 8 * MIB, &disk, INFINITY);
    }
    assert_true(fabs(computing[0] - 80e6 - 3 * MAPPING) < 1 && fabs(computing[1] - computing[0] - 3e5) < 1);
    assert_true(fabs(sliced[0] - 50e6 - 4 * MAPPING) < 1 && fabs(sliced[1] - sliced[0] - 4e5) < 1);
    swn_steps_free(&steps);
}

/* A pass that leaves the window and the disk as it found them says what all four would, also where a limit that is
 * never reached has it look at each. */
static void all_passes_alike(void **state)
{
    (void)state;
    static struct swn_plan_weight weights[60];
    struct swn_steps steps = {0};
    for (int k = 0; k < 2000; k++) {
        size_t n = 1 + rnd() % 60;
        uint64_t total = random_nodes(weights, n, uniform(0, 3)), window = RING_LEAST + rnd() % total;
        for (size_t i = 0; i < n; i++) {
            weights[i].op_ns = uniform(0, 2) * weights[i].compute_ns; /* more than all of it is not believed */
            weights[i].keep = rnd() % 3 == 0;
            weights[i].oversize = !weights[i].keep && weights[i].bytes > window;
            weights[i].sliced = !weights[i].keep && weights[i].bytes >= 2 * MIB && rnd() % 2;
            weights[i].oversize = weights[i].oversize && !weights[i].sliced;
            weights[i].piece = weights[i].sliced ? 64 * KIB + rnd() % (window / 2) : 0;
            uint64_t pieces = weights[i].sliced ? weights[i].bytes / weights[i].piece : 0;
            weights[i].keep_bytes = pieces > 1 ? rnd() % pieces * weights[i].piece : 0;
        }
        struct swn_disk_model disk = {uniform(0.2, 4), uniform(0, 2) * LATENCY, 0, 0};
        double ready = swn_steps_pass(&steps, weights, n, window, &disk, INFINITY);
        disk.wait_ns = uniform(0, 2) * LATENCY;
        double early = swn_steps_pass(&steps, weights, n, window, &disk, INFINITY);
        double all = swn_steps_pass(&steps, weights, n, window, &disk, early * 4);
        assert_true(fabs(early - all) <= 1e-8 * all);
        assert_true(early >= ready * (1 - 1e-8));
    }
    swn_steps_free(&steps);
}

static void vgg(void **state)
{
    (void)state;
    struct swn_plan_weight weights[16];
    struct swn_plan plan;
    for (uint64_t budget = 16; budget <= 560; budget += 16) {
        uint64_t total = vgg_nodes(weights);
        assert_int_equal(swn_plan_make(weights, 16, budget * MIB, &usual_disk, &plan), 0);
        check(weights, 16, budget * MIB, &plan);
        for (size_t i = 0; i < 13; i++)
            assert_false(weights[i].oversize);
        if (budget < 392 && budget >= 256)
            assert_true(weights[13].keep_bytes > 0); /* what is left over keeps its head */
        if (budget >= 432) { /* the largest layer is cut: its head stays, its tail goes through the window */
            double least = (double)(total - budget * MIB) / BANDWIDTH;
            least = budget * MIB > total || least < plan.compute_ns ? plan.compute_ns : least;
            assert_false(weights[13].oversize);
            print_message("%d MiB: %.3f of the limit\n", (int)budget, plan.latency_ns / least);
            assert_true(plan.latency_ns <= least * 1.2);
        }
    }
}

/* Taken in slices of whole rows, the large layers cost no more than reading them, however small the budget. */
static void vgg_sliced(void **state)
{
    (void)state;
    struct swn_plan_weight weights[16];
    struct swn_plan plan;
    for (uint64_t budget = 24; budget <= 560; budget += 8) {
        uint64_t total = vgg_nodes(weights);
        weights[13].unit = 32 * 25088 * 4;
        weights[14].unit = weights[15].unit = 64 * KIB;
        assert_int_equal(swn_plan_make(weights, 16, budget * MIB, &usual_disk, &plan), 0);
        check(weights, 16, budget * MIB, &plan);
        if (budget * MIB >= total)
            break;
        for (size_t i = 0; i < 16; i++)
            assert_false(weights[i].oversize);
        /* While the convolutions compute, no more than the budget can be read ahead of the linear layers. */
        double linear = (double)(weights[13].bytes + weights[14].bytes + weights[15].bytes) - (double)(budget * MIB);
        double least = 13 * 25e6 + (linear > 0 ? linear : 0) / BANDWIDTH;
        least = least < plan.compute_ns ? plan.compute_ns : least;
        print_message("%d MiB: %.3f of the limit, window %d MiB\n", (int)budget, plan.latency_ns / least,
                      (int)(plan.ring_bytes / MIB));
        assert_true(plan.latency_ns <= least * 1.1);
    }
    /* A unit that no window holds twice is no use. */
    struct swn_plan_weight wide[2] = {{.bytes = 64 * MIB, .unit = 33 * MIB}, {.bytes = 64 * MIB, .unit = 64 * KIB}};
    assert_int_equal(swn_plan_make(wide, 2, 60 * MIB, &usual_disk, &plan), 0);
    check(wide, 2, 60 * MIB, &plan);
    assert_true(wide[0].oversize && wide[1].sliced);
}

/* An operator that reads several weights at once finds room for all that is not kept of them, where there is any plan
 * that has it; and where there is none, there is a plan all the same. */
static void several_at_once(void **state)
{
    (void)state;
    const struct swn_disk_model slow = {.bytes_per_ns = 1, .read_ns = LATENCY};
    unsigned held = 0;
    for (int round = 0; round < 400; round++) {
        struct swn_plan_weight weights[48];
        struct swn_plan plan;
        uint64_t total = 0, largest = 0;
        for (size_t i = 0; i < 48; i++) { /* as ViT-B/16's attention: 6.75 and 2.25 MiB, then two of 9 */
            static const uint64_t sizes[] = {27 * MIB / 4, 9 * MIB / 4, 9 * MIB, 9 * MIB};
            weights[i] =
                (struct swn_plan_weight){.bytes = sizes[i % 4] >> (rnd() % 2), .compute_ns = 1e6, .joined = i % 4 == 0};
            total += weights[i].bytes;
            largest = weights[i].bytes > largest ? weights[i].bytes : largest;
        }
        uint64_t budget = 3 * largest + rnd_below(total - 3 * largest);
        assert_int_equal(swn_plan_make(weights, 48, budget, &slow, &plan), 0);
        check(weights, 48, budget, &plan);
        for (size_t i = 0; i < 48; i += 4) {
            uint64_t both = (weights[i].keep ? 0 : weights[i].bytes) + (weights[i + 1].keep ? 0 : weights[i + 1].bytes);
            assert_true(both <= plan.ring_bytes);
            held += !weights[i].keep && !weights[i + 1].keep;
        }
        for (size_t i = 0; i < 48; i++)
            weights[i].joined = i < 47; /* all of them in one operator */
        assert_int_equal(swn_plan_make(weights, 48, budget, &slow, &plan), 0);
        check(weights, 48, budget, &plan);
    }
    assert_true(held > 400);
}

/* Times that differ by a few percent, so that "within one percent" is not transitive. */
static void choice_is_a_total_order(void **state)
{
    (void)state;
    struct swn_plan plans[12];
    size_t not_fastest = 0;
    for (int k = 0; k < 5000; k++) {
        size_t n = 1 + rnd_below(12);
        double least = 1e300;
        for (size_t i = 0; i < n; i++) {
            plans[i] = (struct swn_plan){.latency_ns = 1000 + (double)rnd_below(80),
                                         .streamed_bytes = 10 + rnd_below(6),
                                         .ring_bytes = 1 + rnd_below(3)};
            least = plans[i].latency_ns < least ? plans[i].latency_ns : least;
        }
        const struct swn_plan chosen = plans[swn_plan_choose(plans, n)];
        assert_true(chosen.latency_ns <= least * (1 + SWN_PLAN_TIE));
        for (size_t i = 0; i < n; i++)
            assert_true(plans[i].latency_ns > least * (1 + SWN_PLAN_TIE) ||
                        plans[i].streamed_bytes >= chosen.streamed_bytes);
        not_fastest += chosen.latency_ns > least;
        for (int again = 0; again < 5; again++) {
            for (size_t i = n; i > 1; i--) {
                size_t j = rnd_below(i);
                struct swn_plan other = plans[j];
                plans[j] = plans[i - 1];
                plans[i - 1] = other;
            }
            assert_memory_equal(&plans[swn_plan_choose(plans, n)], &chosen, sizeof chosen);
        }
    }
    assert_true(not_fastest > 100);
}

static void nothing_kept(void **state)
{
    (void)state;
    struct swn_plan_weight weights[16];
    struct swn_plan plan;
    for (uint64_t budget = 64; budget <= 640; budget += 96) {
        uint64_t total = vgg_nodes(weights);
        weights[13].unit = 32 * 25088 * 4;
        assert_int_equal(swn_plan_stream_all(weights, 16, budget * MIB, &usual_disk, &plan), 0);
        assert_int_equal(plan.streamed_bytes, total);
        assert_int_equal(plan.ring_bytes, budget * MIB * 15 / 16);
        assert_int_equal(weights[13].sliced, weights[13].bytes > plan.ring_bytes);
        assert_int_equal(weights[14].oversize, weights[14].bytes > plan.ring_bytes);
        check(weights, 16, budget * MIB, &plan);
        for (size_t i = 0; i < 16; i++)
            assert_true(!weights[i].keep && !weights[i].keep_bytes);
    }
    assert_int_equal(swn_plan_stream_all(weights, 0, MIB, &usual_disk, &plan), -EINVAL);
}

static struct swn_plan plan_of(struct swn_plan_weight *weights, const double (*layers)[2], size_t n, double budget_mib,
                               double speed)
{
    const struct swn_disk_model disk = {.bytes_per_ns = speed, .read_ns = LATENCY};
    struct swn_plan plan;
    for (size_t i = 0; i < n; i++)
        weights[i] =
            (struct swn_plan_weight){.bytes = (uint64_t)(layers[i][0] * (double)MIB), .compute_ns = layers[i][1] * 1e6};
    assert_int_equal(swn_plan_make(weights, n, (uint64_t)(budget_mib * (double)MIB), &disk, &plan), 0);
    return plan;
}

/* A window is made of whole huge pages where the plan loses nothing by it, least of all a weight to the mapping. */
static void whole_huge_pages(void **state)
{
    (void)state;
    struct swn_plan_weight weights[4];
    static const double some[4][2] = {{2.25, 2.8}, {7.75, 5}, {6.75, 0.875}, {13.5, 1}}; /* MiB, ms */
    struct swn_plan plan = plan_of(weights, some, 4, 26.25, 4.1);
    assert_int_equal(plan.ring_bytes, 8 * MIB); /* 7.75 would do */
    static const double large[4][2] = {{0.25, 0.333}, {13.5, 6.333}, {6.5, 2.5}, {11.5, 3}};
    plan = plan_of(weights, large, 4, 8.25, 3.8);
    assert_true(weights[1].oversize && weights[2].keep && weights[3].oversize);
    assert_int_equal(plan.ring_bytes, MIB);
}

/* Small weights come in slices where the disk takes longer for them than their operator, and for all that does not fit
 * for most of the pass. */
static void which_small_weights_gain(void **state)
{
    (void)state;
    const uint64_t weight = 8 * MIB, budget = 256 * MIB;
    const double reading = (double)weight / BANDWIDTH;
    assert_true(swn_plan_gains_by_slices(weight, budget, 0.9 * reading, BANDWIDTH));
    assert_false(swn_plan_gains_by_slices(weight, budget, 1.1 * reading, BANDWIDTH));
    assert_false(swn_plan_gains_by_slices(weight, budget, 0, BANDWIDTH)); /* nobody knows yet */
    assert_false(swn_plan_gains_by_slices(weight / 2 - 1, budget, 0.1 * reading, BANDWIDTH));
    assert_false(swn_plan_gains_by_slices(weight, 64 * weight, 0.9 * reading, BANDWIDTH));
    assert_true(swn_plan_short_of_disk(budget + weight, budget, 1.5 * reading, BANDWIDTH));
    assert_false(swn_plan_short_of_disk(budget + weight, budget, 1.6 * reading, BANDWIDTH));
    assert_false(swn_plan_short_of_disk(budget, budget, 0, BANDWIDTH));
    assert_false(swn_plan_short_of_disk(weight, budget, 0, BANDWIDTH));
}

/* GPT-2 of 12 blocks whose matrices can be taken in slices of half of them, but for two, and a head of a third of all
 * weights in rows: where computing takes as long as reading what a budget leaves, neither waits long for the other. The
 * window and what each read costs are in it, so it is not the limit; with the head's kept rows first it was 1.43. */
static void neither_waits_in_gpt2(void **state)
{
    (void)state;
    static const struct swn_plan_weight block[] = {
        {.bytes = 27 * MIB / 4, .compute_ns = 1.03e6, .unit = 27 * MIB / 8},
        {.bytes = 9 * MIB / 4, .compute_ns = 0.7e6},
        {.bytes = 9 * MIB, .compute_ns = 1.5e6, .unit = 9 * MIB / 2},
        {.bytes = 9 * MIB, .compute_ns = 1.25e6},
    };
    struct swn_plan_weight weights[49] = {0};
    struct swn_plan plan;
    for (size_t i = 0; i < 48; i++)
        weights[i] = block[i % 4];
    weights[48] = (struct swn_plan_weight){.bytes = 2356 * MIB / 16, .compute_ns = 23e6, .unit = 192 * KIB};
    for (unsigned i = 0; i < 6; i++) {
        double speed = 2 + 0.25 * i;
        const struct swn_disk_model disk = {speed, LATENCY, 0, 0};
        for (uint64_t budget = 160; budget <= 440; budget += 20) {
            assert_int_equal(swn_plan_predict(weights, 49, budget * MIB, &disk, &plan), 0);
            double reading = (double)(471 - budget) * (double)MIB / speed;
            assert_true(plan.latency_ns <= 1.27 * (reading > plan.compute_ns ? reading : plan.compute_ns));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_to_plan),
        cmocka_unit_test(all_fits),
        cmocka_unit_test(slices_without_number),
        cmocka_unit_test(within_the_budget),
        cmocka_unit_test(narrow_windows),
        cmocka_unit_test(close_to_the_best),
        cmocka_unit_test(more_budget_is_no_slower),
        cmocka_unit_test(resnet_101),
        cmocka_unit_test(room_for_several_reads),
        cmocka_unit_test(a_thousand_layers),
        cmocka_unit_test(what_follows_an_operator),
        cmocka_unit_test(reads_that_wait),
        cmocka_unit_test(all_passes_alike),
        cmocka_unit_test(vgg),
        cmocka_unit_test(vgg_sliced),
        cmocka_unit_test(several_at_once),
        cmocka_unit_test(choice_is_a_total_order),
        cmocka_unit_test(nothing_kept),
        cmocka_unit_test(half_the_bytes),
        cmocka_unit_test(whole_huge_pages),
        cmocka_unit_test(which_small_weights_gain),
        cmocka_unit_test(neither_waits_in_gpt2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
