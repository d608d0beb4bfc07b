/* scheduler/policies/completion.c - see completion.h. */
#include "scheduler/policies/completion.h"

#include <math.h>

double swn_segment_time(const struct swn_completion *c, uint32_t first, uint32_t last)
{
    double sum = 0;
    uint32_t members = 0, k = last + 1;

    for (uint32_t g = c->group[last]; g < c->group_count; g++) {
        while (k > first && c->group[k - 1] <= g) {
            members++;
            k--;
        }
        if (c->bound && members > c->bound[g] && last > first)
            return INFINITY;
        sum += c->time[g * (size_t)(c->most + 1) + members];
    }
    return sum;
}

double swn_set_time(const struct swn_completion *c, const uint32_t *begin)
{
    uint32_t members = 0, all = 0;
    double sum = 0;

    for (uint32_t g = 0; g < c->group_count; g++)
        all += begin[g];
    for (uint32_t g = 0; g < c->group_count; g++) {
        members += begin[g];
        if (c->bound && members > c->bound[g] && all > 1)
            return INFINITY;
        sum += c->time[g * (size_t)(c->most + 1) + members];
    }
    return sum;
}

/* R, infinite above a bound; but one request may always run. p. */
static void sums(const struct swn_completion *c, struct swn_completion_room *room)
{
    size_t row = (size_t)c->n + 1;

    for (uint32_t m = 0; m <= c->n; m++)
        room->rest[c->group_count * row + m] = 0;
    for (uint32_t g = c->group_count; g-- > 0;) {
        double *rest = room->rest + g * row;
        const double *time = c->time + g * (size_t)(c->most + 1);
        uint32_t bound = c->bound && c->bound[g] < c->n ? c->bound[g] : c->n;
        for (uint32_t m = 0; m <= c->n; m++)
            rest[m] = m > bound && m > 1 ? INFINITY : rest[row + m] + time[m];
    }
    for (uint32_t g = 0, i = c->n; g < c->group_count; g++) {
        while (i > 0 && c->group[i - 1] <= g)
            i--;
        room->place[g] = i;
    }
}

/* F of the first j + 1 requests: all segments that end with j. Its oldest request moves down, group by group. */
static void column(const struct swn_completion *c, struct swn_completion_room *room, uint32_t j)
{
    const double *least = room->least, *waiting = room->waiting;
    double best = INFINITY, before = 0; /* before: the groups that only newer requests than i run */
    uint32_t cut = j, i = j;

    for (uint32_t a = c->group[j]; a < c->group_count; a++) {
        const double *rest = room->rest + a * ((size_t)c->n + 1);
        uint32_t end = room->place[a], members = j + 1 - end;
        for (uint32_t k = i + 1; k-- > end;) {
            double cost = least[k] + waiting[k] * (before + rest[j + 1 - k]);
            if (cost < best) {
                best = cost;
                cut = k;
            }
        }
        if (!end || (c->bound && members > c->bound[a]))
            break;
        i = end - 1;
        before += c->time[a * (size_t)(c->most + 1) + members];
    }
    room->least[j + 1] = best;
    room->cut[j + 1] = cut;
}

static double weight_of(const struct swn_completion *c, uint32_t i)
{
    return c->weight ? c->weight[i] : 1;
}

static struct swn_segment segment(const struct swn_completion *c, uint32_t first, uint32_t last)
{
    struct swn_segment s = {.first = first, .last = last, .time_ns = swn_segment_time(c, first, last)};

    for (uint32_t i = first; i <= last; i++)
        s.weight += weight_of(c, i);
    return s;
}

uint32_t swn_completion_plan(const struct swn_completion *c, struct swn_completion_room *room,
                             struct swn_segment *segments, double *total)
{
    uint32_t count = 0, at;

    sums(c, room);
    room->waiting[c->n] = 0;
    for (uint32_t i = c->n; i-- > 0;)
        room->waiting[i] = room->waiting[i + 1] + weight_of(c, i);
    room->least[0] = 0;
    for (uint32_t j = 0; j < c->n; j++)
        column(c, room, j);

    for (uint32_t end = c->n; end > 0; end = room->cut[end])
        count++;
    at = count;
    for (uint32_t end = c->n; end > 0; end = room->cut[end])
        segments[--at] = segment(c, room->cut[end], end - 1);
    *total = room->least[c->n];
    return count;
}

uint32_t swn_completion_fixed(const struct swn_completion *c, uint32_t size, struct swn_segment *segments,
                              double *total)
{
    double waiting = 0;
    uint32_t count = 0;

    for (uint32_t i = 0; i < c->n; i++)
        waiting += weight_of(c, i);
    *total = 0;
    for (uint32_t first = 0, last; first < c->n; first = last + 1) {
        uint32_t most = size < c->n - first ? size : c->n - first;
        for (uint32_t g = c->group[first]; c->bound && g < c->group_count; g++) /* all members run these groups */
            most = c->bound[g] < most ? c->bound[g] : most;
        last = first + (most ? most : 1) - 1;
        while (last > first && isinf(swn_segment_time(c, first, last)))
            last--;
        segments[count] = segment(c, first, last);
        *total += waiting * segments[count].time_ns;
        waiting -= segments[count++].weight;
    }
    return count;
}
