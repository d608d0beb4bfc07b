/* profiles/profile_json.c - profiles to JSON and back. Every field goes through `take_*`, which names the field and
 * what is wrong with it. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/profile.h"
#include "base/text_file.h"
#include "base/errmsg.h"

#define SCHEMA 1
#define LONGEST_TEXT 4096
#define MOST_NOTES 64
/* No machine has more bytes of anything; a larger number is a mistake of units. */
#define MOST_BYTES ((json_int_t)1 << 48)
#define MOST_FLOPS ((json_int_t)1 << 60)
#define MOST_DEPTH ((json_int_t)1 << 32)
#define MOST_SECONDS 1e6
#define MOST_READS 4096 /* at once */
#define MOST_REQUEST ((json_int_t)1 << 30)
#define MOST_RATE 1e13

static const struct {
    const char *key;
    unsigned bit;
    size_t offset;
} coefficients[] = {
    {"alpha_s_per_byte", SWN_ALPHA, offsetof(struct swn_coefficients, alpha)},
    {"beta_s_per_reference", SWN_BETA, offsetof(struct swn_coefficients, beta)},
    {"gamma_s_per_flop", SWN_GAMMA, offsetof(struct swn_coefficients, gamma)},
    {"eta_s_per_reference", SWN_ETA, offsetof(struct swn_coefficients, eta)},
};
#define COEFFICIENTS (sizeof coefficients / sizeof coefficients[0])
static const char *const fit_names[SWN_FITS] = {"swap_in", "execution", "swap_out"};

struct reader {
    char *why;
    char where[80]; /* "layer 12: " */
    int err;
};

__attribute__((format(printf, 2, 3))) static int fail(struct reader *r, const char *format, ...)
{
    if (r->err)
        return r->err;
    va_list args;
    int n = snprintf(r->why, SWN_PROFILE_WHY, "%s", r->where);
    va_start(args, format);
    vsnprintf(r->why + n, SWN_PROFILE_WHY - (size_t)n, format, args);
    va_end(args);
    return r->err = -EINVAL;
}

/* Refuses keys that are not in the list, which ends with NULL. */
static void check_keys(struct reader *r, json_t *object, const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key))
            i++;
        if (!known[i])
            fail(r, "unknown key \"%.60s\"", key);
    }
}

/* NULL: no memory, or the field is optional and missing. */
static char *take_text(struct reader *r, json_t *object, const char *key, int required)
{
    json_t *value = json_object_get(object, key);
    if (!value && !required)
        return NULL;
    if (!json_is_string(value) || json_string_length(value) > LONGEST_TEXT ||
        strlen(json_string_value(value)) != json_string_length(value) || (required && !json_string_length(value))) {
        fail(r, "\"%s\" must be a text of 1 to %d bytes", key, LONGEST_TEXT);
        return NULL;
    }
    char *copy = strdup(json_string_value(value));
    if (!copy)
        r->err = -ENOMEM;
    return copy;
}

static uint64_t take_count(struct reader *r, json_t *object, const char *key, json_int_t most, int required)
{
    json_t *value = json_object_get(object, key);
    if (!value && !required)
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > most) {
        fail(r, "\"%s\" must be a whole number from 0 to %lld", key, (long long)most);
        return 0;
    }
    return (uint64_t)json_integer_value(value);
}

static double check_seconds(struct reader *r, json_t *value, const char *what)
{
    double v = json_number_value(value);
    if (!json_is_number(value) || !isfinite(v) || v < 0 || v > MOST_SECONDS) {
        fail(r, "\"%s\" must be a time from 0 to %g seconds", what, MOST_SECONDS);
        return 0;
    }
    return v;
}

/* -1 where the field is null or missing. */
static double take_seconds_or_null(struct reader *r, json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return !value || json_is_null(value) ? -1 : check_seconds(r, value, key);
}

static void take_coefficients(struct reader *r, json_t *root, struct swn_profile *p)
{
    json_t *object = json_object_get(root, "coefficients");
    const char *known[COEFFICIENTS + 1] = {0};
    for (size_t i = 0; i < COEFFICIENTS; i++)
        known[i] = coefficients[i].key;
    if (!object && p->kind == SWN_PROFILE_MODEL)
        return;
    if (!json_is_object(object)) {
        fail(r, "\"coefficients\" must be an object");
        return;
    }
    check_keys(r, object, known);
    for (size_t i = 0; i < COEFFICIENTS; i++) {
        json_t *value = json_object_get(object, known[i]);
        if (!value || json_is_null(value))
            continue;
        double seconds = check_seconds(r, value, known[i]);
        memcpy((char *)&p->c + coefficients[i].offset, &seconds, sizeof seconds);
        p->known |= coefficients[i].bit;
    }
    if (p->kind == SWN_PROFILE_DEVICE && !(p->known & SWN_ALPHA))
        fail(r, "a device profile needs \"alpha_s_per_byte\"");
}

static void take_estimates(struct reader *r, json_t *root, struct swn_profile *p)
{
    json_t *array = json_object_get(root, "estimates"), *value;
    size_t i;
    if (!array)
        return;
    if (!json_is_array(array)) {
        fail(r, "\"estimates\" must be an array");
        return;
    }
    json_array_foreach(array, i, value)
    {
        size_t k = 0;
        while (k < COEFFICIENTS && (!json_is_string(value) || strcmp(coefficients[k].key, json_string_value(value))))
            k++;
        if (k == COEFFICIENTS || !(p->known & coefficients[k].bit) || (p->estimates & coefficients[k].bit)) {
            fail(r, "\"estimates\" must name coefficients that there are, each once");
            return;
        }
        p->estimates |= coefficients[k].bit;
    }
}

static void take_fit(struct reader *r, json_t *object, struct swn_profile_fit *f)
{
    static const char *const known[] = {"samples", "outliers", "r2", "rms_s", "worst_s", NULL};
    if (!object || json_is_null(object))
        return;
    if (!json_is_object(object)) {
        fail(r, "each fit must be an object or null");
        return;
    }
    check_keys(r, object, known);
    f->rc = 0;
    f->fit.samples = take_count(r, object, "samples", MOST_DEPTH, 1);
    f->fit.outliers = take_count(r, object, "outliers", MOST_DEPTH, 1);
    f->fit.rms = check_seconds(r, json_object_get(object, "rms_s"), "rms_s");
    f->fit.worst = check_seconds(r, json_object_get(object, "worst_s"), "worst_s");
    json_t *r2 = json_object_get(object, "r2");
    f->fit.r2 = json_number_value(r2);
    if (!json_is_number(r2) || f->fit.r2 > 1 || f->fit.outliers > f->fit.samples)
        fail(r, "\"r2\" must be a number up to 1, and \"outliers\" at most \"samples\"");
}

static void take_fits(struct reader *r, json_t *root, struct swn_profile *p)
{
    static const char *const known[] = {"swap_in", "execution", "swap_out", NULL};
    json_t *object = json_object_get(root, "fit");
    if (!object)
        return;
    if (!json_is_object(object)) {
        fail(r, "\"fit\" must be an object");
        return;
    }
    check_keys(r, object, known);
    for (size_t i = 0; i < SWN_FITS; i++)
        take_fit(r, json_object_get(object, fit_names[i]), &p->fit[i]);
}

/* An array of at most SWN_PROFILE_SAMPLES, or NULL when it is missing or wrong. */
static json_t *take_samples(struct reader *r, json_t *object, const char *key)
{
    json_t *array = json_object_get(object, key);
    if (array && (!json_is_array(array) || json_array_size(array) > SWN_PROFILE_SAMPLES)) {
        fail(r, "\"%s\" must be an array of at most %zu measurements", key, SWN_PROFILE_SAMPLES);
        return NULL;
    }
    return array && json_array_size(array) ? array : NULL;
}

/* The number of references of sample i; 0: older files have none. */
static uint64_t check_references(struct reader *r, json_t *sample, size_t i, const char *what)
{
    json_t *value = json_array_get(sample, i);
    if (!value)
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > MOST_DEPTH) {
        fail(r, "\"%s\": references must be a whole number from 1 to %lld", what, (long long)MOST_DEPTH);
        return 0;
    }
    return (uint64_t)json_integer_value(value);
}

static void take_reads(struct reader *r, json_t *object, struct swn_profile_layer *l)
{
    json_t *array = take_samples(r, object, "swap_in"), *value;
    size_t i;
    if (!array)
        return;
    l->reads = calloc(json_array_size(array), sizeof *l->reads);
    if (!l->reads) {
        r->err = -ENOMEM;
        return;
    }
    json_array_foreach(array, i, value)
    {
        json_t *bytes = json_array_get(value, 0);
        if (!json_is_array(value) || json_array_size(value) < 2 || json_array_size(value) > 3 ||
            !json_is_integer(bytes) || json_integer_value(bytes) < 1 || json_integer_value(bytes) > MOST_BYTES) {
            fail(r, "\"swap_in\" must hold bytes, seconds and references");
            return;
        }
        l->reads[l->read_count++] = (struct swn_profile_read){(uint64_t)json_integer_value(bytes),
                                                              check_seconds(r, json_array_get(value, 1), "swap_in"),
                                                              check_references(r, value, 2, "swap_in")};
    }
}

static void take_releases(struct reader *r, json_t *object, struct swn_profile_layer *l)
{
    json_t *array = take_samples(r, object, "swap_out"), *value;
    size_t i;
    if (!array)
        return;
    l->releases = calloc(json_array_size(array), sizeof *l->releases);
    if (!l->releases) {
        r->err = -ENOMEM;
        return;
    }
    json_array_foreach(array, i, value)
    {
        int pair = json_is_array(value) && json_array_size(value) == 2;
        l->releases[l->release_count++] =
            (struct swn_profile_release){check_seconds(r, pair ? json_array_get(value, 0) : value, "swap_out"),
                                         pair ? check_references(r, value, 1, "swap_out") : 0};
    }
}

static void take_layer(struct reader *r, json_t *object, struct swn_profile *p)
{
    static const char *const known[] = {
        "name",        "bytes",   "depth",    "flops", "compute_s", "own_s", "activation_bytes",
        "slice_bytes", "swap_in", "swap_out", NULL};
    if (!json_is_object(object)) {
        fail(r, "it must be an object");
        return;
    }
    check_keys(r, object, known);
    char *name = take_text(r, object, "name", 1);
    struct swn_profile_layer *l = name ? swn_profile_add(p, name) : NULL;
    free(name);
    if (!l) {
        r->err = r->err ? r->err : -ENOMEM;
        return;
    }
    l->l.bytes = take_count(r, object, "bytes", MOST_BYTES, 1);
    l->l.depth = take_count(r, object, "depth", MOST_DEPTH, 1);
    l->l.flops = take_count(r, object, "flops", MOST_FLOPS, 0);
    l->l.compute_s = take_seconds_or_null(r, object, "compute_s");
    l->op_s = take_seconds_or_null(r, object, "own_s");
    l->activation_bytes = take_count(r, object, "activation_bytes", MOST_BYTES, 0);
    l->slice_bytes = take_count(r, object, "slice_bytes", MOST_BYTES, 0);
    take_reads(r, object, l);
    take_releases(r, object, l);
}

static void take_layers(struct reader *r, json_t *root, struct swn_profile *p)
{
    json_t *array = json_object_get(root, "layers"), *value;
    size_t i;
    if (!json_is_array(array) || json_array_size(array) > SWN_PROFILE_LAYERS) {
        fail(r, "\"layers\" must be an array of at most %zu layers", SWN_PROFILE_LAYERS);
        return;
    }
    json_array_foreach(array, i, value)
    {
        snprintf(r->where, sizeof r->where, "layer %zu: ", i);
        take_layer(r, value, p);
        if (r->err)
            return;
    }
    r->where[0] = 0;
}

static unsigned check_depth(struct reader *r, json_t *value)
{
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > MOST_READS) {
        fail(r, "\"queue\": a depth must be a whole number from 1 to %d", MOST_READS);
        return 0;
    }
    return (unsigned)json_integer_value(value);
}

static uint64_t check_request(struct reader *r, json_t *value)
{
    if (!json_is_integer(value) || json_integer_value(value) < 4096 || json_integer_value(value) > MOST_REQUEST ||
        json_integer_value(value) % 4096) {
        fail(r, "\"queue\": a read must be of whole pages of 4096 bytes, up to %lld", (long long)MOST_REQUEST);
        return 0;
    }
    return (uint64_t)json_integer_value(value);
}

static void take_rates(struct reader *r, json_t *object, struct swn_queue_depth *q)
{
    json_t *array = json_object_get(object, "measured"), *value;
    size_t i;
    if (!array)
        return;
    if (!json_is_array(array) || json_array_size(array) > SWN_READS_MOST) {
        fail(r, "\"measured\" must be an array of at most %zu measurements", SWN_READS_MOST);
        return;
    }
    q->measured = calloc(json_array_size(array) + 1, sizeof *q->measured);
    if (!q->measured) {
        r->err = -ENOMEM;
        return;
    }
    json_array_foreach(array, i, value)
    {
        json_t *rate = json_array_get(value, 2);
        double v = json_number_value(rate);
        if (!json_is_array(value) || json_array_size(value) != 3 || !json_is_number(rate) || !isfinite(v) || v <= 0 ||
            v > MOST_RATE) {
            fail(r, "\"measured\" must hold triples of depth, bytes and bytes per second");
            return;
        }
        q->measured[q->measured_count++] = (struct swn_read_rate){check_depth(r, json_array_get(value, 0)),
                                                                  check_request(r, json_array_get(value, 1)), v};
    }
}

static void take_queue(struct reader *r, json_t *root, struct swn_queue_depth *q)
{
    static const char *const known[] = {"depth", "request_bytes", "measured", NULL};
    json_t *object = json_object_get(root, "queue");
    if (!object || json_is_null(object))
        return;
    if (!json_is_object(object)) {
        fail(r, "\"queue\" must be an object or null");
        return;
    }
    check_keys(r, object, known);
    q->depth = check_depth(r, json_object_get(object, "depth"));
    q->request_bytes = check_request(r, json_object_get(object, "request_bytes"));
    take_rates(r, object, q);
}

/* Notes are for readers of the file: they have to be texts, and are dropped. */
static void check_notes(struct reader *r, json_t *root)
{
    json_t *array = json_object_get(root, "notes"), *value;
    size_t i;
    if (!array)
        return;
    if (!json_is_array(array) || json_array_size(array) > MOST_NOTES)
        fail(r, "\"notes\" must be an array of at most %d texts", MOST_NOTES);
    json_array_foreach(array, i, value) if (!json_is_string(value) || json_string_length(value) > LONGEST_TEXT)
        fail(r, "\"notes\" must be an array of at most %d texts", MOST_NOTES);
}

static struct swn_profile *begin_profile(struct reader *r, json_t *root)
{
    static const char *const device[] = {
        "schema", "kind", "name", "source", "memory_bytes", "notes", "coefficients", "estimates", "fit", "queue", NULL};
    static const char *const model[] = {"schema",
                                        "kind",
                                        "name",
                                        "source",
                                        "notes",
                                        "torch_version",
                                        "other_bytes",
                                        "passes",
                                        "latency_s",
                                        "busy_latency_s",
                                        "busy_alpha_s_per_byte",
                                        "rest_alpha_s_per_byte",
                                        "read_s",
                                        "wait_s",
                                        "watching_s",
                                        "coefficients",
                                        "estimates",
                                        "fit",
                                        "layers",
                                        NULL};
    json_t *kind = json_object_get(root, "kind");
    int is_device = json_is_string(kind) && !strcmp(json_string_value(kind), "device");
    if (!json_is_integer(json_object_get(root, "schema")) ||
        json_integer_value(json_object_get(root, "schema")) != SCHEMA)
        fail(r, "\"schema\" must be %d", SCHEMA);
    else if (!is_device && (!json_is_string(kind) || strcmp(json_string_value(kind), "model")))
        fail(r, "\"kind\" must be \"device\" or \"model\"");
    else
        check_keys(r, root, is_device ? device : model);
    char *name = r->err ? NULL : take_text(r, root, "name", 1);
    struct swn_profile *p = name ? swn_profile_new(is_device ? SWN_PROFILE_DEVICE : SWN_PROFILE_MODEL, name) : NULL;
    free(name);
    if (!p && !r->err)
        r->err = -ENOMEM;
    return p;
}

static int read_profile(struct reader *r, json_t *root, struct swn_profile **out)
{
    if (!json_is_object(root))
        return fail(r, "the document must be an object");
    struct swn_profile *p = begin_profile(r, root);
    if (!p)
        return r->err;
    p->source = take_text(r, root, "source", 0);
    check_notes(r, root);
    take_coefficients(r, root, p);
    take_estimates(r, root, p);
    take_fits(r, root, p);
    p->memory_bytes = take_count(r, root, "memory_bytes", MOST_BYTES, 0);
    take_queue(r, root, &p->queue);
    if (p->kind == SWN_PROFILE_MODEL) {
        p->torch_version = take_text(r, root, "torch_version", 0);
        p->other_bytes = take_count(r, root, "other_bytes", MOST_BYTES, 1);
        p->passes = take_count(r, root, "passes", MOST_BYTES, 0);
        p->latency_s = take_seconds_or_null(r, root, "latency_s");
        p->busy_latency_s = take_seconds_or_null(r, root, "busy_latency_s");
        p->busy_alpha = take_seconds_or_null(r, root, "busy_alpha_s_per_byte");
        p->rest_alpha = take_seconds_or_null(r, root, "rest_alpha_s_per_byte");
        p->read_s = take_seconds_or_null(r, root, "read_s");
        p->wait_s = take_seconds_or_null(r, root, "wait_s");
        p->watching_s = take_seconds_or_null(r, root, "watching_s");
        take_layers(r, root, p);
    }
    if (r->err)
        swn_profile_free(p);
    else
        *out = p;
    return r->err;
}

int swn_profile_parse(struct swn_profile **out, const char *text, size_t len, char why[SWN_PROFILE_WHY])
{
    json_error_t error;
    struct reader r = {.why = why};
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        snprintf(why, SWN_PROFILE_WHY, "line %d: %s", error.line, error.text);
        return -EINVAL;
    }
    int rc = read_profile(&r, root, out);
    json_decref(root);
    if (rc == -ENOMEM)
        snprintf(why, SWN_PROFILE_WHY, "no memory");
    return rc;
}

int swn_profile_load(struct swn_profile **out, const char *path, char why[SWN_PROFILE_WHY])
{
    char *text;
    size_t len;
    int rc = swn_textfile_read(path, SWN_PROFILE_FILE, &text, &len);
    if (rc) {
        snprintf(why, SWN_PROFILE_WHY, "%s", strerror(-rc));
        return rc;
    }
    rc = swn_profile_parse(out, text, len, why);
    free(text);
    return rc;
}

/* --- writing --- */

static json_t *text_value(const char *text)
{
    json_t *value = json_string(text);
    char *copy = value ? NULL : strdup(text); /* names may be any bytes */
    if (copy) {
        swn_make_utf8(copy);
        value = json_string(copy);
    }
    free(copy);
    return value;
}

static json_t *count_value(uint64_t n)
{
    return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

static json_t *seconds_value(double s)
{
    return s >= 0 ? json_real(s) : json_null();
}

static json_t *coefficients_value(const struct swn_profile *p)
{
    json_t *object = json_object();
    for (size_t i = 0; object && i < COEFFICIENTS; i++) {
        double v;
        memcpy(&v, (const char *)&p->c + coefficients[i].offset, sizeof v);
        json_object_set_new(object, coefficients[i].key, p->known & coefficients[i].bit ? json_real(v) : json_null());
    }
    return object;
}

static json_t *estimates_value(const struct swn_profile *p)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < COEFFICIENTS; i++)
        if (p->estimates & coefficients[i].bit)
            json_array_append_new(array, json_string(coefficients[i].key));
    return array;
}

static json_t *fits_value(const struct swn_profile *p)
{
    json_t *object = json_object();
    for (size_t i = 0; object && i < SWN_FITS; i++) {
        const struct swn_fit *f = &p->fit[i].fit;
        json_object_set_new(object, fit_names[i],
                            p->fit[i].rc ? json_null()
                                         : json_pack("{s:I s:I s:f s:f s:f}", "samples", (json_int_t)f->samples,
                                                     "outliers", (json_int_t)f->outliers, "r2", f->r2, "rms_s", f->rms,
                                                     "worst_s", f->worst));
    }
    return object;
}

/* A sample with its references, if they were counted. */
static json_t *sample_value(json_t *sample, uint64_t references)
{
    if (references)
        json_array_append_new(sample, count_value(references));
    return sample;
}

static json_t *layer_value(const struct swn_profile_layer *l)
{
    json_t *reads = json_array(), *releases = json_array();
    for (size_t i = 0; i < l->read_count; i++)
        json_array_append_new(reads,
                              sample_value(json_pack("[I f]", (json_int_t)l->reads[i].bytes, l->reads[i].seconds),
                                           l->reads[i].references));
    for (size_t i = 0; i < l->release_count; i++)
        json_array_append_new(releases,
                              l->releases[i].references
                                  ? sample_value(json_pack("[f]", l->releases[i].seconds), l->releases[i].references)
                                  : json_real(l->releases[i].seconds));
    return json_pack("{s:o s:o s:o s:o s:o s:o s:o s:o s:o s:o}", "name", text_value(l->name), "bytes",
                     count_value(l->l.bytes), "depth", count_value(l->l.depth), "flops", count_value(l->l.flops),
                     "compute_s", seconds_value(l->l.compute_s), "own_s", seconds_value(l->op_s), "activation_bytes",
                     count_value(l->activation_bytes), "slice_bytes", count_value(l->slice_bytes), "swap_in", reads,
                     "swap_out", releases);
}

static json_t *queue_value(const struct swn_queue_depth *q)
{
    json_t *measured = json_array();
    for (size_t i = 0; measured && i < q->measured_count; i++)
        json_array_append_new(measured,
                              json_pack("[i I f]", (int)q->measured[i].depth, (json_int_t)q->measured[i].request_bytes,
                                        q->measured[i].bytes_per_s));
    return json_pack("{s:i s:I s:o}", "depth", (int)q->depth, "request_bytes", (json_int_t)q->request_bytes, "measured",
                     measured);
}

static int write_model(const struct swn_profile *p, json_t *root)
{
    int rc = json_object_set_new(root, "other_bytes", count_value(p->other_bytes));
    rc |= json_object_set_new(root, "passes", count_value(p->passes));
    rc |= json_object_set_new(root, "latency_s", seconds_value(p->latency_s));
    rc |= json_object_set_new(root, "busy_latency_s", seconds_value(p->busy_latency_s));
    rc |= json_object_set_new(root, "busy_alpha_s_per_byte", seconds_value(p->busy_alpha));
    rc |= json_object_set_new(root, "rest_alpha_s_per_byte", seconds_value(p->rest_alpha));
    rc |= json_object_set_new(root, "read_s", seconds_value(p->read_s));
    rc |= json_object_set_new(root, "wait_s", seconds_value(p->wait_s));
    rc |= json_object_set_new(root, "watching_s", seconds_value(p->watching_s));
    if (p->torch_version)
        rc |= json_object_set_new(root, "torch_version", text_value(p->torch_version));
    json_t *layers = json_array();
    rc |= json_object_set_new(root, "layers", layers);
    for (size_t i = 0; !rc && i < p->layer_count; i++)
        rc |= json_array_append_new(layers, layer_value(&p->layers[i]));
    return rc;
}

char *swn_profile_text(const struct swn_profile *p)
{
    json_t *root = json_pack("{s:i s:s s:o}", "schema", SCHEMA, "kind",
                             p->kind == SWN_PROFILE_DEVICE ? "device" : "model", "name", text_value(p->name));
    if (!root)
        return NULL;
    int rc = 0;
    if (p->source)
        rc |= json_object_set_new(root, "source", text_value(p->source));
    if (p->known) {
        rc |= json_object_set_new(root, "coefficients", coefficients_value(p));
        rc |= json_object_set_new(root, "estimates", estimates_value(p));
    }
    for (size_t i = 0; i < SWN_FITS; i++)
        if (!p->fit[i].rc) {
            rc |= json_object_set_new(root, "fit", fits_value(p));
            break;
        }
    if (p->memory_bytes)
        rc |= json_object_set_new(root, "memory_bytes", count_value(p->memory_bytes));
    if (p->queue.depth)
        rc |= json_object_set_new(root, "queue", queue_value(&p->queue));
    if (p->kind == SWN_PROFILE_MODEL)
        rc |= write_model(p, root);
    char *text = rc ? NULL : json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(root);
    return text;
}

int swn_profile_save(const struct swn_profile *p, const char *path)
{
    char *text = swn_profile_text(p);
    if (!text)
        return -ENOMEM;
    int rc = swn_textfile_write(path, text);
    free(text);
    return rc;
}
