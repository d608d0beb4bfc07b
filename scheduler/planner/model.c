/* scheduler/planner/model.c - see model.h. */
#define _GNU_SOURCE
#include "scheduler/planner/model.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_io.h"
#include "blocks/store/store.h"

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* Shipped profiles are in ../share/swapnet/devices, relative to the program's directory. */
static int shipped(const char *name, char *out, size_t size)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0)
        return -errno;
    self[n] = 0;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(self, '/');
        if (!slash)
            return -ENOENT;
        *slash = 0;
    }
    int len = snprintf(out, size, "%s/share/swapnet/devices/%s.json", self, name);
    return len < 0 || (size_t)len >= size ? -ENAMETOOLONG : 0;
}

int swn_model_device(struct swn_profile **out, const char *name, char why[SWN_MODEL_WHY])
{
    char path[PATH_MAX + 64], text[SWN_PROFILE_WHY] = "";
    size_t len = strlen(name);
    int is_file = strchr(name, '/') || (len > 5 && !strcmp(name + len - 5, ".json"));
    int rc = is_file ? 0 : shipped(name, path, sizeof path);
    if (!rc)
        rc = swn_profile_load(out, is_file ? name : path, text);
    if (rc)
        snprintf(why, SWN_MODEL_WHY, "device profile %.400s: %s", is_file || !text[0] ? name : path,
                 text[0] ? text : strerror(-rc));
    if (!rc && !(*out)->known) {
        snprintf(why, SWN_MODEL_WHY, "%s holds no coefficients", name);
        swn_profile_free(*out);
        rc = -EINVAL;
    }
    return rc;
}

static int make_room(struct swn_model *m, size_t n)
{
    m->layer = calloc(n + 1, sizeof *m->layer);
    m->layers = calloc(n + 1, sizeof *m->layers);
    m->more = calloc(n + 1, sizeof *m->more);
    return m->layer && m->layers && m->more ? 0 : -ENOMEM;
}

static int add(struct swn_model *m, const char *name, const struct swn_layer *l)
{
    m->layer[m->n] = strdup(name);
    m->layers[m->n] = *l;
    return m->layer[m->n++] ? 0 : -ENOMEM;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Of a layer's weights, the one that can be sliced only in the largest units stands for all. */
static void add_more(struct swn_predict_more *more, const struct swn_profile_layer *l)
{
    more->slice_bytes = larger(more->slice_bytes, l->slice_bytes);
    more->activation_bytes = larger(more->activation_bytes, l->activation_bytes);
    more->own += l->op_s > 0 && l->l.compute_s > 0 ? l->op_s : 0;
}

/* Turns the operators' seconds of each layer into a part of the layer's time. */
static void end_more(struct swn_model *m)
{
    for (size_t i = 0; i < m->n; i++) {
        double own = m->layers[i].compute_s > 0 ? m->more[i].own / m->layers[i].compute_s : 0;
        m->more[i].own = own < 1 ? own : 1;
    }
}

static void take_coefficients(struct swn_model *m, const struct swn_profile *p)
{
    if (!p->known)
        return;
    m->c = p->c;
    m->known = p->known;
}

static void take_latency(struct swn_model *m, const struct swn_profile *p)
{
    m->latency_s = p->latency_s;
    m->watching_s = p->watching_s > 0 ? p->watching_s : 0;
    m->wait_s = p->wait_s > 0 ? p->wait_s : 0;
    if (p->latency_s > 0 && p->busy_latency_s > p->latency_s)
        m->contention = p->busy_latency_s / p->latency_s - 1;
    if (p->busy_alpha > 0 && p->read_s > 0) {
        m->busy_alpha = p->busy_alpha;
        m->rest_alpha = p->rest_alpha > 0 ? p->rest_alpha : 0;
        m->read_s = p->read_s;
        return;
    }
    /* the profile has it per read */
    double each = swn_predict_read_s(m->layers, m->n, p->c.beta) / (double)swn_predict_read_bytes(m->layers, m->n);
    m->busy_alpha = p->busy_alpha > each ? p->busy_alpha - each : 0;
}

static int from_profile(struct swn_model *m, const struct swn_profile *p, char why[SWN_MODEL_WHY])
{
    if (p->kind != SWN_PROFILE_MODEL || !p->layer_count) {
        snprintf(why, SWN_MODEL_WHY, "it is a profile without layers");
        return -EINVAL;
    }
    int rc = make_room(m, p->layer_count);
    for (size_t i = 0; !rc && i < p->layer_count; i++) {
        add_more(&m->more[i], &p->layers[i]);
        rc = add(m, p->layers[i].name, &p->layers[i].l);
    }
    end_more(m);
    m->other_bytes = p->other_bytes;
    take_latency(m, p);
    take_coefficients(m, p);
    return rc;
}

struct named {
    const char *name;
    size_t at; /* in the model */
};

static int by_name(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

/* The place in the model of the layer called name[0..len), or n. */
static size_t find(const struct named *sorted, size_t n, const char *name, size_t len)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strncmp(sorted[middle].name, name, len) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    int found = low < n && !strncmp(sorted[low].name, name, len) && !sorted[low].name[len];
    return found ? sorted[low].at : n;
}

/* Layers of a store are modules, weights of a profile are tensors of modules: "a.b.weight" is of "a.b", and "weight" is
 * the outermost module's, whose name is empty. */
static size_t layer_of(const struct named *sorted, size_t n, const char *tensor)
{
    const char *dot = strrchr(tensor, '.');
    size_t at = find(sorted, n, tensor, strlen(tensor));
    return at < n ? at : find(sorted, n, tensor, dot ? (size_t)(dot - tensor) : 0);
}

/* How many layers that would be streamed have no time: without this a profile of another model would be accepted
 * silently, as long as one name is the same. */
static size_t count_untimed(const struct swn_model *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++)
        n += m->layers[i].bytes >= SWN_PREDICT_STREAMED && m->layers[i].compute_s < 0 && !m->layers[i].flops;
    return n;
}

/* Gives the times of the profile's weights to the layers that have these weights. */
static int take_times(struct swn_model *m, const struct swn_profile *p, char why[SWN_MODEL_WHY])
{
    struct named *sorted = malloc((m->n + 1) * sizeof *sorted);
    size_t found = 0;
    if (!sorted)
        return -ENOMEM;
    for (size_t i = 0; i < m->n; i++)
        sorted[i] = (struct named){m->layer[i], i};
    qsort(sorted, m->n, sizeof *sorted, by_name);
    for (size_t i = 0; i < p->layer_count; i++) {
        size_t at = layer_of(sorted, m->n, p->layers[i].name);
        if (at == m->n)
            continue;
        found++;
        add_more(&m->more[at], &p->layers[i]);
        m->layers[at].flops += p->layers[i].l.flops;
        if (p->layers[i].l.compute_s >= 0)
            m->layers[at].compute_s =
                (m->layers[at].compute_s > 0 ? m->layers[at].compute_s : 0) + p->layers[i].l.compute_s;
    }
    free(sorted);
    m->untimed = count_untimed(m);
    end_more(m);
    m->other_bytes = p->other_bytes;
    take_latency(m, p);
    if (found)
        return 0;
    snprintf(why, SWN_MODEL_WHY,
             "the profile names no layer of it: was the program loaded from this checkpoint when it "
             "was profiled?");
    return -EINVAL;
}

static int from_store(struct swn_model *m, const char *path, const struct swn_profile *times, char why[SWN_MODEL_WHY])
{
    struct swn_store *s;
    const char *kind;
    char text[SWN_ERRMSG] = "";
    int rc = swn_store_of(&s, &kind, &swn_io_sys, path, text);
    if (rc) {
        snprintf(why, SWN_MODEL_WHY, "%s", text[0] ? text : strerror(-rc));
        return rc;
    }
    uint64_t *bytes = calloc(s->layer_count + 1, sizeof *bytes);
    rc = bytes ? swn_store_layer_bytes(s, bytes) : -ENOMEM;
    if (!rc && !strcmp(kind, "store") && !(m->store_path = strdup(path)))
        rc = -ENOMEM;
    if (!rc)
        rc = make_room(m, s->layer_count);
    for (size_t i = 0; !rc && i < s->layer_count; i++) {
        struct swn_layer l = {bytes[i], s->layers[i].depth, s->layers[i].flops, -1};
        rc = add(m, s->layers[i].name, &l);
    }
    if (!rc && !m->n) {
        snprintf(why, SWN_MODEL_WHY, "it holds no tensors");
        rc = -EINVAL;
    }
    free(bytes);
    swn_store_close(s, &swn_io_sys);
    if (!rc && times) {
        take_coefficients(m, times);
        rc = take_times(m, times, why);
    }
    return rc;
}

/* Whether a file, whatever its name, is a profile, rather than a checkpoint or the index of a sharded one. */
static int looks_like_a_profile(const char *path)
{
    char head[512] = "";
    int fd = swn_open_regular(&swn_io_sys, path, 0, NULL);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, head, sizeof head - 1);
    close(fd);
    return got > 0 && head[strspn(head, " \t\r\n")] == '{' && strstr(head, "\"kind\"") && strstr(head, "\"schema\"");
}

static int load(struct swn_model *m, const char *path, const struct swn_profile *times, char why[SWN_MODEL_WHY])
{
    struct swn_profile *p;
    char text[SWN_PROFILE_WHY] = "";
    if (!looks_like_a_profile(path))
        return from_store(m, path, times, why);
    int rc = swn_profile_load(&p, path, text);
    if (rc) {
        snprintf(why, SWN_MODEL_WHY, "%s", text);
        return rc;
    }
    rc = from_profile(m, p, why);
    swn_profile_free(p);
    return rc;
}

static int load_times(struct swn_profile **out, const char *path, char why[SWN_MODEL_WHY])
{
    char text[SWN_PROFILE_WHY] = "";
    int rc = swn_profile_load(out, path, text);
    if (rc)
        snprintf(why, SWN_MODEL_WHY, "%s: %s", path, text);
    return rc;
}

/* Seconds per operation on the machine of the measurement; 0: not known. */
static double gamma_here(const struct swn_model *m)
{
    double seconds = 0, flops = 0;
    for (size_t i = 0; i < m->n; i++)
        if (m->layers[i].flops && m->layers[i].compute_s > 0) {
            seconds += m->layers[i].compute_s;
            flops += (double)m->layers[i].flops;
        }
    return flops > 0 ? seconds / flops : m->known & SWN_GAMMA ? m->c.gamma : 0;
}

/* Measured times are those of the measured device. On another device the counted operations give the time; a layer
 * without a count is scaled by the ratio of the two devices' time per operation. */
static void apply_device(struct swn_model *m, const struct swn_profile *device)
{
    double here = gamma_here(m);
    take_coefficients(m, device);
    m->latency_s = -1;
    m->contention = m->busy_alpha = m->rest_alpha = m->read_s = m->watching_s = m->wait_s = 0;
    for (size_t i = 0; i < m->n; i++) {
        struct swn_layer *l = &m->layers[i];
        if (l->flops && device->known & SWN_GAMMA)
            l->compute_s = -1;
        if (!(l->compute_s > 0))
            continue;
        if (!(device->known & SWN_GAMMA)) {
            m->foreign++;
        } else if (here > 0) {
            m->slower = device->c.gamma / here;
            l->compute_s *= m->slower;
            m->scaled++;
        } else {
            l->compute_s = -1;
            m->lost++;
        }
    }
}

static void look_over(struct swn_model *m)
{
    for (size_t i = 0; i < m->n; i++)
        m->timed |= m->layers[i].compute_s >= 0 || (m->layers[i].flops && (m->known & SWN_GAMMA));
}

int swn_model_converted(const struct swn_model *m, char text[SWN_MODEL_WHY])
{
    text[0] = 0;
    if (m->foreign)
        snprintf(
            text, SWN_MODEL_WHY,
            "the device profile does not say how fast it computes: the times of %zu of %zu layers are those of the "
            "machine that they were measured on",
            m->foreign, m->n);
    else if (m->scaled)
        snprintf(text, SWN_MODEL_WHY,
                 "%zu of %zu layers have no operations that are counted: their times are the measured ones times %.3g, "
                 "as much as an operation takes longer on the device",
                 m->scaled, m->n, m->slower);
    else if (m->lost)
        snprintf(text, SWN_MODEL_WHY,
                 "%zu of %zu layers have no operations that are counted, and nothing says how much longer they take on "
                 "the device: they are left out of the latencies",
                 m->lost, m->n);
    size_t length = strlen(text);
    if (m->untimed)
        snprintf(text + length, SWN_MODEL_WHY - length,
                 "%sthe profile has no time for %zu of %zu layers, those below 64 KiB aside: they are left out of the "
                 "latencies; is it of this model?",
                 length ? "; " : "", m->untimed, m->n);
    return m->foreign || m->scaled || m->lost || m->untimed;
}

int swn_model_load(struct swn_model *out, const char *path, const struct swn_model_opts *opts, char why[SWN_MODEL_WHY])
{
    struct swn_profile *times = NULL, *device = NULL;
    char text[SWN_MODEL_WHY] = "";
    *out = (struct swn_model){.latency_s = -1};
    why[0] = 0;
    int rc = opts->device ? swn_model_device(&device, opts->device, why) : 0;
    if (!rc && opts->profile)
        rc = load_times(&times, opts->profile, why);
    if (!rc) {
        out->name = strdup(base_name(path));
        rc = out->name ? load(out, path, times, text) : -ENOMEM;
        if (rc) /* the readers of checkpoints name the file in their texts */
            snprintf(why, SWN_MODEL_WHY, "%.*s%s%.*s", strstr(text, path) ? 0 : 400, path,
                     strstr(text, path) ? "" : ": ", 600, text[0] ? text : strerror(-rc));
    }
    if (!rc && device)
        apply_device(out, device);
    if (!rc)
        look_over(out);
    swn_profile_free(times);
    swn_profile_free(device);
    if (rc)
        swn_model_free(out);
    return rc;
}

void swn_model_free(struct swn_model *m)
{
    for (size_t i = 0; m->layer && i < m->n; i++)
        free(m->layer[i]);
    free(m->layer);
    free(m->layers);
    free(m->more);
    free(m->name);
    free(m->store_path);
    *m = (struct swn_model){.latency_s = -1};
}

const char *swn_model_lacks(const struct swn_model *m)
{
    if (!(m->known & SWN_ALPHA))
        return "how fast the disk is: give a profile with coefficients, or --device";
    if (!m->timed)
        return "how long its layers compute: give a profile of it";
    return NULL;
}

struct swn_predict swn_model_predict(const struct swn_model *m)
{
    return (struct swn_predict){.layers = m->layers,
                                .more = m->more,
                                .n = m->n,
                                .c = m->c,
                                .other_bytes = m->other_bytes,
                                .contention = m->contention,
                                .busy_alpha = m->busy_alpha,
                                .rest_alpha = m->rest_alpha,
                                .read_s = m->read_s,
                                .wait_s = m->wait_s,
                                .watching_s = m->watching_s};
}
