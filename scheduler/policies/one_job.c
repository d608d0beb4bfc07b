/* scheduler/policies/one_job.c - see one_job.h. */
#include "scheduler/policies/one_job.h"

/* A model's turn, as one pair of tasks. */
struct turn {
    double read_ns, compute_ns;
    double in_memory; /* bytes of its weights */
    int has_begun;
};

static int is_one_job(const struct swn_lane_view *view)
{
    const struct swn_lane_request *r = view->state->requests;

    for (uint32_t i = 0; i < view->n; i++)
        if (!r[i].job || r[i].job != r[0].job || r[i].upstream)
            return 0;
    return view->n == view->state->request_count && view->cohort_count > 1;
}

/* How many requests of the cohort have yet to run the group. */
static uint32_t runs_of(const struct swn_lane_view *view, const struct swn_cohort *cohort, uint32_t group)
{
    uint32_t count = 0;

    for (uint32_t k = cohort->first; k < cohort->first + cohort->count; k++)
        count += view->group[k] <= group;
    return count;
}

static struct turn turn_of(const struct swn_lane_view *view, const struct swn_cohort *cohort)
{
    const struct swn_lane_model *m = &view->state->models[cohort->model];
    double speed = view->state->disk_bytes_per_ns > 0 ? view->state->disk_bytes_per_ns : 1;
    double read = 0, compute = 0;
    struct turn t = {.has_begun = view->group[cohort->first] > 0}; /* the furthest ones come first */

    for (uint32_t g = 0; g < m->group_count; g++) {
        uint32_t runs = runs_of(view, cohort, g);
        if (!runs)
            continue;
        double weights = (double)m->groups[g].weight_bytes, missing = (double)m->groups[g].missing_bytes;
        t.in_memory += weights > missing ? weights - missing : 0;
        read += missing / speed;
        t.read_ns = read - compute > t.read_ns ? read - compute : t.read_ns;
        compute += (double)m->groups[g].compute_ns * runs;
    }
    t.compute_ns = t.read_ns + compute - read;
    return t;
}

static int waits_for_disk(const struct turn *t)
{
    return t->read_ns > t->compute_ns;
}

/* What has begun holds memory for its states, and its weights are there. */
static int is_before(const struct turn *a, const struct turn *b)
{
    if (a->has_begun != b->has_begun)
        return a->has_begun;
    if (waits_for_disk(a) != waits_for_disk(b))
        return waits_for_disk(b);
    if (!waits_for_disk(a) && (a->read_ns < b->read_ns || a->read_ns > b->read_ns))
        return a->read_ns < b->read_ns;
    return a->in_memory != b->in_memory ? a->in_memory > b->in_memory : a->compute_ns > b->compute_ns;
}

int swn_decide_one_job(const struct swn_lane_view *view, struct swn_lane_decision *decision)
{
    const struct swn_cohort *first = &view->cohort[0];
    struct turn best;

    if (!is_one_job(view))
        return 0;
    best = turn_of(view, first);
    for (uint32_t c = 1; c < view->cohort_count; c++) {
        struct turn t = turn_of(view, &view->cohort[c]);
        if (!is_before(&t, &best))
            continue;
        best = t;
        first = &view->cohort[c];
    }
    swn_cohort_step(view, first, 0, first->count - 1, decision);
    return 1;
}
