/* Description: profiles survive writing and reading; whatever is wrong in a file is refused with a text that says what.
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

#include "profiles/profile.h"

static struct swn_profile *read_text(const char *text)
{
    struct swn_profile *p = NULL;
    char why[SWN_PROFILE_WHY] = "";
    if (swn_profile_parse(&p, text, strlen(text), why))
        fail_msg("%s: %s", why, text);
    return p;
}

static void refuse(const char *text, const char *expected)
{
    struct swn_profile *p = NULL;
    char why[SWN_PROFILE_WHY] = "";
    int rc = swn_profile_parse(&p, text, strlen(text), why);
    if (rc != -EINVAL || p || !strstr(why, expected))
        fail_msg("%d '%s' instead of '%s': %.300s", rc, why, expected, text);
}

static struct swn_profile *example(void)
{
    struct swn_profile *p = swn_profile_new(SWN_PROFILE_MODEL, "app.py");
    p->torch_version = strdup("2.13.0");
    p->other_bytes = 12345678;
    p->passes = 42;
    p->latency_s = 0.125;
    p->busy_latency_s = 0.25;
    p->busy_alpha = 4e-10;
    p->rest_alpha = 3e-10;
    p->read_s = 0.0002;
    p->wait_s = 0.0001;
    p->watching_s = 0.01;
    for (int i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "features.%d.weight", i);
        struct swn_profile_layer *l = swn_profile_add(p, name);
        l->l = (struct swn_layer){1000000u * (unsigned)(i + 1), 1 + (unsigned)i % 2, 1u << (10 + i), 0.001 * (i + 1)};
        l->op_s = 0.0005 * (i + 1);
        l->activation_bytes = 4096;
        l->slice_bytes = 65536u * (unsigned)i;
        l->read_count = 2;
        l->reads = calloc(2, sizeof *l->reads);
        l->reads[0] = (struct swn_profile_read){l->l.bytes, 1e-3, 0};
        l->reads[1] = (struct swn_profile_read){l->l.bytes / 2, 6e-4, 3};
        l->release_count = 1;
        l->releases = calloc(1, sizeof *l->releases);
        l->releases[0] = (struct swn_profile_release){1e-6, (uint64_t)i};
    }
    p->layers[4].l.compute_s = -1;
    return p;
}

static void test_round_trip(void **state)
{
    (void)state;
    struct swn_profile *p = example();
    assert_int_equal(swn_profile_fit(p), 0);
    char path[] = "/tmp/swn-profile-XXXXXX", why[SWN_PROFILE_WHY];
    close(mkstemp(path));
    assert_int_equal(swn_profile_save(p, path), 0);
    struct swn_profile *q;
    assert_int_equal(swn_profile_load(&q, path, why), 0);
    unlink(path);
    assert_int_equal(q->kind, SWN_PROFILE_MODEL);
    assert_string_equal(q->name, p->name);
    assert_string_equal(q->torch_version, p->torch_version);
    assert_int_equal(q->other_bytes, p->other_bytes);
    assert_int_equal(q->passes, p->passes);
    assert_true(q->latency_s == p->latency_s && q->busy_latency_s == p->busy_latency_s);
    assert_true(q->busy_alpha == p->busy_alpha && q->rest_alpha == p->rest_alpha && q->read_s == p->read_s);
    assert_true(q->wait_s == p->wait_s && q->watching_s == p->watching_s);
    assert_int_equal(q->known, p->known);
    assert_true(q->c.alpha > p->c.alpha * 0.999 && q->c.alpha < p->c.alpha * 1.001);
    assert_int_equal(q->fit[SWN_FIT_IN].fit.samples, p->fit[SWN_FIT_IN].fit.samples);
    assert_int_equal(q->layer_count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(q->layers[i].name, p->layers[i].name);
        assert_int_equal(q->layers[i].l.bytes, p->layers[i].l.bytes);
        assert_int_equal(q->layers[i].l.depth, p->layers[i].l.depth);
        assert_int_equal(q->layers[i].l.flops, p->layers[i].l.flops);
        assert_true(q->layers[i].op_s == p->layers[i].op_s);
        assert_int_equal(q->layers[i].read_count, 2);
        assert_int_equal(q->layers[i].slice_bytes, p->layers[i].slice_bytes);
        assert_int_equal(q->layers[i].reads[1].bytes, p->layers[i].reads[1].bytes);
        assert_int_equal(q->layers[i].reads[0].references, 0);
        assert_int_equal(q->layers[i].reads[1].references, 3);
        assert_int_equal(q->layers[i].release_count, 1);
        assert_int_equal(q->layers[i].releases[0].references, i);
    }
    assert_true(q->layers[4].l.compute_s < 0);
    swn_profile_free(p);
    swn_profile_free(q);
    assert_int_equal(swn_profile_load(&q, "/nonexistent/profile", why), -ENOENT);
    assert_int_equal(swn_profile_load(&q, "/dev/zero", why), -EFBIG);
}

static struct swn_profile *device_example(void)
{
    struct swn_profile *p = swn_profile_new(SWN_PROFILE_DEVICE, "disk vda");
    p->c.alpha = 3.5e-10;
    p->known = SWN_ALPHA;
    p->queue = (struct swn_queue_depth){16, 524288, calloc(3, sizeof *p->queue.measured), 3};
    p->queue.measured[0] = (struct swn_read_rate){1, 131072, 1.25e9};
    p->queue.measured[1] = (struct swn_read_rate){16, 524288, 2.9e9};
    p->queue.measured[2] = (struct swn_read_rate){8, 1048576, 2.875e9};
    return p;
}

static void test_queue(void **state)
{
    (void)state;
    struct swn_profile *p = device_example(), *q = NULL;
    char *text = swn_profile_text(p), why[SWN_PROFILE_WHY];
    assert_int_equal(swn_profile_parse(&q, text, strlen(text), why), 0);
    free(text);
    assert_int_equal(q->queue.depth, 16);
    assert_int_equal(q->queue.request_bytes, 524288);
    assert_int_equal(q->queue.measured_count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(q->queue.measured[i].depth, p->queue.measured[i].depth);
        assert_int_equal(q->queue.measured[i].request_bytes, p->queue.measured[i].request_bytes);
        assert_true(q->queue.measured[i].bytes_per_s == p->queue.measured[i].bytes_per_s);
    }
    swn_profile_free(p);
    swn_profile_free(q);
}

/* A name that is not UTF-8 must not cost the profile. */
static void test_odd_name(void **state)
{
    (void)state;
    struct swn_profile *p = swn_profile_new(SWN_PROFILE_MODEL, "caf\xe9");
    char *text = swn_profile_text(p), why[SWN_PROFILE_WHY];
    struct swn_profile *q;
    assert_non_null(text);
    assert_int_equal(swn_profile_parse(&q, text, strlen(text), why), 0);
    assert_string_equal(q->name, "caf?");
    free(text);
    swn_profile_free(p);
    swn_profile_free(q);
}

#define DEVICE(rest) "{\"schema\":1,\"kind\":\"device\",\"name\":\"x\"" rest "}"
#define COEFFICIENTS(rest) ",\"coefficients\":{" rest "}"
#define MODEL(rest) "{\"schema\":1,\"kind\":\"model\",\"name\":\"x\",\"other_bytes\":0" rest "}"
#define LAYER(rest) MODEL(",\"layers\":[{\"name\":\"l\",\"bytes\":1,\"depth\":1" rest "}]")

#define QUEUE(rest) DEVICE(COEFFICIENTS("\"alpha_s_per_byte\":1e-9") ",\"queue\":" rest)
#define MEASURED(rest) QUEUE("{\"depth\":8,\"request_bytes\":4096,\"measured\":" rest "}")

static void test_accepted(void **state)
{
    (void)state;
    struct swn_profile *p = read_text(DEVICE(COEFFICIENTS(
        "\"alpha_s_per_byte\":1e-9,\"beta_s_per_reference\":null") ","
                                                                   "\"estimates\":[\"alpha_s_per_byte\"],\"notes\":["
                                                                   "\"n\"],\"memory_bytes\":8"));
    assert_int_equal(p->known, SWN_ALPHA);
    assert_int_equal(p->estimates, SWN_ALPHA);
    assert_int_equal(p->memory_bytes, 8);
    assert_int_equal(p->queue.depth, 0); /* as older ones, which say nothing of it */
    swn_profile_free(p);
    p = read_text(QUEUE("null"));
    assert_int_equal(p->queue.depth, 0);
    swn_profile_free(p);
    p = read_text(QUEUE("{\"depth\":4096,\"request_bytes\":1073741824}"));
    assert_int_equal(p->queue.depth, 4096);
    assert_int_equal(p->queue.request_bytes, 1u << 30);
    assert_int_equal(p->queue.measured_count, 0);
    swn_profile_free(p);
    p = read_text(LAYER(",\"compute_s\":null"));
    assert_int_equal(p->layer_count, 1);
    assert_true(p->layers[0].l.compute_s < 0 && p->latency_s < 0 && p->busy_latency_s < 0 && p->busy_alpha < 0 &&
                p->rest_alpha < 0 && p->read_s < 0 && p->wait_s < 0 && p->watching_s < 0 && !p->known);
    swn_profile_free(p);
}

static void test_refused(void **state)
{
    (void)state;
    refuse("", "line");
    refuse("[]", "object");
    refuse("{", "line");
    refuse("{\"schema\":1,\"schema\":1}", "duplicate");
    refuse("{\"schema\":2,\"kind\":\"device\",\"name\":\"x\"}", "\"schema\"");
    refuse("{\"schema\":\"1\",\"kind\":\"device\",\"name\":\"x\"}", "\"schema\"");
    refuse("{\"schema\":1,\"kind\":\"thing\",\"name\":\"x\"}", "\"kind\"");
    refuse("{\"schema\":1,\"kind\":3,\"name\":\"x\"}", "\"kind\"");
    refuse("{\"schema\":1,\"kind\":\"device\"}", "\"name\"");
    refuse("{\"schema\":1,\"kind\":\"device\",\"name\":\"\"}", "\"name\"");
    refuse(DEVICE(""), "\"coefficients\"");
    refuse(DEVICE(",\"layers\":[]"), "unknown key \"layers\"");
    refuse(DEVICE(COEFFICIENTS("")), "alpha");
    refuse(DEVICE(COEFFICIENTS("\"alpha_s_per_byte\":-1e-9")), "alpha");
    refuse(DEVICE(COEFFICIENTS("\"alpha_s_per_byte\":1e400")), "line");
    refuse(DEVICE(COEFFICIENTS("\"alpha_s_per_byte\":1e300")), "alpha");
    refuse(DEVICE(COEFFICIENTS("\"alpha_s_per_byte\":\"1\"")), "alpha");
    refuse(DEVICE(COEFFICIENTS("\"alpha\":1e-9")), "unknown key \"alpha\"");
    refuse(DEVICE(COEFFICIENTS("\"alpha_s_per_byte\":1e-9") ",\"estimates\":[\"eta_s_per_reference\"]"), "estimates");
    refuse(DEVICE(COEFFICIENTS("\"alpha_s_per_byte\":1e-9") ",\"estimates\":[1]"), "estimates");
    refuse(DEVICE(COEFFICIENTS("\"alpha_s_per_byte\":1e-9") ",\"estimates\":{}"), "estimates");
    refuse(DEVICE(COEFFICIENTS("\"alpha_s_per_byte\":1e-9") ",\"notes\":[1]"), "notes");
    refuse(DEVICE(COEFFICIENTS("\"alpha_s_per_byte\":1e-9") ",\"memory_bytes\":-1"), "memory_bytes");
    refuse(DEVICE(COEFFICIENTS("\"alpha_s_per_byte\":1e-9") ",\"fit\":{\"swap_in\":{}}"), "samples");
    refuse(DEVICE(COEFFICIENTS("\"alpha_s_per_byte\":1e-9") ",\"fit\":{\"else\":null}"), "else");
    refuse("{\"schema\":1,\"kind\":\"model\",\"name\":\"x\",\"layers\":[]}", "other_bytes");
    refuse(MODEL(""), "\"layers\"");
    refuse(MODEL(",\"layers\":{}"), "\"layers\"");
    refuse(MODEL(",\"layers\":[3]"), "layer 0");
    refuse(MODEL(",\"layers\":[{}]"), "layer 0: \"name\"");
    refuse(MODEL(",\"layers\":[{\"name\":\"l\",\"depth\":1}]"), "bytes");
    refuse(LAYER(",\"flops\":1.5"), "flops");
    refuse(LAYER(",\"flops\":2000000000000000000"), "flops");
    refuse(LAYER(",\"compute_s\":\"fast\""), "compute_s");
    refuse(LAYER(",\"swap_in\":[[1]]"), "swap_in");
    refuse(LAYER(",\"swap_in\":[[0,1]]"), "swap_in");
    refuse(LAYER(",\"swap_in\":[[1,-1]]"), "swap_in");
    refuse(LAYER(",\"swap_in\":[[1,1,0]]"), "references");
    refuse(LAYER(",\"swap_in\":[[1,1,1.5]]"), "references");
    refuse(LAYER(",\"swap_in\":[[1,1,1,1]]"), "swap_in");
    refuse(LAYER(",\"swap_in\":3"), "swap_in");
    refuse(LAYER(",\"swap_out\":[[1]]"), "swap_out");
    refuse(LAYER(",\"swap_out\":[[1,-1]]"), "references");
    refuse(LAYER(",\"swap_out\":[null]"), "swap_out");
    refuse(LAYER(",\"colour\":1"), "layer 0: unknown key \"colour\"");
    refuse(MODEL(",\"passes\":true,\"layers\":[]"), "passes");
    refuse(MODEL(",\"latency_s\":[],\"layers\":[]"), "latency_s");
}

static void test_refused_queues(void **state)
{
    (void)state;
    refuse(QUEUE("[]"), "\"queue\"");
    refuse(QUEUE("8"), "\"queue\"");
    refuse(QUEUE("{}"), "depth");
    refuse(QUEUE("{\"depth\":8}"), "\"queue\"");
    refuse(QUEUE("{\"request_bytes\":4096}"), "depth");
    refuse(QUEUE("{\"depth\":8,\"request_bytes\":4096,\"colour\":1}"), "unknown key \"colour\"");
    refuse(QUEUE("{\"depth\":8,\"depth\":8,\"request_bytes\":4096}"), "duplicate");
    for (size_t i = 0; i < 8; i++) {
        static const char *const bad[] = {"0", "-1", "4097", "1.5", "\"8\"", "true", "null", "9223372036854775807"};
        char text[300];
        snprintf(text, sizeof text, QUEUE("{\"depth\":%s,\"request_bytes\":4096}"), bad[i]);
        refuse(text, "depth");
        snprintf(text, sizeof text, MEASURED("[[%s,4096,1]]"), bad[i]);
        refuse(text, "depth");
    }
    for (size_t i = 0; i < 9; i++) {
        static const char *const bad[] = {
            "0", "-4096", "4095", "5000", "4096.0", "1073745920", "[]", "18446744073709551616", "null"};
        char text[300];
        snprintf(text, sizeof text, QUEUE("{\"depth\":8,\"request_bytes\":%s}"), bad[i]);
        refuse(text, i == 7 ? "line" : "whole pages");
        snprintf(text, sizeof text, MEASURED("[[8,%s,1]]"), bad[i]);
        refuse(text, i == 7 ? "line" : "whole pages");
    }
    refuse(MEASURED("{}"), "\"measured\"");
    refuse(MEASURED("[8]"), "triples");
    refuse(MEASURED("[[8,4096]]"), "triples");
    refuse(MEASURED("[[8,4096,1,1]]"), "triples");
    refuse(MEASURED("[[8,4096,0]]"), "triples");
    refuse(MEASURED("[[8,4096,-1]]"), "triples");
    refuse(MEASURED("[[8,4096,1e14]]"), "triples");
    refuse(MEASURED("[[8,4096,\"1\"]]"), "triples");
    char many[2000] = DEVICE(COEFFICIENTS("\"alpha_s_per_byte\":1e-9") ",\"queue\":{\"depth\":8,"
                                                                       "\"request_bytes\":4096,\"measured\":[[8,"
                                                                       "4096,1]");
    many[strlen(many) - 1] = 0; /* the document's last brace */
    for (size_t i = 0; i < SWN_READS_MOST; i++)
        strcat(many, ",[8,4096,1]");
    strcat(many, "]}}");
    refuse(many, "at most 64");
    refuse(MODEL(",\"layers\":[],\"queue\":null"), "unknown key \"queue\"");
}

/* Every prefix and every changed byte of a good file: refused or read, never more. */
static void damage(struct swn_profile *p)
{
    char *text = swn_profile_text(p), why[SWN_PROFILE_WHY];
    size_t len = strlen(text), refused = 0;
    for (size_t i = 0; i < len; i++) {
        struct swn_profile *q = NULL;
        if (swn_profile_parse(&q, text, i, why) == 0)
            fail_msg("a part of %zu bytes was taken", i);
        char before = text[i];
        text[i] = (char)(before ^ (1 << i % 7));
        if (swn_profile_parse(&q, text, len, why))
            refused++;
        else
            swn_profile_free(q);
        text[i] = before;
    }
    assert_true(refused > len / 3);
    free(text);
    swn_profile_free(p);
}

static void test_damaged(void **state)
{
    (void)state;
    struct swn_profile *p = example();
    swn_profile_fit(p);
    damage(p);
    damage(device_example());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_odd_name), cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_damaged),  cmocka_unit_test(test_queue),
        cmocka_unit_test(test_refused_queues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
