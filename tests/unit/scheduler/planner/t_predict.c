/* Description: predictions for a budget are those of the plan, and the curve falls from the least budget to the demand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "scheduler/planner/model.h"
#include "scheduler/planner/predict.h"

#define MIB ((uint64_t)1 << 20)
#define LAYERS 40

static struct swn_layer layers[LAYERS];

static struct swn_predict model(double alpha)
{
    for (unsigned i = 0; i < LAYERS; i++) /* every fourth one never leaves */
        layers[i] = (struct swn_layer){i % 4 == 3 ? 4096 : MIB * (1 + i % 5), 1, 100000000, i % 2 ? 2e-3 : -1};
    return (struct swn_predict){.layers = layers, .n = LAYERS, .c = {alpha, 1e-4, 2e-11, 0}, .other_bytes = 3 * MIB};
}

static void test_ends(void **state)
{
    (void)state;
    struct swn_predict p = model(1e-9);
    struct swn_plan plan;
    struct swn_plan_weight weights[LAYERS];
    double compute = 0;
    uint64_t weight_bytes = 0;
    for (unsigned i = 0; i < LAYERS; i++) {
        compute += i % 2 ? 2e-3 : 2e-3; /* measured, or gamma times flops */
        weight_bytes += layers[i].bytes;
    }
    assert_int_equal(swn_predict_demand(&p), weight_bytes + 3 * MIB);
    assert_true(swn_predict_least(&p) < swn_predict_demand(&p) && swn_predict_least(&p) > 3 * MIB + 5 * MIB);
    /* everything fits: only computing is left, all of it */
    assert_int_equal(swn_predict_plan(&p, swn_predict_demand(&p), weights, &plan), LAYERS * 3 / 4);
    assert_true(plan.latency_ns > compute * 1e9 * 0.9999 && plan.latency_ns < compute * 1e9 * 1.0001);
    assert_int_equal(plan.streamed_bytes, 0);
    /* a disk that is far too slow: what is streamed takes as long as reading it */
    p = model(1e-7);
    assert_true(swn_predict_plan(&p, swn_predict_least(&p), weights, &plan) > 0);
    double reading = (double)plan.streamed_bytes * 100 + 0;
    assert_true(plan.streamed_bytes > weight_bytes / 2);
    assert_true(plan.latency_ns > reading * 0.98 && plan.latency_ns < reading * 1.1 + 1e8);
    /* the time of layers that never leave is not lost */
    double sum = 0;
    int n = swn_predict_plan(&p, swn_predict_demand(&p), weights, &plan);
    for (int i = 0; i < n; i++)
        sum += weights[i].compute_ns;
    assert_true(sum > compute * 1e9 * 0.9999 && sum < compute * 1e9 * 1.0001);
}

/* What is read takes its share of the memory from what is computed, for as long as it is read. */
static void test_contention(void **state)
{
    (void)state;
    struct swn_predict p = model(1e-10); /* read in a fraction of the time */
    struct swn_plan alone, contended;
    uint64_t budget = swn_predict_least(&p) + MIB * 4;
    assert_true(swn_predict_plan(&p, budget, NULL, &alone) > 0 && alone.streamed_bytes > 0);
    p.contention = 0.5;
    assert_true(swn_predict_plan(&p, budget, NULL, &contended) > 0);
    double busy = (double)alone.streamed_bytes * 0.1 / alone.latency_ns;
    assert_true(busy > 0.05 && busy < 0.5);
    double more = contended.compute_ns / alone.compute_ns - 1;
    assert_true(more > 0.499 * busy && more < 0.501 * busy);
    assert_true(contended.latency_ns > alone.latency_ns * 1.01);
    assert_true(contended.latency_ns < alone.latency_ns * (1 + 0.5 * busy) * 1.001);
    /* For longer where the disk is slower while the program computes, which is nearly all the time here. */
    p.busy_alpha = 4e-10;
    assert_true(swn_predict_plan(&p, budget, NULL, &contended) > 0);
    more = contended.compute_ns / alone.compute_ns - 1;
    busy = (double)contended.streamed_bytes * 0.4 / contended.latency_ns;
    assert_true(busy > 0.2 && busy < 1);
    assert_true(more > 0.9 * 0.5 * busy && more < 1.1 * 0.5 * busy);
    p.busy_alpha = 0;
    /* nothing is read */
    assert_true(swn_predict_plan(&p, swn_predict_demand(&p), NULL, &contended) > 0);
    p.contention = 0;
    assert_true(swn_predict_plan(&p, swn_predict_demand(&p), NULL, &alone) > 0);
    assert_true(contended.latency_ns == alone.latency_ns);
}

/* A window for one weight only: each is read when the one before has been computed with, and waits for the disk's
 * answer; it has gone when its own operator is done, which leaves the rest of its time for the next one to come. */
static void test_narrow(void **state)
{
    (void)state;
    struct swn_predict_more more[LAYERS] = {0};
    struct swn_predict p = model(1e-9);
    struct swn_plan ready, waits, early;
    p.more = more;
    uint64_t budget = swn_predict_least(&p);
    assert_true(swn_predict_plan(&p, budget, NULL, &ready) > 0 && ready.streamed_bytes > 0);
    p.wait_s = 1e-3;
    assert_true(swn_predict_plan(&p, budget, NULL, &waits) > 0);
    assert_true(waits.latency_ns > ready.latency_ns + 4e6 && waits.latency_ns < ready.latency_ns + LAYERS * 1e6);
    for (size_t i = 0; i < LAYERS; i++)
        more[i].own = 0.2;
    assert_true(swn_predict_plan(&p, budget, NULL, &early) > 0);
    assert_true(early.latency_ns < waits.latency_ns * 0.95);
    p.contention = 0.5; /* an operator's part stays what it was */
    assert_true(swn_predict_plan(&p, budget, NULL, &waits) > 0);
    for (size_t i = 0; i < LAYERS; i++)
        more[i].own = 0;
    assert_true(swn_predict_plan(&p, budget, NULL, &early) > 0);
    assert_true(waits.latency_ns < early.latency_ns * 0.95);
}

/* Operators are watched where something streams. */
static void test_watching(void **state)
{
    (void)state;
    struct swn_predict p = model(1e-10);
    uint64_t budgets[] = {swn_predict_least(&p) + MIB * 4, swn_predict_demand(&p)};
    for (int i = 0; i < 2; i++) {
        struct swn_plan watched, plan;
        p.watching_s = 0;
        assert_true(swn_predict_plan(&p, budgets[i], NULL, &watched) > 0);
        assert_true((watched.streamed_bytes != 0) == !i);
        p.watching_s = 0.1 * watched.latency_ns / 1e9;
        assert_true(swn_predict_plan(&p, budgets[i], NULL, &plan) > 0);
        double part = plan.latency_ns / watched.latency_ns;
        assert_true(i ? part > 0.899 && part < 0.901 : part == 1);
    }
}

/* The disk is slower while the program computes, but not while that waits for it. One that was faster then is no slower
 * at rest. */
static void test_busy_disk(void **state)
{
    (void)state;
    struct swn_plan plan, alone, slower;
    for (int i = 0; i < 2; i++) {
        double alpha = i ? 3e-8 : 1e-9;
        struct swn_predict own = model(alpha), slow = model(4 * alpha), busy = model(alpha);
        uint64_t budget = swn_predict_least(&own) + MIB * 4;
        assert_true(swn_predict_plan(&own, budget, NULL, &alone) > 0 && alone.streamed_bytes > 0);
        assert_true(swn_predict_plan(&slow, budget, NULL, &slower) > 0);
        busy.busy_alpha = 4 * alpha;
        assert_true(swn_predict_plan(&busy, budget, NULL, &plan) > 0);
        assert_true(plan.latency_ns > alone.latency_ns && plan.latency_ns < slower.latency_ns);
        double part = plan.compute_ns / plan.latency_ns, expect = (1 + 3 * part) * alone.latency_ns;
        if (i) /* it waits nearly all the time */
            assert_true(part < 0.1 && plan.latency_ns > 0.97 * expect && plan.latency_ns < 1.03 * expect);
        struct swn_predict fast = model(alpha / 2);
        busy.busy_alpha = alpha / 2;
        assert_true(swn_predict_plan(&fast, budget, NULL, &alone) > 0);
        assert_true(swn_predict_plan(&busy, budget, NULL, &plan) > 0);
        assert_true(plan.latency_ns == alone.latency_ns);
        busy.busy_alpha = alpha / 20; /* no disk is that much faster */
        assert_true(swn_predict_plan(&busy, budget, NULL, &plan) > 0);
        assert_true(plan.latency_ns == alone.latency_ns);
    }
}

/* Most bytes of a model are in its large layers, but none comes in more than a piece. */
static void test_read_bytes(void **state)
{
    (void)state;
    struct swn_layer sizes[] = {{.bytes = MIB}, {.bytes = 3 * MIB}, {.bytes = 32768}, {.bytes = 150 * MIB}};
    assert_int_equal(swn_predict_read_bytes(sizes, 1), MIB);
    assert_int_equal(swn_predict_read_bytes(sizes, 2), (MIB + 9 * MIB) / 4 / 4096 * 4096);
    assert_int_equal(swn_predict_read_bytes(sizes, 3), swn_predict_read_bytes(sizes, 2));
    uint64_t most = swn_predict_read_bytes(sizes, 4);
    assert_true(most > 7 * MIB && most < 8 * MIB && most % 4096 == 0);
    assert_int_equal(swn_predict_read_bytes(sizes, 0), SWN_PREDICT_STREAMED);
}

/* What each read costs beside its bytes is counted once. */
static void test_busy_profile(void **state)
{
    (void)state;
    struct swn_profile *p = swn_profile_new(SWN_PROFILE_MODEL, "app.py");
    struct swn_model_opts none = {0};
    struct swn_model m;
    char path[] = "/tmp/t_predict.XXXXXX.json", why[SWN_MODEL_WHY] = "";
    int fd = mkstemps(path, 5);
    assert_true(p && fd >= 0);
    close(fd);
    swn_profile_add(p, "layer")->l = (struct swn_layer){MIB, 1, 0, 1e-3};
    p->known = SWN_ALPHA | SWN_BETA;
    p->c = (struct swn_coefficients){.alpha = 1e-9, .beta = 1e-4};
    for (int i = 0; i < 3; i++) {
        p->busy_alpha = (double[]){-1, 1e-4 / MIB, 3e-9 + 1e-4 / MIB}[i];
        assert_int_equal(swn_profile_save(p, path), 0);
        int rc = swn_model_load(&m, path, &none, why);
        if (rc)
            fail_msg("%d %s", rc, why);
        double alpha = swn_model_predict(&m).busy_alpha, wanted = i < 2 ? 0 : 3e-9;
        if (!(alpha > wanted - 1e-15 && alpha < wanted + 1e-15))
            fail_msg("%d: %g instead of %g", i, alpha, wanted);
        swn_model_free(&m);
    }
    /* Where it was measured by itself it is no part of the rest. */
    p->busy_alpha = 4e-9;
    p->read_s = 2e-4;
    p->rest_alpha = 2e-9;
    p->wait_s = 3e-4;
    assert_int_equal(swn_profile_save(p, path), 0);
    assert_int_equal(swn_model_load(&m, path, &none, why), 0);
    struct swn_predict known = swn_model_predict(&m);
    assert_true(known.busy_alpha == 4e-9 && known.rest_alpha == 2e-9 && known.read_s == 2e-4);
    assert_true(known.wait_s == 3e-4);
    swn_model_free(&m);
    /* Another device has another disk. */
    struct swn_model_opts nx = {.device = "jetson-nx"};
    assert_int_equal(swn_model_load(&m, path, &nx, why), 0);
    known = swn_model_predict(&m);
    assert_true(known.busy_alpha == 0 && known.rest_alpha == 0 && known.read_s == 0 && known.wait_s == 0);
    swn_model_free(&m);
    unlink(path);
    swn_profile_free(p);
}

/* Where it is known what a read costs the disk, and what the disk gives at rest, that is what counts; references are
 * the program's own time, for each weight that is read. */
static void test_known_reads(void **state)
{
    (void)state;
    struct swn_plan_weight weights[LAYERS];
    struct swn_predict p = model(1e-10);
    struct swn_plan plan, alone;
    uint64_t budget = swn_predict_least(&p) + MIB * 4;
    double reads = 0;
    p.c.beta = p.c.eta = 0;
    p.read_s = 1e-9;
    assert_true(swn_predict_plan(&p, budget, NULL, &alone) > 0);
    p.c.beta = 3e-6;
    p.c.eta = 2e-6;
    int n = swn_predict_plan(&p, budget, weights, &plan);
    assert_true(n > 0 && plan.streamed_bytes == alone.streamed_bytes);
    for (int i = 0; i < n; i++)
        reads += !weights[i].keep;
    double more = plan.latency_ns - alone.latency_ns;
    assert_true(reads > 2 && more > 0.99 * reads * 5e3 && more < 1.01 * reads * 5e3);
    /* A disk that everything waits for. */
    p = model(3e-8);
    p.c.beta = p.c.eta = 0;
    assert_true(swn_predict_plan(&p, budget, NULL, &alone) > 0);
    p.busy_alpha = 3e-8;
    p.rest_alpha = 2e-8;
    p.read_s = 1e-9;
    assert_true(swn_predict_plan(&p, budget, NULL, &plan) > 0);
    assert_true(plan.latency_ns < 0.75 * alone.latency_ns && plan.latency_ns > 0.66 * alone.latency_ns);
    p.rest_alpha = 3e-8;
    p.read_s = 1e-2;
    n = swn_predict_plan(&p, budget, weights, &plan);
    reads = 0;
    for (int i = 0; i < n; i++)
        reads += !weights[i].keep;
    assert_true(plan.latency_ns > (double)plan.streamed_bytes * 30 + reads * 0.99e7);
}

/* With the one weight that is read come the references of all that stays beside it. */
static void test_reads(void **state)
{
    (void)state;
    struct swn_layer some[] = {{MIB, 1, 0, 1e-3}, {4096, 4, 0, 1e-3}, {MIB, 1, 0, 1e-3}, {MIB, 9, 0, 1e-3}};
    assert_true(swn_predict_read_s(some, 1, 1e-4) == 1e-4);
    double all = swn_predict_read_s(some, 4, 1e-4);
    assert_true(all > 4.999e-4 && all < 5.001e-4);
    assert_true(swn_predict_read_s(&some[1], 1, 1e-4) == 1e-4); /* nothing is read */
}

/* Times of a machine are no other's. */
static void test_device(void **state)
{
    (void)state;
    char paths[2][40] = {"/tmp/t_predict.XXXXXX.json", "/tmp/t_predict.XXXXXX.json"}, why[SWN_MODEL_WHY] = "";
    struct swn_profile *p = swn_profile_new(SWN_PROFILE_MODEL, "app.py");
    struct swn_profile *device = swn_profile_new(SWN_PROFILE_DEVICE, "slow");
    close(mkstemps(paths[0], 5));
    close(mkstemps(paths[1], 5));
    swn_profile_add(p, "counted")->l = (struct swn_layer){MIB, 1, 1000000, 1e-3};
    p->layers[0].op_s = 0.25e-3;
    p->wait_s = 1e-4;
    swn_profile_add(p, "not")->l = (struct swn_layer){MIB, 1, 0, 2e-3};
    device->c = (struct swn_coefficients){.alpha = 1e-9, .gamma = 3e-9};
    struct swn_model here;
    p->c = (struct swn_coefficients){.alpha = 1e-9};
    p->known = SWN_ALPHA;
    assert_int_equal(swn_profile_save(p, paths[0]), 0);
    assert_int_equal(swn_model_load(&here, paths[0], &(struct swn_model_opts){0}, why), 0);
    assert_true(swn_model_predict(&here).wait_s == 1e-4);
    swn_model_free(&here);
    p->known = 0;
    for (int i = 0; i < 3; i++) { /* three times as slow; the same, nothing to compare with; nobody knows */
        struct swn_model m;
        struct swn_model_opts opts = {.device = paths[1]};
        device->known = SWN_ALPHA | (i < 2 ? SWN_GAMMA : 0u);
        p->layers[0].l.compute_s = i == 1 ? -1 : 1e-3;
        assert_int_equal(swn_profile_save(p, paths[0]), 0);
        assert_int_equal(swn_profile_save(device, paths[1]), 0);
        assert_int_equal(swn_model_load(&m, paths[0], &opts, why), 0);
        double counted = swn_delay_of(&m.c, &m.layers[0]).ex, other = m.layers[1].compute_s;
        assert_int_equal(swn_model_converted(&m, why), 1);
        double own = i == 1 ? 0 : 0.25; /* of a layer's time, whatever that is there */
        assert_true(m.more[0].own > own - 1e-6 && m.more[0].own < own + 1e-6 && m.more[1].own == 0);
        assert_true(swn_model_predict(&m).wait_s == 0);
        if (i == 0)
            assert_true(counted > 2.9e-3 && counted < 3.1e-3 && other > 5.9e-3 && other < 6.1e-3 &&
                        strstr(why, "1 of 2 layers") && strstr(why, "times 3,"));
        else if (i == 1)
            assert_true(other < 0 && strstr(why, "left out"));
        else
            assert_true(other > 1.9e-3 && other < 2.1e-3 && strstr(why, "2 of 2 layers are those of"));
        swn_model_free(&m);
    }
    unlink(paths[0]);
    unlink(paths[1]);
    swn_profile_free(p);
    swn_profile_free(device);
}

/* A checkpoint of 32768 floats for each name. */
static void write_checkpoint(const char *path, const char *const *names, size_t n)
{
    static const float zeros[32768];
    char header[4096];
    uint64_t length = 0;
    for (size_t i = 0; i < n; i++)
        length += (uint64_t)snprintf(header + length, sizeof header - length,
                                     "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[32768],\"data_offsets\":[%zu,%zu]}",
                                     i ? "," : "{", names[i], i * sizeof zeros, (i + 1) * sizeof zeros);
    header[length++] = '}';
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(&length, sizeof length, 1, f), 1);
    assert_int_equal(fwrite(header, length, 1, f), 1);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(fwrite(zeros, sizeof zeros, 1, f), 1);
    fclose(f);
}

/* Which layer gets which time, those without one are counted, and a profile may have any name. */
static void test_times_of_a_checkpoint(void **state)
{
    (void)state;
    static const char *const names[] = {"weight", "a.weight", "a.b.weight", "a.bc.weight", "z.weight"};
    char path[40] = "/tmp/t_predict.XXXXXX", times[40] = "/tmp/t_predict.XXXXXX", why[SWN_MODEL_WHY] = "";
    struct swn_profile *p = swn_profile_new(SWN_PROFILE_MODEL, "app.py");
    struct swn_model m;
    close(mkstemp(path));
    close(mkstemp(times));
    write_checkpoint(path, names, 5);
    for (size_t i = 0; i < 4; i++)
        swn_profile_add(p, names[(i + 2) % 4])->l = (struct swn_layer){131072, 1, 0, (double)(1 + (i + 2) % 4)};
    swn_profile_add(p, "a.b.c.weight")->l = (struct swn_layer){131072, 1, 0, 1000};
    swn_profile_add(p, "a.")->l = (struct swn_layer){131072, 1, 0, 0.5}; /* a tensor without a name */
    p->known = SWN_ALPHA;
    p->c = (struct swn_coefficients){.alpha = 1e-9};
    assert_int_equal(swn_profile_save(p, times), 0);
    int rc = swn_model_load(&m, path, &(struct swn_model_opts){.profile = times}, why);
    if (rc)
        fail_msg("%d %s", rc, why);
    assert_int_equal(m.n, 5);
    for (size_t i = 0; i < 5; i++) {
        static const struct {
            const char *layer;
            double seconds;
        } wanted[] = {{"", 1}, {"a", 2.5}, {"a.b", 3}, {"a.bc", 4}, {"z", -1}};
        size_t k = 0;
        while (strcmp(m.layer[i], wanted[k].layer))
            assert_true(++k < 5);
        assert_true(m.layers[i].compute_s == wanted[k].seconds);
    }
    assert_int_equal(swn_model_converted(&m, why), 1);
    assert_non_null(strstr(why, "no time for 1 of 5 layers"));
    swn_model_free(&m);
    assert_int_equal(swn_model_load(&m, times, &(struct swn_model_opts){0}, why), 0);
    assert_int_equal(m.n, 6);
    assert_int_equal(swn_model_converted(&m, why), 0);
    swn_model_free(&m);
    unlink(path);
    unlink(times);
    swn_profile_free(p);
}

static void test_curve(void **state)
{
    (void)state;
    struct swn_predict p = model(5e-9);
    struct swn_divide_point curve[12];
    assert_int_equal(swn_predict_curve(&p, curve, 12), 0);
    assert_int_equal(curve[0].budget_bytes, swn_predict_least(&p));
    assert_int_equal(curve[11].budget_bytes, swn_predict_demand(&p));
    for (int i = 1; i < 12; i++) {
        assert_true(curve[i].budget_bytes > curve[i - 1].budget_bytes);
        assert_true(curve[i].latency_s <= curve[i - 1].latency_s * 1.02);
        /* what scheduler/planner/divide.h reads from the curve is what was predicted */
        struct swn_divide_dnn dnn = {.curve = curve, .points = 12, .demand_bytes = curve[11].budget_bytes};
        assert_true(swn_divide_latency(&dnn, curve[i].budget_bytes) <= curve[i].latency_s * 1.0001);
    }
    assert_true(curve[0].latency_s > 1.5 * curve[11].latency_s);
    assert_int_equal(swn_predict_curve(&p, curve, 1), -EINVAL);
    struct swn_predict none = {.layers = layers, .n = 0};
    assert_int_equal(swn_predict_curve(&none, curve, 12), -EINVAL);
}

/* A layer that takes much of the budget, in slices or not. */
static void test_slices(void **state)
{
    (void)state;
    struct swn_predict p = model(2e-10);
    struct swn_predict_more more[LAYERS] = {{0}};
    struct swn_plan_weight weights[LAYERS];
    struct swn_plan whole, sliced;
    layers[20] = (struct swn_layer){100 * MIB, 1, 0, 5e-3};
    p.other_bytes = 40 * MIB;
    uint64_t budget = 90 * MIB;
    assert_true(swn_predict_plan(&p, budget, NULL, &whole) > 0);
    p.more = more;
    more[20].slice_bytes = MIB;
    assert_true(swn_predict_plan(&p, budget, weights, &sliced) > 0);
    for (unsigned i = 0; i < LAYERS * 3 / 4; i++)
        assert_int_equal(weights[i].sliced, weights[i].bytes == 100 * MIB);
    assert_true(sliced.latency_ns < whole.latency_ns * 0.7);
    more[1].slice_bytes = 65536; /* 2 MiB: not worth it */
    assert_true(swn_predict_plan(&p, budget, weights, &sliced) > 0);
    assert_int_equal(weights[1].sliced, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),         cmocka_unit_test(test_contention),
        cmocka_unit_test(test_busy_disk),    cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_watching),     cmocka_unit_test(test_reads),
        cmocka_unit_test(test_device),       cmocka_unit_test(test_read_bytes),
        cmocka_unit_test(test_busy_profile), cmocka_unit_test(test_known_reads),
        cmocka_unit_test(test_curve),        cmocka_unit_test(test_times_of_a_checkpoint),
        cmocka_unit_test(test_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
