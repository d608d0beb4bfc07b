/* profiles/profile.c - see profile.h. */
#include "profiles/profile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct swn_profile *swn_profile_new(enum swn_profile_kind kind, const char *name)
{
    struct swn_profile *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->kind = kind;
    p->latency_s = p->busy_latency_s = p->busy_alpha = p->rest_alpha = p->read_s = p->wait_s = p->watching_s = -1;
    for (size_t i = 0; i < SWN_FITS; i++)
        p->fit[i].rc = -ENODATA;
    p->name = strdup(name);
    if (!p->name) {
        free(p);
        return NULL;
    }
    return p;
}

void swn_profile_free(struct swn_profile *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->layer_count; i++) {
        free(p->layers[i].name);
        free(p->layers[i].reads);
        free(p->layers[i].releases);
    }
    free(p->layers);
    swn_queue_depth_free(&p->queue);
    free(p->name);
    free(p->source);
    free(p->torch_version);
    free(p);
}

struct swn_profile_layer *swn_profile_add(struct swn_profile *p, const char *name)
{
    size_t n = p->layer_count;
    if ((n & (n - 1)) == 0) { /* room doubles at powers of two */
        struct swn_profile_layer *grown = realloc(p->layers, (n ? 2 * n : 1) * sizeof *grown);
        if (!grown)
            return NULL;
        p->layers = grown;
    }
    struct swn_profile_layer *l = &p->layers[n];
    memset(l, 0, sizeof *l);
    l->l.compute_s = l->op_s = -1;
    l->name = strdup(name);
    if (!l->name)
        return NULL;
    p->layer_count++;
    return l;
}

static size_t count_samples(const struct swn_profile *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->layer_count; i++)
        n += p->layers[i].read_count + p->layers[i].release_count + 1;
    return n;
}

static size_t gather_in(const struct swn_profile *p, struct swn_sample *s)
{
    size_t n = 0;
    for (size_t i = 0; i < p->layer_count; i++) {
        const struct swn_profile_layer *l = &p->layers[i];
        for (size_t k = 0; k < l->read_count; k++) {
            uint64_t depth = l->reads[k].bytes < l->l.bytes || !l->l.depth ? 1 : l->l.depth;
            depth = l->reads[k].references ? l->reads[k].references : depth;
            s[n++] = (struct swn_sample){{(double)l->reads[k].bytes, (double)depth}, l->reads[k].seconds};
        }
    }
    return n;
}

/* Layers without counted operations do not count for the time of an operation. */
static size_t gather_ex(const struct swn_profile *p, struct swn_sample *s)
{
    size_t n = 0;
    for (size_t i = 0; i < p->layer_count; i++)
        if (p->layers[i].l.flops && p->layers[i].l.compute_s >= 0)
            s[n++] = (struct swn_sample){{(double)p->layers[i].l.flops, 0}, p->layers[i].l.compute_s};
    return n;
}

static size_t gather_out(const struct swn_profile *p, struct swn_sample *s)
{
    size_t n = 0;
    for (size_t i = 0; i < p->layer_count; i++)
        for (size_t k = 0; k < p->layers[i].release_count; k++) {
            const struct swn_profile_release *r = &p->layers[i].releases[k];
            uint64_t depth = p->layers[i].l.depth ? p->layers[i].l.depth : 1;
            s[n++] = (struct swn_sample){{(double)(r->references ? r->references : depth), 0}, r->seconds};
        }
    return n;
}

static void fit_one(struct swn_profile *p, int which, const struct swn_sample *s, size_t n, unsigned columns)
{
    struct swn_profile_fit *f = &p->fit[which];
    f->rc = swn_fit(s, n, columns, &f->fit);
}

int swn_profile_fit(struct swn_profile *p)
{
    struct swn_sample *s = calloc(count_samples(p) + 1, sizeof *s);
    if (!s)
        return -ENOMEM;
    fit_one(p, SWN_FIT_IN, s, gather_in(p, s), 2);
    fit_one(p, SWN_FIT_EX, s, gather_ex(p, s), 1);
    fit_one(p, SWN_FIT_OUT, s, gather_out(p, s), 1);
    free(s);
    p->known = p->estimates = 0;
    p->c = (struct swn_coefficients){0};
    if (!p->fit[SWN_FIT_IN].rc) {
        p->c.alpha = p->fit[SWN_FIT_IN].fit.c[0];
        p->c.beta = p->fit[SWN_FIT_IN].fit.c[1];
        p->known |= SWN_ALPHA | SWN_BETA;
    }
    if (!p->fit[SWN_FIT_EX].rc) {
        p->c.gamma = p->fit[SWN_FIT_EX].fit.c[0];
        p->known |= SWN_GAMMA;
    }
    if (!p->fit[SWN_FIT_OUT].rc) {
        p->c.eta = p->fit[SWN_FIT_OUT].fit.c[0];
        p->known |= SWN_ETA;
    }
    return 0;
}

/* --- what the coefficients are worth --- */

/* A fit that explains less than this part of the variance is doubtful. */
#define LITTLE 0.5
/* References matter when they explain more than this part of what bytes alone leave unexplained. */
#define MORE 0.05

static int varies(const struct swn_sample *s, size_t n, unsigned column)
{
    for (size_t i = 1; i < n; i++)
        if (s[i].x[column] < s[0].x[column] || s[i].x[column] > s[0].x[column])
            return 1;
    return 0;
}

static const char *doubt_beta(const struct swn_sample *s, size_t n, double beta, double r2)
{
    struct swn_fit bytes;
    if (!varies(s, n, 1))
        return "all swap-ins had the same number of references, so it is what one takes beside its bytes, shared out";
    if (!(beta > 0))
        return "nothing could be measured that references add to the time of their bytes";
    if (!swn_fit(s, n, 1, &bytes) && 1 - r2 > (1 - bytes.r2) * (1 - MORE))
        return "bytes alone explain the times as well: references add less than what was measured varies";
    return NULL;
}

static const char *doubt_eta(const struct swn_sample *s, size_t n, const struct swn_fit *fit)
{
    if (!varies(s, n, 0))
        return "all swap-outs had the same number of references, so it is an average, and R^2 says nothing";
    if (fit->r2 < LITTLE)
        return "the number of references explains little of what a swap-out takes, so it is an average; without a "
               "budget every reference is let go of by itself, and timed";
    return NULL;
}

const char *swn_profile_doubt(const struct swn_profile *p, unsigned bit)
{
    int which = bit == SWN_GAMMA ? SWN_FIT_EX : bit == SWN_ETA ? SWN_FIT_OUT : SWN_FIT_IN;
    const struct swn_fit *fit = &p->fit[which].fit;
    struct swn_sample *s = p->known & bit && !p->fit[which].rc ? calloc(count_samples(p) + 1, sizeof *s) : NULL;
    const char *why = NULL;
    size_t n;
    if (!s)
        return NULL;
    if (bit == SWN_ALPHA && (n = gather_in(p, s)) && fit->r2 < LITTLE)
        why = "sizes explain little of what a swap-in takes: was the disk busy with something else?";
    else if (bit == SWN_BETA && (n = gather_in(p, s)))
        why = doubt_beta(s, n, p->c.beta, fit->r2);
    else if (bit == SWN_GAMMA && (n = gather_ex(p, s)) && fit->r2 < LITTLE)
        why = "operations explain little of what these layers take to compute; plans go by the measured times";
    else if (bit == SWN_ETA && (n = gather_out(p, s)))
        why = doubt_eta(s, n, fit);
    free(s);
    return why;
}
