/* scheduler/simulation/table.c - see table.h. */
#include "scheduler/simulation/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NETWORKS_HEAD "network,dense,load_bytes,compute_ns,activation_bytes,output_bytes,peak_bytes\n"
#define ARRIVALS_HEAD "arrived_ns,job,network,inputs,upstream,outcome\n"
#define FIELDS 7

struct field {
    const char *text;
    size_t length;
};

/* What is left of a text, and its lines until now. */
struct reader {
    const char *text;
    size_t left;
    uint32_t line;
};

static int skip_head(struct reader *r, const char *head)
{
    size_t length = strlen(head);

    r->line = 1;
    if (r->left < length || memcmp(r->text, head, length) != 0)
        return -EINVAL;
    r->text += length;
    r->left -= length;
    return 0;
}

/* The next line in exactly n fields. */
static int split(struct reader *r, struct field *fields, unsigned n)
{
    const char *end = memchr(r->text, '\n', r->left);
    unsigned k = 0;

    r->line++;
    if (!end)
        return -EINVAL;
    fields[0] = (struct field){r->text, 0};
    for (const char *c = r->text; c < end; c++) {
        if (*c != ',') {
            fields[k].length++;
            continue;
        }
        if (++k == n)
            return -EINVAL;
        fields[k] = (struct field){c + 1, 0};
    }
    r->left -= (size_t)(end + 1 - r->text);
    r->text = end + 1;
    return k + 1 == n ? 0 : -EINVAL;
}

/* Digits without a leading zero, at most `most`. */
static int number(struct field f, uint64_t most, uint64_t *out)
{
    uint64_t value = 0;

    if (!f.length || f.length > 19 || (f.text[0] == '0' && f.length > 1))
        return -EINVAL;
    for (size_t i = 0; i < f.length; i++) {
        if (f.text[i] < '0' || f.text[i] > '9')
            return -EINVAL;
        value = 10 * value + (uint64_t)(f.text[i] - '0');
    }
    *out = value;
    return value <= most ? 0 : -EINVAL;
}

static int is_name(struct field f)
{
    if (!f.length || f.length >= SWN_TABLE_NAME || (f.length == 1 && f.text[0] == '-'))
        return 0;
    for (size_t i = 0; i < f.length; i++) {
        char c = f.text[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
              c == '.'))
            return 0;
    }
    return 1;
}

uint32_t swn_networks_find(const struct swn_network_table *t, const char *name, size_t length)
{
    for (uint32_t n = 0; n < t->count; n++)
        if (strlen(t->names[n]) == length && !memcmp(t->names[n], name, length))
            return n;
    return SWN_TABLE_NONE;
}

/* The network that a line goes on with or begins. */
static int network_of(struct swn_network_table *t, struct field name, uint64_t peak_bytes, uint32_t *out)
{
    uint32_t n = swn_networks_find(t, name.text, name.length);

    if (!is_name(name) || (n != SWN_TABLE_NONE && n + 1 != t->count))
        return -EINVAL;
    if (n == SWN_TABLE_NONE) {
        if (t->count == SWN_TABLE_NETWORKS)
            return -EINVAL;
        n = t->count++;
        memcpy(t->names[n], name.text, name.length);
        t->networks[n].layers = t->layers[n];
        t->networks[n].peak_bytes = peak_bytes;
    }
    *out = n;
    return t->networks[n].layer_count < SWN_TASK_LAYERS && t->networks[n].peak_bytes == peak_bytes ? 0 : -EINVAL;
}

static int read_layer(struct reader *r, struct swn_network_table *t)
{
    uint64_t dense, load, compute, activations, output, peak;
    struct field f[FIELDS];
    uint32_t n;

    if (split(r, f, FIELDS) || number(f[1], 1, &dense) || number(f[2], SWN_TABLE_BYTES_MOST, &load) ||
        number(f[3], SWN_TABLE_COMPUTE_MOST, &compute) || number(f[4], SWN_TABLE_BYTES_MOST, &activations) ||
        number(f[5], activations, &output) || number(f[6], SWN_TABLE_BYTES_MOST, &peak) ||
        network_of(t, f[0], peak, &n))
        return -EINVAL;
    t->layers[n][t->networks[n].layer_count++] =
        (struct swn_task_layer){load, compute, activations, output, (uint8_t)dense};
    return 0;
}

int swn_networks_parse(const char *text, size_t size, struct swn_network_table *out, uint32_t *line)
{
    struct reader r = {text, size, 0};
    int rc = skip_head(&r, NETWORKS_HEAD);

    memset(out, 0, sizeof *out);
    while (!rc && r.left)
        rc = read_layer(&r, out);
    *line = r.line;
    return rc || !out->count ? -EINVAL : 0;
}

/* Of the job of the last arrival, or of none. */
static int find_upstream(const struct swn_arrival_table *t, const struct swn_network_table *networks, struct field name,
                         uint64_t job, uint32_t *out)
{
    uint32_t network = swn_networks_find(networks, name.text, name.length);

    *out = SWN_TABLE_NONE;
    if (name.length == 1 && name.text[0] == '-')
        return 0;
    if (network == SWN_TABLE_NONE)
        return -EINVAL;
    for (uint32_t i = t->count; i-- > 0 && t->arrivals[i].job == job;)
        if (t->arrivals[i].network == network)
            *out = i;
    return *out == SWN_TABLE_NONE ? -EINVAL : 0;
}

static int read_arrival(struct reader *r, const struct swn_network_table *networks, struct swn_arrival_table *t)
{
    const struct swn_arrival *last = t->count ? &t->arrivals[t->count - 1] : NULL;
    uint64_t arrived, job, inputs, outcome;
    struct field f[FIELDS];
    uint32_t network, upstream;

    if (split(r, f, 6) || number(f[0], SWN_TABLE_ARRIVED_MOST, &arrived) || number(f[1], SWN_TABLE_PASSES, &job) ||
        number(f[3], SWN_TASK_INPUTS, &inputs) || number(f[5], 1, &outcome) || !inputs)
        return -EINVAL;
    if (last ? (job != last->job && job != last->job + 1) || arrived < last->arrived_ns ||
                   (job == last->job && arrived != last->arrived_ns)
             : job != 0)
        return -EINVAL;
    network = swn_networks_find(networks, f[2].text, f[2].length);
    if (network == SWN_TABLE_NONE || find_upstream(t, networks, f[4], job, &upstream))
        return -EINVAL;
    t->arrivals[t->count++] =
        (struct swn_arrival){arrived, (uint32_t)job, network, (uint32_t)inputs, upstream, (uint8_t)outcome};
    t->job_count = (uint32_t)job + 1;
    return 0;
}

int swn_arrivals_parse(const char *text, size_t size, const struct swn_network_table *networks,
                       struct swn_arrival_table *out, uint32_t *line)
{
    struct reader r = {text, size, 0};
    size_t lines = 0;
    int rc = skip_head(&r, ARRIVALS_HEAD);

    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < r.left; i++)
        lines += r.text[i] == '\n';
    if (!rc && lines <= SWN_TABLE_PASSES) {
        out->arrivals = calloc(lines + 1, sizeof *out->arrivals);
        if (!out->arrivals)
            return -ENOMEM;
    } else {
        rc = -EINVAL;
    }
    while (!rc && r.left)
        rc = read_arrival(&r, networks, out);
    *line = r.line;
    if (!rc && out->count)
        return 0;
    swn_arrivals_free(out);
    return -EINVAL;
}

void swn_arrivals_free(struct swn_arrival_table *t)
{
    free(t->arrivals);
    memset(t, 0, sizeof *t);
}

void swn_networks_write(const struct swn_network_table *t, FILE *to)
{
    fputs(NETWORKS_HEAD, to);
    for (uint32_t n = 0; n < t->count; n++)
        for (uint32_t l = 0; l < t->networks[n].layer_count; l++) {
            const struct swn_task_layer *layer = &t->networks[n].layers[l];

            fprintf(to, "%s,%u,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", t->names[n],
                    layer->is_dense, layer->load_bytes, layer->compute_ns, layer->activation_bytes, layer->output_bytes,
                    t->networks[n].peak_bytes);
        }
}

void swn_arrivals_write(const struct swn_arrival_table *t, const struct swn_network_table *networks, FILE *to)
{
    fputs(ARRIVALS_HEAD, to);
    for (uint32_t i = 0; i < t->count; i++) {
        const struct swn_arrival *a = &t->arrivals[i];

        fprintf(to, "%" PRIu64 ",%u,%s,%u,%s,%u\n", a->arrived_ns, a->job, networks->names[a->network], a->inputs,
                a->upstream == SWN_TABLE_NONE ? "-" : networks->names[t->arrivals[a->upstream].network], a->outcome);
    }
}
