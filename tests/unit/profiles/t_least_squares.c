/* Description: fitting finds known coefficients in noisy times, leaves outliers out and refuses what says nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <math.h>
#include <stdio.h>

#include "profiles/least_squares.h"
#include "profiles/profile.h"

#define ALPHA 4e-10
#define BETA 5.2e-5
#define GAMMA 2e-11
#define ETA 3e-7

static uint64_t seed = 88172645463325252ULL;

static double uniform(double lo, double hi)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return lo + (hi - lo) * (double)(seed >> 11) / 9007199254740992.0;
}

static void assert_near(double value, double wanted, double share)
{
    if (!(value >= wanted * (1 - share) && value <= wanted * (1 + share)))
        fail_msg("%g is not within %g %% of %g", value, share * 100, wanted);
}

static void make(struct swn_sample *s, size_t n, double noise, size_t every)
{
    for (size_t i = 0; i < n; i++) {
        s[i].x[0] = uniform(64e3, 16e6);
        s[i].x[1] = floor(uniform(1, 9));
        s[i].y = (ALPHA * s[i].x[0] + BETA * s[i].x[1]) * uniform(1 - noise, 1 + noise);
        if (every && i % every == 0)
            s[i].y *= 20;
    }
}

static void test_exact(void **state)
{
    (void)state;
    struct swn_sample s[40];
    struct swn_fit f;
    make(s, 40, 0, 0);
    assert_int_equal(swn_fit(s, 40, 2, &f), 0);
    assert_near(f.c[0], ALPHA, 1e-6);
    assert_near(f.c[1], BETA, 1e-6);
    assert_true(f.r2 > 0.999999 && f.rms < 1e-9 && f.worst < 1e-9);
    assert_int_equal(f.samples, 40);
    assert_int_equal(f.outliers, 0);
}

static void test_noise_and_outliers(void **state)
{
    (void)state;
    struct swn_sample s[400];
    struct swn_fit f;
    make(s, 400, 0.1, 0);
    assert_int_equal(swn_fit(s, 400, 2, &f), 0);
    assert_near(f.c[0], ALPHA, 0.03);
    assert_near(f.c[1], BETA, 0.3);
    assert_true(f.r2 > 0.95);
    /* every tenth took twenty times as long: plain least squares would be off by a factor */
    make(s, 400, 0.1, 10);
    assert_int_equal(swn_fit(s, 400, 2, &f), 0);
    assert_near(f.c[0], ALPHA, 0.03);
    assert_near(f.c[1], BETA, 0.3);
    assert_true(f.outliers >= 39 && f.outliers <= 60);
    assert_true(f.rms > 0 && f.worst >= f.rms);
}

static void test_refused(void **state)
{
    (void)state;
    struct swn_sample s[10];
    struct swn_fit f;
    for (size_t i = 0; i < 10; i++)
        s[i] = (struct swn_sample){{1e6 * (double)(i + 1), 2 * (double)(i + 1)}, 1e-3 * (double)(i + 1)};
    assert_int_equal(swn_fit(s, 10, 2, &f), -EDOM); /* the second column is a multiple of the first */
    assert_int_equal(swn_fit(s, 10, 1, &f), 0);
    for (size_t i = 0; i < 10; i++)
        s[i].x[1] = 0;
    assert_int_equal(swn_fit(s, 10, 2, &f), -EDOM);
    s[3].x[0] = 0;
    for (size_t i = 0; i < 10; i++)
        s[i].x[0] = 0;
    assert_int_equal(swn_fit(s, 10, 1, &f), -EDOM);
    make(s, 10, 0, 0);
    assert_int_equal(swn_fit(s, 2, 2, &f), -ENODATA);
    assert_int_equal(swn_fit(s, 0, 1, &f), -ENODATA);
    assert_int_equal(swn_fit(s, 10, 3, &f), -EINVAL);
    s[5].y = NAN;
    assert_int_equal(swn_fit(s, 10, 2, &f), -EINVAL);
    s[5].y = -1;
    assert_int_equal(swn_fit(s, 10, 2, &f), -EINVAL);
    assert_non_null(strstr(swn_fit_error(-EDOM), "apart"));
    assert_non_null(strstr(swn_fit_error(-ENODATA), "few"));
}

/* Noise around a coefficient of zero must not make it negative. */
static void test_not_negative(void **state)
{
    (void)state;
    struct swn_sample s[100];
    struct swn_fit f;
    for (int run = 0; run < 50; run++) {
        for (size_t i = 0; i < 100; i++) {
            s[i] = (struct swn_sample){{uniform(1e5, 1e7), 1}, 0};
            s[i].y = ALPHA * s[i].x[0] * uniform(0.8, 1.2);
        }
        assert_int_equal(swn_fit(s, 100, 2, &f), 0);
        assert_true(f.c[0] > 0 && f.c[1] >= 0);
        assert_near(f.c[0], ALPHA, 0.1);
    }
}

static void test_median(void **state)
{
    (void)state;
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2};
    assert_true(swn_median(odd, 3) == 2 && swn_median(even, 4) == 2.5 && swn_median(NULL, 0) == 0);
}

static void test_online(void **state)
{
    (void)state;
    struct swn_online o = {0};
    double c[2];
    assert_int_equal(swn_online_get(&o, c), -ENODATA);
    for (int i = 0; i < 500; i++) {
        double x = uniform(64e3, 16e6);
        swn_online_add(&o, x, (ALPHA * x + 1e-4) * uniform(0.9, 1.1) * (i % 50 == 49 ? 100 : 1));
    }
    assert_int_equal(swn_online_get(&o, c), 0);
    assert_near(c[0], ALPHA, 0.35);  /* a stalled read counts for eight, not for a hundred */
    for (int i = 0; i < 1500; i++) { /* the disk became twice as slow */
        double x = uniform(64e3, 16e6);
        swn_online_add(&o, x, 2 * ALPHA * x + 1e-4);
    }
    assert_int_equal(swn_online_get(&o, c), 0);
    assert_near(c[0], 2 * ALPHA, 0.02);
    assert_near(c[1], 1e-4, 0.2);
    struct swn_online same = {0};
    for (int i = 0; i < 100; i++)
        swn_online_add(&same, 1e6, 1e-3);
    assert_int_equal(swn_online_get(&same, c), -EDOM);
    swn_online_add(&same, NAN, 1);
    assert_int_equal(same.samples, 100);
}

/* From the layers of a model profile to its four coefficients. */
static void test_profile(void **state)
{
    (void)state;
    struct swn_profile *p = swn_profile_new(SWN_PROFILE_MODEL, "test");
    struct swn_profile_read reads[60];
    struct swn_profile_release releases[60];
    for (size_t i = 0; i < 60; i++) {
        char name[16];
        snprintf(name, sizeof name, "layer%zu", i);
        struct swn_profile_layer *l = swn_profile_add(p, name);
        l->l = (struct swn_layer){(uint64_t)uniform(1e5, 1e7), (uint64_t)uniform(1, 7), (uint64_t)uniform(1e6, 1e9), 0};
        l->l.compute_s = GAMMA * (double)l->l.flops * uniform(0.95, 1.05);
        reads[i] = (struct swn_profile_read){l->l.bytes, ALPHA * (double)l->l.bytes + BETA * (double)l->l.depth, 0};
        releases[i] = (struct swn_profile_release){ETA * (double)l->l.depth, 0};
    }
    for (size_t i = 0; i < 60; i++) {
        p->layers[i].reads = &reads[i];
        p->layers[i].releases = &releases[i];
        p->layers[i].read_count = p->layers[i].release_count = 1;
    }
    assert_int_equal(swn_profile_fit(p), 0);
    assert_int_equal(p->known, SWN_ALPHA | SWN_BETA | SWN_GAMMA | SWN_ETA);
    assert_near(p->c.alpha, ALPHA, 1e-3);
    assert_near(p->c.beta, BETA, 1e-3);
    assert_near(p->c.gamma, GAMMA, 0.02);
    assert_near(p->c.eta, ETA, 1e-3);
    for (size_t i = 0; i < 60; i++)
        p->layers[i].release_count = 0;
    assert_int_equal(swn_profile_fit(p), 0);
    assert_int_equal(p->known, SWN_ALPHA | SWN_BETA | SWN_GAMMA);
    assert_int_equal(p->fit[SWN_FIT_OUT].rc, -ENODATA);
    for (size_t i = 0; i < 60; i++)
        p->layers[i].reads = NULL, p->layers[i].releases = NULL;
    swn_profile_free(p);
}

static const char *doubt_of(double beta, double eta, int vary, unsigned bit, struct swn_profile *p)
{
    for (size_t i = 0; i < p->layer_count; i++) {
        struct swn_profile_layer *l = &p->layers[i];
        l->l.depth = vary ? 1 + i % 7 : 5;
        double noise = uniform(0.9, 1.1), bytes = ALPHA * (double)l->l.bytes;
        l->reads[0] = (struct swn_profile_read){l->l.bytes, bytes * noise + beta * (double)l->l.depth, 0};
        l->releases[0] = (struct swn_profile_release){eta > 0 ? eta * (double)l->l.depth : 1e-6 * noise, 0};
    }
    assert_int_equal(swn_profile_fit(p), 0);
    assert_true(p->known & bit);
    p->fit[SWN_FIT_IN].fit.c[1] = 0; /* as in a profile that was read from a file */
    const char *doubt = swn_profile_doubt(p, bit);
    return doubt ? doubt : "";
}

/* What measurements do not tell is said, and what they do is not doubted. */
static void test_doubts(void **state)
{
    (void)state;
    struct swn_profile *p = swn_profile_new(SWN_PROFILE_MODEL, "test");
    for (size_t i = 0; i < 60; i++) {
        struct swn_profile_layer *l = swn_profile_add(p, "layer");
        l->l.bytes = (uint64_t)uniform(1e5, 1e6);
        l->l.flops = 1000 + i;
        l->l.compute_s = i % 2 ? 1e-3 : 3e-3; /* whatever it computes */
        l->reads = calloc(1, sizeof *l->reads);
        l->releases = calloc(1, sizeof *l->releases);
        l->read_count = l->release_count = 1;
    }
    assert_string_equal(doubt_of(1e-3, ETA, 1, SWN_ALPHA, p), "");
    assert_string_equal(doubt_of(1e-3, ETA, 1, SWN_BETA, p), "");
    assert_string_equal(doubt_of(1e-3, ETA, 1, SWN_ETA, p), "");
    assert_true(strstr(doubt_of(1e-3, ETA, 0, SWN_BETA, p), "same number"));
    assert_true(strstr(doubt_of(1e-3, ETA, 0, SWN_ETA, p), "same number"));
    assert_true(strstr(doubt_of(1e-7, ETA, 1, SWN_BETA, p), "references"));
    assert_true(strstr(doubt_of(1e-3, 0, 1, SWN_ETA, p), "explains little"));
    assert_true(strstr(doubt_of(1e-3, ETA, 1, SWN_GAMMA, p), "operations explain little"));
    /* a layer that came with more references than are its own */
    for (size_t i = 0; i < 60; i++)
        p->layers[i].reads[0].references = p->layers[i].releases[0].references = 10 * p->layers[i].l.depth;
    assert_int_equal(swn_profile_fit(p), 0);
    assert_near(p->c.beta, 1e-4, 0.05);
    assert_near(p->c.eta, ETA / 10, 1e-3);
    swn_profile_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),   cmocka_unit_test(test_noise_and_outliers),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_not_negative),
        cmocka_unit_test(test_median),  cmocka_unit_test(test_online),
        cmocka_unit_test(test_profile), cmocka_unit_test(test_doubts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
