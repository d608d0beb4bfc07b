/* scheduler/serve/group_times.c - see group_times.h. */
#include "scheduler/serve/group_times.h"

#include <string.h>

#define GUESSED_COMPUTE_BYTES_PER_NS 4 /* a weight is read from memory at least once */
#define GUESSED_DISK_BYTES_PER_NS 0.5
#define PART 4 /* a run moves what is expected by the difference / PART */
/* Runs that say something of the disk: they read as much, and waited for a tenth of their time. */
#define TELLING_BYTES (UINT64_C(1) << 20)
#define TELLING_PART 10

static uint64_t moved(uint64_t expected, uint64_t seen)
{
    return seen > expected ? expected + (seen - expected) / PART : expected - (expected - seen) / PART;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint32_t groups_looked_at(uint32_t count)
{
    return count < SWN_GROUPS_MOST ? count : SWN_GROUPS_MOST;
}

static void divide_anew(struct swn_group_times *t, uint32_t count)
{
    uint64_t compute = 0;

    for (uint32_t g = 0; g < t->count; g++)
        compute += t->groups[g].compute_ns;
    memset(t->groups, 0, sizeof t->groups);
    memset(t->joined, 0, sizeof t->joined);
    t->known = 0;
    t->count = count;
    for (uint32_t g = 0; g < count; g++)
        t->groups[g].compute_ns = compute / count;
}

void swn_group_times_ran(struct swn_group_times *t, const struct swn_group_run *run)
{
    uint32_t count = groups_looked_at(run->groups);
    uint64_t compute = run->wait_ns < run->ns ? run->ns - run->wait_ns : 0;

    if (run->output_bytes > t->output_bytes)
        t->output_bytes = run->output_bytes;
    if (run->group >= count || (count != t->count && t->is_weighed))
        return;
    if (count != t->count)
        divide_anew(t, count);
    if (run->is_joined)
        return;
    struct swn_lane_group *g = &t->groups[run->group];
    g->compute_ns = t->known >> run->group & 1 ? moved(g->compute_ns, compute) : compute;
    t->known |= UINT64_C(1) << run->group;
}

/* Parts of the time of as many requests alone, so that they hold when that changes. */
static void join(float parts[SWN_WIRE_JOINED], const struct swn_wire_group *group)
{
    for (unsigned i = 0; i < SWN_WIRE_JOINED; i++) {
        double part =
            group->alone_ns ? (double)group->joined_ns[i] / ((double)group->alone_ns * (double)(UINT64_C(2) << i)) : 0;
        parts[i] = part < 1 ? (float)part : 0;
    }
}

void swn_group_times_weigh(struct swn_group_times *t, const struct swn_wire_group *weights, uint32_t groups,
                           uint64_t read_total)
{
    uint32_t count = groups_looked_at(groups);

    if (count == 0)
        return;
    if (count != t->count)
        divide_anew(t, count);
    t->is_weighed = 1;
    for (uint32_t g = 0; g < count; g++) {
        t->groups[g].weight_bytes = weights[g].bytes;
        t->groups[g].identity = weights[g].identity;
        t->groups[g].dense_bytes = weights[g].dense;
        t->groups[g].activation_bytes = weights[g].activation_bytes;
        t->groups[g].state_bytes = g ? weights[g].state_bytes : 0;
        t->groups[g].missing_bytes =
            weights[g].in_memory < weights[g].bytes ? weights[g].bytes - weights[g].in_memory : 0;
        join(t->joined[g], &weights[g]);
    }
    /* Requests at groups that are not looked at count as if they were at the last one that is. */
    for (uint32_t g = count; g < groups; g++) {
        struct swn_lane_group *last = &t->groups[count - 1];
        int is_known = last->activation_bytes && weights[g].activation_bytes;
        last->activation_bytes = is_known ? larger(last->activation_bytes, weights[g].activation_bytes) : 0;
        last->state_bytes = larger(last->state_bytes, weights[g].state_bytes);
    }
    t->read_mark = read_total;
}

/* What is missing now, for good. */
static void settle(struct swn_group_times *t, uint64_t before, uint64_t now)
{
    struct swn_lane_group groups[SWN_GROUPS_MOST];

    if (t->count && before > t->read_mark) {
        swn_group_times_now(t, 0, before, groups);
        for (uint32_t g = 0; g < t->count; g++)
            t->groups[g].missing_bytes = groups[g].missing_bytes;
    }
    t->read_mark = now;
}

void swn_group_times_ahead(const struct swn_group_ahead *ahead, unsigned count, uint64_t before, uint64_t now,
                           uint64_t bytes)
{
    for (unsigned i = 0; i < count; i++) {
        struct swn_group_times *t = ahead[i].times;
        uint64_t read;

        if (t->read_mark != now)
            settle(t, before, now);
        if (ahead[i].group >= t->count)
            continue;
        read = t->groups[ahead[i].group].missing_bytes;
        read = read < bytes ? read : bytes;
        t->groups[ahead[i].group].missing_bytes -= read;
        bytes -= read;
    }
}

void swn_group_times_place(struct swn_group_times *t, uint32_t group, uint64_t in_memory, uint64_t read_total)
{
    struct swn_lane_group *g;

    if (group >= t->count)
        return;
    if (t->read_mark != read_total)
        settle(t, read_total, read_total);
    g = &t->groups[group];
    g->missing_bytes = in_memory < g->weight_bytes ? g->weight_bytes - in_memory : 0;
}

uint32_t swn_group_times_now(const struct swn_group_times *t, uint64_t weight_bytes, uint64_t read_total,
                             struct swn_lane_group *to)
{
    uint64_t since = read_total - t->read_mark;
    double all = 0;

    if (t->count == 0) {
        *to = (struct swn_lane_group){.compute_ns = weight_bytes / GUESSED_COMPUTE_BYTES_PER_NS + 1,
                                      .weight_bytes = weight_bytes,
                                      .missing_bytes = weight_bytes,
                                      .activation_bytes = SWN_LANE_NOT_KNOWN};
        return 1;
    }
    memcpy(to, t->groups, t->count * sizeof *to);
    for (uint32_t g = 0; g < t->count; g++) {
        all += (double)to[g].weight_bytes;
        if (to[g].activation_bytes == 0)
            to[g].activation_bytes = SWN_LANE_NOT_KNOWN;
        if (!(t->known >> g & 1) && to[g].compute_ns == 0)
            to[g].compute_ns = to[g].weight_bytes / GUESSED_COMPUTE_BYTES_PER_NS + 1;
    }
    for (uint32_t g = 0; g < t->count && since && all > 0; g++) {
        double lost = (double)since * ((double)to[g].weight_bytes / all);
        uint64_t there = to[g].weight_bytes - to[g].missing_bytes;
        to[g].missing_bytes += lost < (double)there ? (uint64_t)lost : there;
    }
    return t->count;
}

int swn_group_times_curve(const struct swn_group_times *t, uint32_t g, uint64_t compute_ns,
                          uint64_t curve[SWN_CURVE_MOST])
{
    int is_any = 0;

    for (uint32_t n = 1; n <= SWN_CURVE_MOST; n++) {
        double all = 0;
        for (uint32_t left = n, size; left; left -= size) {
            unsigned i = SWN_WIRE_JOINED;
            while (i-- > 0 && (UINT32_C(2) << i > left || t->joined[g][i] <= 0))
                ;
            size = i < SWN_WIRE_JOINED ? UINT32_C(2) << i : 1;
            is_any |= size > 1;
            all += (double)compute_ns * size * (size > 1 ? (double)t->joined[g][i] : 1);
        }
        curve[n - 1] = all < 9e18 ? (uint64_t)all : UINT64_C(9000000000000000000);
    }
    return is_any;
}

void swn_disk_rate_add(struct swn_disk_rate *r, const struct swn_group_run *run)
{
    double seen;

    if (run->ns == 0 || run->read_bytes < TELLING_BYTES || run->wait_ns < run->ns / TELLING_PART)
        return;
    seen = (double)run->read_bytes / (double)run->ns;
    r->bytes_per_ns += r->bytes_per_ns > 0 ? (seen - r->bytes_per_ns) / PART : seen;
}

double swn_disk_rate(const struct swn_disk_rate *r)
{
    return r->bytes_per_ns > 0 ? r->bytes_per_ns : GUESSED_DISK_BYTES_PER_NS;
}
