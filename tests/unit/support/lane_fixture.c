/* tests/unit/support/lane_fixture.c - see lane_fixture.h. The lane counts memory and time by itself: from what lane.h
 * says of the fields, not with the policies' own functions. */
#include "tests/unit/support/lane_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/policies/policy.h"
#include "tests/unit/support/random.h"

#define TABLE 16

static uint64_t tables[LANE_MODELS][SWN_LANE_GROUPS][TABLE];

static void random_group(struct swn_lane_group *g, uint64_t *table, enum lane_family family)
{
    double a = uniform(1e5, 2e6);

    *g = (struct swn_lane_group){.compute_ns = (uint64_t)a, .weight_bytes = (uint64_t)(4 * a)};
    if (family == LANE_DISK)
        g->missing_bytes = (uint64_t)(a * uniform(0.5, 4));
    if (family != LANE_GPU && family != LANE_AFFINE)
        return;
    for (unsigned n = 1; n <= TABLE; n++)
        table[n - 1] = (uint64_t)(a * (family == LANE_GPU ? 1 + 0.08 * (n - 1) : 0.55 + 0.45 * n));
    g->batch_ns = table;
    g->batch_count = TABLE;
}

struct swn_lane_scratch *lane_scratch;

int lane_scratch_make(void **state)
{
    (void)state;
    lane_scratch = swn_lane_scratch_new();
    return !lane_scratch;
}

int lane_scratch_done(void **state)
{
    (void)state;
    swn_lane_scratch_free(lane_scratch);
    return 0;
}

void lane_scene_init(struct lane_scene *s, uint32_t models, uint32_t groups, enum lane_family family)
{
    memset(s, 0, sizeof *s);
    for (uint32_t m = 0; m < models; m++) {
        for (uint32_t g = 0; g < groups; g++)
            random_group(&s->groups[m][g], tables[m][g], family);
        s->models[m] = (struct swn_lane_model){.groups = s->groups[m], .group_count = groups};
    }
    s->state = (struct swn_lane_state){.now_ns = 1000000000,
                                       .models = s->models,
                                       .model_count = models,
                                       .last_model = UINT32_MAX,
                                       .requests = s->requests,
                                       .disk_bytes_per_ns = 1};
}

void lane_scene_memory(struct lane_scene *s)
{
    uint64_t most = 0;

    for (uint32_t m = 0; m < s->state.model_count; m++)
        for (uint32_t g = 0; g < s->models[m].group_count; g++) {
            struct swn_lane_group *group = &s->groups[m][g];
            uint64_t need;
            group->state_bytes = g ? 1 + rnd_below(1000000) : 0;
            group->window_bytes = group->weight_bytes / (1 + rnd_below(4));
            group->activation_bytes = 2000000 + rnd_below(1000000);
            need = group->window_bytes + group->activation_bytes;
            most = need > most ? need : most;
        }
    s->state.memory_bytes = most + rnd_below(5000000);
}

uint32_t lane_scene_add(struct lane_scene *s, uint32_t model, uint32_t group, uint64_t arrived_ns, uint64_t deadline_ns)
{
    assert_true(s->state.request_count < LANE_FIXTURE_REQUESTS);
    s->requests[s->state.request_count] = (struct swn_lane_request){.id = ++s->next_id,
                                                                    .model = model,
                                                                    .group = group,
                                                                    .arrived_ns = arrived_ns,
                                                                    .deadline_ns = deadline_ns,
                                                                    .weight = 1};
    return s->state.request_count++;
}

void lane_scene_fill(struct lane_scene *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t model = (uint32_t)rnd_below(s->state.model_count), groups = s->models[model].group_count;
        for (uint32_t k = 0; k < i; k++)
            if (s->requests[k].model == model)
                groups = s->requests[k].group + 1;
        lane_scene_add(s, model, (uint32_t)rnd_below(groups), s->state.now_ns, 0);
    }
}

static uint64_t held_before(const struct lane_scene *s, const struct swn_lane_request *r, uint32_t group)
{
    const struct swn_lane_model *m = &s->models[r->model];

    return group < m->group_count ? m->groups[group].state_bytes : m->output_bytes;
}

/* Every byte while the batch runs, one member after the other. */
static uint64_t peak(const struct lane_scene *s, const struct swn_lane_decision *d)
{
    const struct swn_lane_group *g = &s->models[d->model].groups[d->group];
    uint64_t most = 0, base = d->member_count < 2 && g->window_bytes ? g->window_bytes : g->weight_bytes;

    for (uint32_t i = 0; i < s->state.request_count; i++)
        base += held_before(s, &s->requests[i], s->requests[i].group);
    for (uint32_t k = 0; k < d->dropped_count; k++)
        base -= held_before(s, &s->requests[d->dropped[k]], s->requests[d->dropped[k]].group);
    for (uint32_t k = 0; k < d->member_count; k++) {
        const struct swn_lane_request *r = &s->requests[d->members[k]];
        uint64_t now = base - held_before(s, r, d->group) + s->models[r->model].groups[d->group].activation_bytes;
        most = now > most ? now : most;
        base += held_before(s, r, d->group + 1) - held_before(s, r, d->group);
    }
    return most;
}

void lane_check(const struct lane_scene *s, const struct swn_lane_decision *d)
{
    uint8_t seen[LANE_FIXTURE_REQUESTS] = {0};

    assert_true(d->member_count <= s->state.request_count && d->dropped_count <= s->state.request_count);
    for (uint32_t k = 0; k < d->member_count; k++) {
        assert_true(d->members[k] < s->state.request_count);
        assert_int_equal(seen[d->members[k]]++, 0);
        assert_int_equal(s->requests[d->members[k]].group, d->group);
    }
    for (uint32_t k = 0; k < d->dropped_count; k++) {
        assert_true(d->dropped[k] < s->state.request_count);
        assert_int_equal(seen[d->dropped[k]]++, 0);
        assert_true(s->requests[d->dropped[k]].deadline_ns);
    }
    if (d->member_count)
        assert_int_equal(s->requests[d->members[0]].model, d->model);
    if (s->state.batch_most)
        assert_true(d->member_count <= s->state.batch_most);
    if (s->state.memory_bytes && d->member_count)
        assert_true(peak(s, d) <= s->state.memory_bytes);
}

static double batch_time(const struct lane_scene *s, const struct swn_lane_decision *d)
{
    const struct swn_lane_group *g = &s->models[d->model].groups[d->group];
    uint32_t n = d->member_count;
    double compute = g->batch_ns ? (double)g->batch_ns[n - 1] : (double)g->compute_ns * n;
    double reading = (double)g->missing_bytes / s->state.disk_bytes_per_ns;

    return compute > reading ? compute : reading;
}

void lane_apply(struct lane_scene *s, const struct swn_lane_decision *d)
{
    uint8_t gone[LANE_FIXTURE_REQUESTS] = {0};
    uint32_t left = 0;

    for (uint32_t k = 0; k < d->dropped_count; k++)
        gone[d->dropped[k]] = 1;
    s->drops += d->dropped_count;
    if (d->member_count) {
        s->state.now_ns += (uint64_t)batch_time(s, d);
        s->state.last_model = d->model;
        s->batches++;
        s->members += d->member_count;
    }
    for (uint32_t k = 0; k < d->member_count; k++) {
        struct swn_lane_request *r = &s->requests[d->members[k]];
        if (++r->group < s->models[r->model].group_count)
            continue;
        gone[d->members[k]] = 1;
        s->ended++;
        s->late += r->deadline_ns && s->state.now_ns > r->deadline_ns;
        s->weighted_ns += r->weight * (double)(s->state.now_ns - r->arrived_ns);
    }
    for (uint32_t i = 0; i < s->state.request_count; i++)
        if (!gone[i])
            s->requests[left++] = s->requests[i];
    s->state.request_count = left;
}
