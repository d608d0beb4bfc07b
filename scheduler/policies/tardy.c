/* scheduler/policies/tardy.c - see tardy.h. */
#include "scheduler/policies/tardy.h"

#include <math.h>

#include "scheduler/policies/edf.h"
#include "scheduler/policies/scratch.h"
#include "scheduler/policies/soonest.h"

/* T of all segments. */
static void times(const struct swn_completion *c, struct swn_tardy_room *room)
{
    for (uint32_t j = 0; j < c->n; j++)
        for (uint32_t i = 0; i <= j; i++)
            room->time[i][j] = swn_segment_time(c, i, j);
}

/* Ways to serve the run i .. j after the first i in `time`, which must not end after `due`. */
static void offer(struct swn_tardy_room *room, uint32_t i, uint32_t j, uint32_t dropped, double time, double due)
{
    for (uint32_t k = dropped; k <= j + 1; k++) {
        double end = room->end[i][k - dropped] + time;
        if (end > due || end >= room->end[j + 1][k])
            continue;
        room->end[j + 1][k] = end;
        room->cut[j + 1][k].begin = i;
        room->cut[j + 1][k].dropped = dropped;
        room->cut[j + 1][k].due = due;
    }
}

/* All segments of all runs that end with j. `late` has the requests of the run, the last one to be due first. */
static void fill(const struct swn_completion *c, const double *left, struct swn_tardy_room *room, uint32_t j)
{
    uint32_t late[SWN_TARDY_REQUESTS], n = 0;

    for (uint32_t k = 0; k <= c->n; k++)
        room->end[j + 1][k] = INFINITY;
    if (left[j] < INFINITY)
        offer(room, j, j, 1, 0, INFINITY);
    for (uint32_t i = j + 1; i-- > 0;) {
        uint32_t begin[SWN_LANE_GROUPS] = {0}, at = n++;
        for (; at && left[late[at - 1]] < left[i]; at--)
            late[at] = late[at - 1];
        late[at] = i;
        for (uint32_t k = 0; k < n; k++) {
            begin[c->group[late[k]]]++;
            if (k + 1 == n || left[late[k + 1]] < left[late[k]])
                offer(room, i, j, n - k - 1, swn_set_time(c, begin), left[late[k]]);
        }
    }
}

/* All that have no deadline are in segments. */
static uint32_t plan_all(const struct swn_completion *c, const double *left, struct swn_tardy_room *room,
                         uint32_t *segment)
{
    uint32_t drops = 0, count = 0;

    for (uint32_t k = 0; k <= c->n; k++)
        room->end[0][k] = k ? INFINITY : 0;
    for (uint32_t j = 0; j < c->n; j++)
        fill(c, left, room, j);
    while (!(room->end[c->n][drops] < INFINITY)) /* with all dropped that have deadlines the end is finite */
        drops++;
    /* Back through the runs; the last segment has number 0 at first. */
    for (uint32_t j = c->n, k = drops; j > 0;) {
        uint32_t begin = room->cut[j][k].begin, dropped = room->cut[j][k].dropped;
        double due = room->cut[j][k].due;
        int is_empty = dropped == j - begin;
        for (uint32_t i = begin; i < j; i++)
            segment[i] = is_empty || left[i] < due ? SWN_TARDY_DROPPED : count;
        count += !is_empty;
        k -= dropped;
        j = begin;
    }
    for (uint32_t i = 0; i < c->n; i++)
        if (segment[i] != SWN_TARDY_DROPPED)
            segment[i] = count - 1 - segment[i];
    return drops;
}

/* Those that have a deadline, as if the others were not there. */
static uint32_t plan_due(const struct swn_completion *c, const double *left, struct swn_tardy_room *room,
                         uint32_t *segment)
{
    uint32_t group[SWN_TARDY_REQUESTS], of_due[SWN_TARDY_REQUESTS], drops;
    struct swn_completion due = *c;
    double then[SWN_TARDY_REQUESTS];

    due.n = 0;
    due.group = group;
    for (uint32_t i = 0; i < c->n; i++)
        if (left[i] < INFINITY) {
            group[due.n] = c->group[i];
            then[due.n++] = left[i];
        }
    drops = plan_all(&due, then, room, of_due);
    for (uint32_t i = 0, k = 0; i < c->n; i++)
        segment[i] = left[i] < INFINITY ? of_due[k++] : SWN_TARDY_WAITS;
    return drops;
}

uint32_t swn_tardy_plan(const struct swn_completion *c, const double *left, int may_wait, struct swn_tardy_room *room,
                        uint32_t *segment)
{
    uint32_t waiting[SWN_TARDY_REQUESTS], drops = plan_all(c, left, room, segment), fewer;

    if (!may_wait || !drops)
        return drops;
    fewer = plan_due(c, left, room, waiting);
    for (uint32_t i = 0; i < c->n && fewer < drops; i++)
        segment[i] = waiting[i];
    return fewer < drops ? fewer : drops;
}

uint32_t swn_tardy_paper(const struct swn_completion *c, const double *left, struct swn_tardy_room *room,
                         uint32_t *segment)
{
    double end[SWN_TARDY_REQUESTS + 1] = {0};
    uint32_t late[SWN_TARDY_REQUESTS + 1] = {0}, cut[SWN_TARDY_REQUESTS + 1] = {0}, count = 0, drops = 0;

    times(c, room);
    for (uint32_t j = 0; j < c->n; j++) {
        end[j + 1] = INFINITY;
        late[j + 1] = UINT32_MAX;
        for (uint32_t i = j + 1; i-- > 0;) {
            double then = end[i] + room->time[i][j];
            uint32_t number = late[i];
            for (uint32_t k = i; k <= j; k++)
                number += left[k] < then;
            if (then < INFINITY && (number < late[j + 1] || (number == late[j + 1] && then < end[j + 1]))) {
                end[j + 1] = then;
                late[j + 1] = number;
                cut[j + 1] = i;
            }
        }
    }
    for (uint32_t j = c->n; j > 0; j = cut[j])
        count++;
    for (uint32_t j = c->n; j > 0; j = cut[j]) {
        count--;
        for (uint32_t i = cut[j]; i < j; i++) {
            segment[i] = left[i] < end[j] ? SWN_TARDY_DROPPED : count;
            drops += left[i] < end[j];
        }
    }
    return drops;
}

/* Who runs first in a plan: the least advanced ones of the first segment that anybody is left in; and how long that may
 * wait. */
struct first {
    uint32_t segment, group;
    double slack_ns;
    uint8_t is_member[SWN_TARDY_REQUESTS]; /* of those that are served */
};

static struct first first_of(const struct swn_completion *c, const struct swn_due *due, const uint32_t *segment)
{
    struct first f = {.segment = SWN_TARDY_DROPPED, .group = SWN_LANE_GROUPS};
    uint32_t begin = SWN_LANE_REQUESTS, last = 0;
    double least = INFINITY;

    for (uint32_t i = 0; i < c->n; i++)
        f.segment = segment[i] < SWN_TARDY_WAITS && segment[i] < f.segment ? segment[i] : f.segment;
    for (uint32_t i = 0; i < c->n && f.segment != SWN_TARDY_DROPPED; i++) {
        if (segment[i] != f.segment)
            continue;
        begin = i < begin ? i : begin;
        last = i;
        f.group = due[i].group < f.group ? due[i].group : f.group;
        least = due[i].order_ns < least ? due[i].order_ns : least;
    }
    if (begin <= last)
        f.slack_ns = least - swn_segment_time(c, begin, last);
    return f;
}

/* Whether all but those of `is_in` can be on time when these are done after `time`. */
static int are_others_on_time(const struct swn_completion *c, const double *left, const uint8_t *is_in, double time,
                              struct swn_tardy_room *room)
{
    uint32_t group[SWN_TARDY_REQUESTS], segment[SWN_TARDY_REQUESTS];
    double then[SWN_TARDY_REQUESTS];
    struct swn_completion others = *c;

    others.n = 0;
    others.group = group;
    for (uint32_t i = 0; i < c->n; i++)
        if (!is_in[i]) {
            group[others.n] = c->group[i];
            then[others.n++] = left[i] - time;
        }
    return !swn_tardy_plan(&others, then, 1, room, segment);
}

/* Puts the batch of edf.h first, of those whom the plan serves, if the others are on time all the same. */
static void run_full(const struct swn_completion *c, const double *left, struct swn_tardy_room *room,
                     struct first *first)
{
    uint32_t by_due[SWN_TARDY_REQUESTS], group = SWN_LANE_GROUPS;
    uint8_t is_in[SWN_TARDY_REQUESTS];

    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t at = i;
        for (; at && left[by_due[at - 1]] > left[i]; at--)
            by_due[at] = by_due[at - 1];
        by_due[at] = i;
    }
    if (!are_others_on_time(c, left, is_in, swn_edf_batch(c, by_due, left, is_in), room))
        return;
    for (uint32_t i = 0; i < c->n; i++)
        group = is_in[i] && c->group[i] < group ? c->group[i] : group;
    first->group = group;
    for (uint32_t i = 0; i < c->n; i++)
        first->is_member[i] = is_in[i] && c->group[i] == group;
}

enum tardy_plan {
    PAPER,
    EXACT,
    FULL, /* the exact one, with a batch as full as it may be at first: it does not know when other cohorts are due */
};

/* The plan of one cohort, whose `n` requests are at `due`: who is in no segment is dropped, the others are moved to the
 * front. Their number; *first: who runs first. */
static uint32_t plan_cohort(struct swn_lane_scratch *x, const struct swn_cohort *cohort, struct swn_due *due,
                            uint32_t n, enum tardy_plan plan, struct first *first, struct swn_lane_decision *decision)
{
    uint32_t group[SWN_TARDY_REQUESTS], segment[SWN_TARDY_REQUESTS], kept = 0, may_wait = 1;
    struct swn_completion problem = swn_cohort_problem(&x->view, cohort, x->time, x->bound);
    double left[SWN_TARDY_REQUESTS];

    problem.n = n < SWN_TARDY_REQUESTS ? n : SWN_TARDY_REQUESTS;
    problem.group = group;
    problem.weight = NULL;
    for (uint32_t i = 0; i < problem.n; i++) {
        group[i] = due[i].group;
        left[i] = plan == PAPER ? due[i].left_ns : swn_due_safe(&x->view, cohort, &due[i]);
        may_wait &= left[i] < INFINITY || due[i].order_ns > 0;
    }
    if (plan == PAPER)
        swn_tardy_paper(&problem, left, &x->tardy, segment);
    else
        swn_tardy_plan(&problem, left, (int)may_wait, &x->tardy, segment);
    *first = first_of(&problem, due, segment);
    for (uint32_t i = 0; i < problem.n; i++)
        if (segment[i] == SWN_TARDY_DROPPED) {
            decision->dropped[decision->dropped_count++] = due[i].index;
        } else {
            first->is_member[kept] = segment[i] == first->segment && group[i] == first->group;
            group[kept] = group[i];
            left[kept] = left[i];
            due[kept++] = due[i];
        }
    problem.n = kept;
    if (plan == FULL && kept)
        run_full(&problem, left, &x->tardy, first);
    return kept;
}

void swn_decide_tardy(struct swn_lane_scratch *x, int is_paper, struct swn_lane_decision *decision)
{
    struct swn_lane_view *view = &x->view;
    uint32_t count[SWN_LANE_REQUESTS];
    double slack = INFINITY;
    uint32_t cohorts = 0;

    for (uint32_t c = 0; c < view->cohort_count; c++) {
        count[c] = swn_due_list(view, &view->cohort[c], SWN_DUE_IN_GROUPS, x->due + view->cohort[c].first, decision);
        cohorts += count[c] != 0;
    }
    enum tardy_plan plan = is_paper ? PAPER : cohorts == 1 ? FULL : EXACT;
    if (!is_paper && swn_decide_soonest(x, count, decision))
        return;
    for (uint32_t c = 0; c < view->cohort_count; c++) {
        const struct swn_cohort *cohort = &view->cohort[c];
        struct swn_due *due = x->due + cohort->first;
        struct first first;
        uint32_t kept;
        if (!count[c])
            continue;
        kept = plan_cohort(x, cohort, due, count[c], plan, &first, decision);
        if (first.segment == SWN_TARDY_DROPPED || (decision->member_count && first.slack_ns >= slack))
            continue;
        slack = first.slack_ns;
        decision->model = cohort->model;
        decision->group = first.group;
        decision->member_count = 0;
        for (uint32_t i = 0; i < kept; i++)
            if (first.is_member[i])
                decision->members[decision->member_count++] = due[i].index;
    }
}
