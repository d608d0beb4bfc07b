/* scheduler/policies/peers.c - see peers.h. */
#include "scheduler/policies/peers.h"

#include <math.h>

#include "scheduler/policies/scratch.h"

/* What a wait may be at least: a decision that asks for none would be made again at once. */
#define LEAST_WAIT_NS 1000

/* The closed batch of a model: its requests that have not begun, by deadline; how many may run; what a batch takes. */
struct queue {
    const struct swn_cohort *cohort;
    struct swn_completion problem;
    struct swn_due *due;
    uint32_t n, most;
};

static double batch_time(const struct queue *q, uint32_t n)
{
    double sum = 0;

    for (uint32_t g = 0; g < q->problem.group_count; g++)
        sum += q->problem.time[g * (size_t)(q->problem.most + 1) + n];
    return sum;
}

/* drops: NULL, or where those go that are late even alone. Nothing has begun. */
static struct queue queue_of(struct swn_lane_scratch *x, uint32_t cohort, struct swn_lane_decision *drops)
{
    struct queue q = {.cohort = &x->view.cohort[cohort], .due = x->due};

    q.problem = swn_cohort_problem(&x->view, q.cohort, x->time, x->bound);
    q.n = swn_due_list(&x->view, q.cohort, SWN_DUE_FIRST, q.due, drops);
    q.most = q.problem.n;
    for (uint32_t g = 0; g < q.problem.group_count; g++)
        q.most = x->bound[g] < q.most ? x->bound[g] : q.most;
    return q;
}

static void run(const struct queue *q, uint32_t from, uint32_t count, struct swn_lane_decision *decision)
{
    decision->model = q->cohort->model;
    decision->group = 0;
    for (uint32_t k = from; k < from + count; k++)
        decision->members[decision->member_count++] = q->due[k].index;
    decision->wake_ns = 0;
}

static void wake(const struct swn_lane_state *s, double after_ns, struct swn_lane_decision *decision)
{
    /* A time that no number holds is as good as none: the next arrival decides. */
    uint64_t after = after_ns < LEAST_WAIT_NS ? LEAST_WAIT_NS : after_ns < 9e18 ? (uint64_t)after_ns : (uint64_t)9e18;
    uint64_t at = after > UINT64_MAX - s->now_ns ? UINT64_MAX : s->now_ns + after;

    if (!decision->wake_ns || at < decision->wake_ns)
        decision->wake_ns = at;
}

/* The batch that has begun goes on: its least advanced members. 0: nothing has begun. */
static int go_on(const struct swn_lane_view *view, struct swn_lane_decision *decision)
{
    const struct swn_lane_request *r = view->state->requests;
    uint32_t model = UINT32_MAX, least = SWN_LANE_GROUPS;

    for (uint32_t i = 0; i < view->n; i++) {
        if (!r[i].group || (model != UINT32_MAX && r[i].model != model))
            continue;
        model = r[i].model;
        least = r[i].group < least ? r[i].group : least;
    }
    if (model == UINT32_MAX)
        return 0;
    decision->model = model;
    decision->group = least;
    for (uint32_t i = 0; i < view->n; i++)
        if (r[i].model == model && r[i].group == least)
            decision->members[decision->member_count++] = i;
    return 1;
}

/* With how many a batch of the model is closed at once; UINT32_MAX: it has no bound. */
static uint32_t full_at(const struct swn_lane_state *s, uint32_t model)
{
    uint32_t all = s->batch_most ? s->batch_most : UINT32_MAX, own = s->models[model].batch_full;

    return own && own < all ? own : all;
}

void swn_decide_dynamic(struct swn_lane_scratch *x, struct swn_lane_decision *decision)
{
    const struct swn_lane_state *s = x->view.state;

    if (go_on(&x->view, decision))
        return;
    for (uint32_t c = 0; c < x->view.cohort_count && !decision->member_count; c++) {
        struct queue q = queue_of(x, c, NULL);
        uint64_t oldest = UINT64_MAX, waited, delay = s->models[q.cohort->model].batch_delay_ns;
        uint32_t full = full_at(s, q.cohort->model);
        for (uint32_t k = 0; k < q.n; k++) {
            uint64_t arrived = s->requests[q.due[k].index].arrived_ns;
            oldest = arrived < oldest ? arrived : oldest;
        }
        waited = s->now_ns > oldest ? s->now_ns - oldest : 0;
        /* most is n where no bound is less: then the batch is not full, it has only nobody to wait for. */
        if (waited >= delay || q.n >= full || (q.n >= q.most && q.most < q.problem.n)) {
            q.most = full < q.most ? full : q.most;
            run(&q, 0, q.n < q.most ? q.n : q.most, decision);
        } else {
            wake(s, (double)(delay - waited), decision);
        }
    }
}

void swn_decide_lazy(struct swn_lane_scratch *x, struct swn_lane_decision *decision)
{
    struct swn_lane_view *view = &x->view;
    uint32_t begin[SWN_LANE_GROUPS] = {0}, c = 0, joins = 0;
    double least = INFINITY;
    struct queue q;

    if (!go_on(view, decision)) {
        q = queue_of(x, 0, NULL);
        run(&q, 0, q.n < q.most ? q.n : q.most, decision);
        return;
    }
    while (view->cohort[c].model != decision->model)
        c++;
    q = queue_of(x, c, NULL);
    for (uint32_t k = 0; k < q.n; k++)
        if (q.due[k].group) {
            begin[q.due[k].group]++;
            least = q.due[k].order_ns < least ? q.due[k].order_ns : least;
        }
    for (uint32_t k = 0; k < q.n; k++) {
        if (q.due[k].group)
            continue;
        begin[0]++;
        least = q.due[k].order_ns < least ? q.due[k].order_ns : least;
        if (swn_set_time(&q.problem, begin) > least)
            break;
        q.due[joins++] = q.due[k];
    }
    if (joins) {
        decision->member_count = 0;
        run(&q, 0, joins, decision);
    }
}

void swn_decide_nexus(struct swn_lane_scratch *x, struct swn_lane_decision *decision)
{
    const struct swn_lane_state *s = x->view.state;

    if (go_on(&x->view, decision))
        return;
    for (uint32_t c = 0; c < x->view.cohort_count && !decision->member_count; c++) {
        struct queue q = queue_of(x, c, decision);
        for (uint32_t k = 0; k < q.n && !decision->member_count; k++) {
            const struct swn_lane_request *r = &s->requests[q.due[k].index];
            double allowed = r->deadline_ns ? (double)r->deadline_ns - (double)r->arrived_ns : INFINITY;
            uint32_t target = q.n - k < q.most ? q.n - k : q.most;
            while (target > 1 && 2 * batch_time(&q, target) > allowed)
                target--;
            if (batch_time(&q, target) <= q.due[k].left_ns)
                run(&q, k, target, decision);
            else
                decision->dropped[decision->dropped_count++] = q.due[k].index;
        }
    }
}

void swn_decide_symphony(struct swn_lane_scratch *x, struct swn_lane_decision *decision)
{
    const struct swn_lane_state *s = x->view.state;
    double longer = s->time_error > 0 && s->time_error < 10 ? 1 + s->time_error : 1;

    if (go_on(&x->view, decision))
        return;
    for (uint32_t c = 0; c < x->view.cohort_count && !decision->member_count; c++) {
        struct queue q = queue_of(x, c, decision);
        uint32_t count = q.n < q.most ? q.n : q.most;
        double left, wait;
        if (!q.n)
            continue;
        left = q.due[0].left_ns;
        while (count > 1 && batch_time(&q, count) * longer > left)
            count--;
        /* Others wait that do not fit, or nobody is pressed. */
        if (count < q.n || count == s->batch_most || isinf(left)) {
            run(&q, 0, count, decision);
            continue;
        }
        /* What one more would take, by the last step of the curve. */
        wait =
            batch_time(&q, count) + (count > 1 ? batch_time(&q, count) - batch_time(&q, count - 1) : batch_time(&q, 1));
        wait = left - wait * longer;
        if (wait < LEAST_WAIT_NS)
            run(&q, 0, count, decision);
        else
            wake(s, wait, decision);
    }
}
