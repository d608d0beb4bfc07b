/* tools/ctl/share.c - `run --budget N%`: a share of a model's weights, as a model profile states them (invariant 3).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ctl/ctl.h"
#include "scheduler/planner/predict.h"
#include "profiles/profile.h"

static int parse_share(const char *text, double *share)
{
    char *end;
    double percent = strtod(text, &end);
    if (end == text || strcmp(end, "%") || !(percent >= 1 && percent <= 100)) {
        swn_cli_error("budget '%s' is not right: a percentage is from 1%% to 100%%", text);
        return -EINVAL;
    }
    *share = percent / 100;
    return 0;
}

/* The peak of the nonweight bytes, plus that share of the weights. */
static uint64_t share_of(const struct swn_profile *p, double share)
{
    uint64_t always = p->other_bytes, weights = 0;
    for (size_t i = 0; i < p->layer_count; i++)
        *(p->layers[i].l.bytes < SWN_PREDICT_STREAMED ? &always : &weights) += p->layers[i].l.bytes;
    return always + (uint64_t)(share * (double)weights);
}

int ctl_share_resolve(const char *path)
{
    const char *text = getenv("SWAPNET_BUDGET");
    char why[SWN_PROFILE_WHY], bytes[32];
    struct swn_profile *p;
    double share;
    int percent = text && *text && text[strlen(text) - 1] == '%';
    if (!percent && path)
        swn_cli_error("--profile says what a percentage is of: give one as the budget, e.g. --budget 50%%");
    if (!percent || !path)
        return path ? -EINVAL : 0;
    int rc = parse_share(text, &share);
    if (rc)
        return rc;
    rc = swn_profile_load(&p, path, why);
    if (rc) {
        swn_cli_error("%s: %s", path, why);
        return rc;
    }
    if (p->kind != SWN_PROFILE_MODEL || !p->layer_count) {
        swn_cli_error("%s is no profile of a model: 'swapnetctl profile' writes one", path);
        rc = -EINVAL;
    }
    snprintf(bytes, sizeof bytes, "%" PRIu64, share_of(p, rc ? 0 : share));
    swn_profile_free(p);
    return rc ? rc : setenv("SWAPNET_BUDGET", bytes, 1) ? -errno : 0;
}
