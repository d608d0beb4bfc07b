/* The JSON texts of a torch.export file: what a real one says, and that none that is spoiled does harm. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "skeleton/tape/exported.h"

enum { MODEL, WEIGHTS, CONSTANTS, TEXTS };

struct texts {
    char *text[TEXTS];
};

static char *sample(const char *name)
{
    char path[4096], *text = calloc(1, 1 << 16);
    const char *slash = strrchr(__FILE__, '/');
    FILE *f;

    snprintf(path, sizeof path, "%.*s/data/exported_%s.json", (int)(slash - __FILE__), __FILE__, name);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

static int setup(void **state)
{
    struct texts *t = calloc(1, sizeof *t);

    assert_non_null(t);
    t->text[MODEL] = sample("model");
    t->text[WEIGHTS] = sample("weights");
    t->text[CONSTANTS] = sample("constants");
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct texts *t = *state;
    int i;

    for (i = 0; i < TEXTS; i++)
        free(t->text[i]);
    free(t);
    return 0;
}

static int read_texts(const struct texts *t, struct swn_exported **e, char *why)
{
    return swn_exported_read(e, t->text[MODEL], strlen(t->text[MODEL]), t->text[WEIGHTS], strlen(t->text[WEIGHTS]),
                             t->text[CONSTANTS], strlen(t->text[CONSTANTS]), why);
}

static void a_real_file_is_understood(void **state)
{
    struct swn_exported *e;
    char why[SWN_EXPORTED_WHY];
    const struct swn_exported_input *x;

    if (read_texts(*state, &e, why))
        fail_msg("%s", why);
    assert_int_equal(e->weights.count, 2);
    assert_int_equal(e->constants.count, 1);
    assert_string_equal(e->constants.all[0].path, "tensor_0");
    assert_int_equal(e->input_count, 4);
    x = &e->inputs[3];
    assert_int_equal(x->source, SWN_EXPORTED_USER);
    assert_string_equal(x->name, "x");
    assert_int_equal(x->meta.rank, 2);
    assert_int_equal(x->meta.sizes[0].factor, 1);
    assert_int_equal(x->meta.sizes[1].factor, 0);
    assert_int_equal(x->meta.sizes[1].size, 4);
    assert_int_equal(e->symbols[x->meta.sizes[0].symbol].least, 3);
    assert_int_equal(e->symbols[x->meta.sizes[0].symbol].most, 64);
    assert_int_equal(e->output_count, 3);
    assert_string_equal(e->outputs[0].name, "low");
    assert_string_equal(e->outputs[1].name, "pair__0");
    assert_string_equal(e->outputs[2].name, "pair__1");
    assert_int_equal(e->outputs[0].meta.sizes[0].factor, 2);
    /* the linear layer stands in a graph of its own, that of `with torch.no_grad()` */
    assert_true(e->node_count > 5);
    swn_exported_free(e);
}

/* A text in which `from`, at its first place, is `to`. */
static void refused(const struct texts *t, int which, const char *from, const char *to, const char *reason)
{
    struct texts spoiled = *t;
    struct swn_exported *e = NULL;
    char why[SWN_EXPORTED_WHY], *at = strstr(t->text[which], from);

    assert_non_null(at);
    assert_true(asprintf(&spoiled.text[which], "%.*s%s%s", (int)(at - t->text[which]), t->text[which], to,
                         at + strlen(from)) > 0);
    if (read_texts(&spoiled, &e, why) != -EINVAL || !strstr(why, reason))
        fail_msg("%s -> %s: %s", from, to, why);
    free(spoiled.text[which]);
}

static void what_is_wrong_is_said(void **state)
{
    const struct texts *t = *state;

    refused(t, MODEL, "\"target\": \"", "\"target\": 1, \"x\": \"", "another type");
    refused(t, MODEL, "\"name\": \"p_a_weight\"", "\"name\": \"nothing\"", "nothing");
    refused(t, MODEL, "\"as_tensor\"", "\"as_custom_obj\"", "as_custom_obj");
    refused(t, MODEL, "\"user_output\"", "\"buffer_mutation\"", "state");
    refused(t, MODEL, "\"major\": 8", "\"major\": 9", "version 8");
    refused(t, MODEL, "\"major\": 8", "\"major\": 8, \"major\": 8", "duplicate");
    refused(t, MODEL, "\"min_val\": 3", "\"min_val\": 300", "range");
    refused(t, MODEL, "\"guards_code\": []", "\"guards_code\": [\"L['x'].size()[0] != 5\"]", "condition");
    refused(t, MODEL, "\"guards_code\": []", "\"guards_code\": [\"L['x'].size()[0] == L['x'].size()[1]\"]",
            "condition");
    refused(t, MODEL, "\"guards_code\": []", "\"guards_code\": [\"L['x'].size()[2] >= 5\"]", "condition");
    refused(t, MODEL, "\"as_int\": 4", "\"as_int\": 99999999999999999999999", "no JSON");
    refused(t, WEIGHTS, "\"as_int\": 4", "\"as_int\": -4", "size");
    refused(t, WEIGHTS, "{\"as_int\": 4}", "{\"as_expr\": {\"expr_str\": \"Integer(-4)\"}}", "below 0");
    refused(t, WEIGHTS, "{\"as_int\": 4}",
            "{\"as_expr\": {\"expr_str\": \"Add(Integer(4), Mul(Integer(-2), Integer(3)))\"}}", "below 0");
    refused(t, WEIGHTS, "\"use_pickle\": false", "\"use_pickle\": true", "pickled");
    refused(t, WEIGHTS, "weight_0", "../weight_0", "no record");
    refused(t, WEIGHTS, "\"config\"", "\"other\"", "missing");
    refused(t, CONSTANTS, "tensor_0", "custom_obj_0", "no record");
}

static void conditions_bound_symbols(void **state)
{
    const struct texts *t = *state;
    struct texts other = *t;
    struct swn_exported *e;
    const struct swn_exported_symbol *s;
    char why[SWN_EXPORTED_WHY], *at = strstr(t->text[MODEL], "\"guards_code\": []");

    assert_non_null(at);
    assert_true(asprintf(&other.text[MODEL], "%.*s\"guards_code\": [\"%s\", \"%s\", \"%s\"]%s",
                         (int)(at - t->text[MODEL]), t->text[MODEL], "L['x'].size()[0] >= 5", "L['x'].size()[0] <= 7",
                         "L['x'].size()[0] == L['x'].size()[0]", strchr(at, ']') + 1) > 0);
    if (read_texts(&other, &e, why))
        fail_msg("%s", why);
    s = &e->symbols[e->inputs[3].meta.sizes[0].symbol];
    assert_int_equal(s->least, 5);
    assert_int_equal(s->most, 7);
    swn_exported_free(e);
    free(other.text[MODEL]);
}

static void no_part_of_a_text_does_harm(void **state)
{
    const struct texts *t = *state;
    struct swn_exported *e = NULL;
    char why[SWN_EXPORTED_WHY];
    size_t bytes = strlen(t->text[MODEL]) - 1, i;

    for (i = 0; i < bytes; i += 7)
        assert_int_equal(swn_exported_read(&e, t->text[MODEL], i, t->text[WEIGHTS], strlen(t->text[WEIGHTS]),
                                           t->text[CONSTANTS], strlen(t->text[CONSTANTS]), why),
                         -EINVAL);
}

/* Each value takes many times the memory of its text. */
static void texts_of_too_many_values_are_refused(void **state)
{
    const struct texts *t = *state;
    struct texts other = *t;
    struct swn_exported *e = NULL;
    char why[SWN_EXPORTED_WHY];

    other.text[CONSTANTS] = malloc(SWN_EXPORTED_PARTS + 3);
    assert_non_null(other.text[CONSTANTS]);
    memset(other.text[CONSTANTS], ',', SWN_EXPORTED_PARTS + 2);
    other.text[CONSTANTS][SWN_EXPORTED_PARTS + 2] = '\0';
    assert_int_equal(read_texts(&other, &e, why), -EINVAL);
    assert_non_null(strstr(why, "too long"));
    other.text[CONSTANTS][SWN_EXPORTED_PARTS / 2] = '\0'; /* few enough, and no JSON */
    assert_int_equal(read_texts(&other, &e, why), -EINVAL);
    assert_non_null(strstr(why, "no JSON"));
    free(other.text[CONSTANTS]);
}

static void any_byte_may_be_another(void **state)
{
    const struct texts *t = *state;
    struct texts spoiled = *t;
    size_t bytes = strlen(t->text[MODEL]), i;
    char why[SWN_EXPORTED_WHY];

    spoiled.text[MODEL] = strdup(t->text[MODEL]);
    assert_non_null(spoiled.text[MODEL]);
    for (i = 0; i < bytes; i += 3) {
        struct swn_exported *e = NULL;
        char was = spoiled.text[MODEL][i];

        spoiled.text[MODEL][i] = "0[]{}\"a,-"[i % 9];
        if (!read_texts(&spoiled, &e, why))
            swn_exported_free(e);
        spoiled.text[MODEL][i] = was;
    }
    free(spoiled.text[MODEL]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_real_file_is_understood), cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(conditions_bound_symbols),  cmocka_unit_test(no_part_of_a_text_does_harm),
        cmocka_unit_test(any_byte_may_be_another),   cmocka_unit_test(texts_of_too_many_values_are_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
