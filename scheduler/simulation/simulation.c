/* scheduler/simulation/simulation.c - see simulation.h. Passes stay in the order of their ids; `live` runs beside them.
 */
#include "scheduler/simulation/simulation.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/tasks/state.h"

struct live {
    uint32_t arrival;
    uint64_t computed_ns;
};

struct run {
    const struct swn_network_table *networks;
    const struct swn_arrival_table *arrivals;
    const struct swn_simulation *how;
    struct swn_task_state s;
    struct live *live;
    uint32_t *open; /* passes of each job that have not ended */
    uint64_t *response_ns;
    struct swn_simulation_result *result;
    uint32_t next; /* arrival */
    uint32_t room; /* for passes, and copies */
    int is_bounded;
    uint64_t waiting; /* id of a pass whose layer waits for memory, and all that would begin with it; 0: none */
};

static int grow(struct run *r)
{
    uint32_t room = r->room ? 2 * r->room : 64;
    void *passes = realloc(r->s.passes, room * sizeof *r->s.passes), *live, *copies;

    r->s.passes = passes ? passes : r->s.passes;
    live = realloc(r->live, room * sizeof *r->live);
    r->live = live ? live : r->live;
    copies = realloc(r->s.copies, room * sizeof *r->s.copies);
    r->s.copies = copies ? copies : r->s.copies;
    if (!passes || !live || !copies)
        return -ENOMEM;
    r->room = room;
    return 0;
}

static uint32_t take_copy(struct run *r, uint32_t network)
{
    uint32_t c = 0;

    if (r->s.is_shared)
        return network;
    while (c < r->s.copy_count && r->s.copies[c].is_taken)
        c++;
    r->s.copy_count += c == r->s.copy_count;
    memset(&r->s.copies[c], 0, sizeof *r->s.copies);
    r->s.copies[c].network = network;
    r->s.copies[c].is_taken = 1;
    return c;
}

static int arrive(struct run *r)
{
    const struct swn_arrival *a = &r->arrivals->arrivals[r->next];

    if (r->s.pass_count == r->room && grow(r))
        return -ENOMEM;
    r->live[r->s.pass_count] = (struct live){r->next, 0};
    r->s.passes[r->s.pass_count++] = (struct swn_task_pass){
        .id = r->next + UINT64_C(1),
        .upstream = a->upstream == SWN_TABLE_NONE ? 0 : a->upstream + UINT64_C(1),
        .arrived_ns = a->arrived_ns,
        .weight = 1,
        .probability = r->how->probability,
        .job = a->job,
        .network = a->network,
        .copy = take_copy(r, a->network),
        .inputs = a->inputs,
        .is_undecided = a->upstream != SWN_TABLE_NONE,
    };
    r->open[a->job]++;
    r->next++;
    return 0;
}

static void end_pass(struct run *r, uint32_t pass)
{
    uint32_t job = r->s.passes[pass].job;

    if (--r->open[job])
        return;
    r->response_ns[job] = r->s.now_ns - r->s.passes[pass].arrived_ns;
    r->result->end_ns = r->s.now_ns;
}

/* The passes behind one that has ended or is not needed, and those behind them. Where one ended before it was known
 * whether it is needed (CA-preempt), those behind it wait for what it would have waited for. */
static void answer(struct run *r, uint64_t upstream, uint64_t beyond, int needed)
{
    for (uint32_t p = 0; p < r->s.pass_count; p++) {
        struct swn_task_pass *pass = &r->s.passes[p];

        if (pass->upstream != upstream || !pass->is_undecided || pass->is_aborted)
            continue;
        if (needed || r->how->cascade == SWN_CASCADE_IGNORE) {
            pass->is_undecided = beyond != 0;
            pass->upstream = beyond;
            continue;
        }
        if (swn_task_is_done(&r->s, pass))
            continue;
        pass->is_aborted = 1;
        answer(r, pass->id, 0, 0);
        end_pass(r, p);
        swn_task_release(&r->s, p);
    }
}

/* Takes ended passes out of the array. */
static void sweep(struct run *r)
{
    uint32_t to = 0;

    for (uint32_t p = 0; p < r->s.pass_count; p++) {
        struct swn_task_pass *pass = &r->s.passes[p];

        if (swn_task_is_done(&r->s, pass)) {
            r->result->wasted_ns += pass->is_aborted ? r->live[p].computed_ns : 0;
            if (!r->s.is_shared)
                r->s.copies[pass->copy].is_taken = 0;
            continue;
        }
        for (uint32_t i = 0; to != p && i < r->s.flight_count; i++)
            if (r->s.flights[i].kind == SWN_TASK_COMPUTE && r->s.flights[i].pass == p)
                r->s.flights[i].pass = to;
        r->s.passes[to] = *pass;
        r->live[to++] = r->live[p];
    }
    r->s.pass_count = to;
}

/* Passes that have ended since: first all of them, as those behind one may have ended, too (CA-preempt). */
static void end_passes(struct run *r)
{
    for (uint32_t p = 0; p < r->s.pass_count; p++)
        if (swn_task_is_done(&r->s, &r->s.passes[p]) && !r->s.passes[p].is_aborted)
            end_pass(r, p);
    for (uint32_t p = 0; p < r->s.pass_count; p++)
        if (swn_task_is_done(&r->s, &r->s.passes[p]) && !r->s.passes[p].is_aborted)
            answer(r, r->s.passes[p].id, r->s.passes[p].is_undecided ? r->s.passes[p].upstream : 0,
                   r->arrivals->arrivals[r->live[p].arrival].outcome);
    sweep(r);
}

static uint64_t need_of(const struct run *r, const struct swn_task_decision *d)
{
    if (d->kind == SWN_TASK_LOAD)
        return swn_task_weight_bytes(&r->s, r->s.copies[d->copy].network, d->layer);
    return d->kind == SWN_TASK_COMPUTE ? swn_task_compute_bytes(&r->s, &r->s.passes[d->pass]) : 0;
}

/* Clean blocks go until a task fits, but for the block that it needs. */
static void drop_clean(struct run *r, const struct swn_task_decision *d, uint64_t need)
{
    for (uint32_t c = 0; c < r->s.copy_count; c++)
        for (uint32_t l = SWN_TASK_LAYERS; l-- > 0 && need > swn_task_free_bytes(&r->s);)
            if (r->s.copies[c].is_taken && r->s.copies[c].blocks[l] == SWN_BLOCK_LOADED &&
                (c != d->copy || l != d->layer) && !swn_task_is_block_running(&r->s, c, l))
                swn_task_apply(&r->s, &(struct swn_task_decision){SWN_TASK_DROP, 0, c, l});
}

/* Where more is used than there is: how much longer the task takes. Each byte that it touches is out of memory with the
 * same probability. */
static double paging_ns(struct run *r, const struct swn_task_decision *d)
{
    uint64_t over = r->s.used_bytes - r->s.machine.memory_bytes;
    double touched = (double)r->networks->networks[r->s.copies[d->copy].network].layers[d->layer].load_bytes;
    double moved;

    if (d->kind == SWN_TASK_COMPUTE)
        touched += (double)swn_task_activation_bytes(&r->s, &r->s.passes[d->pass]);
    moved = r->how->paging * touched * (double)over / (double)r->s.used_bytes;
    if (r->is_bounded) {
        r->result->spilled_bytes += over;
        moved = r->how->paging * (double)over;
    } else {
        r->result->over_commits++;
        r->result->paged_bytes += (uint64_t)moved;
    }
    return moved / r->s.machine.disk_bytes_per_ns;
}

/* 0: the task has to wait. */
static int begin(struct run *r, const struct swn_task_decision *d)
{
    uint64_t need = need_of(r, d);
    uint32_t flight = r->s.flight_count;

    if (r->is_bounded && need > swn_task_free_bytes(&r->s)) {
        drop_clean(r, d, need);
        if (need > swn_task_free_bytes(&r->s) && r->s.flight_count) {
            r->waiting = r->s.passes[d->pass].id;
            return 0;
        }
    }
    if (d->kind == SWN_TASK_LOAD) {
        r->result->bytes_read += r->networks->networks[r->s.copies[d->copy].network].layers[d->layer].load_bytes;
    } else if (d->kind == SWN_TASK_COMPUTE) {
        r->live[d->pass].computed_ns += swn_task_compute_ns(&r->s, &r->s.passes[d->pass]);
        r->result->compute_ns += swn_task_compute_ns(&r->s, &r->s.passes[d->pass]);
    }
    swn_task_apply(&r->s, d);
    if (r->s.used_bytes > r->result->peak_bytes)
        r->result->peak_bytes = r->s.used_bytes;
    if (d->kind != SWN_TASK_DROP && r->s.used_bytes > r->s.machine.memory_bytes)
        r->s.flights[flight].left_ns += paging_ns(r, d);
    return 1;
}

/* Does a layer still wait for memory? It begins when it fits, or when nothing else runs. */
static int is_waiting(struct run *r)
{
    uint64_t id = r->waiting;

    r->waiting = 0;
    for (uint32_t p = 0; p < r->s.pass_count; p++)
        if (r->s.passes[p].id == id && swn_task_can_compute(&r->s, p)) {
            struct swn_task_decision d = {SWN_TASK_COMPUTE, p, r->s.passes[p].copy, r->s.passes[p].next_layer};

            begin(r, &d);
        }
    return r->waiting != 0;
}

/* All that the policy does at this moment. */
static void decide(struct run *r)
{
    struct swn_task_decision d;

    if (is_waiting(r))
        return;
    do {
        struct swn_task_state view = r->s;

        if (r->how->estimate != 1) {
            view.estimate = r->how->estimate;
            view.knows_weights = r->is_bounded ? 1 : 0;
            /* Masa counts what it takes tasks for; the limit of libswapnet counts what there is. */
            view.used_bytes = r->is_bounded ? r->s.used_bytes : swn_task_used(&view);
        }
        d = swn_task_decide(r->how->policy, r->how->objective, &view);
    } while (d.kind && begin(r, &d));
}

static int run(struct run *r)
{
    for (;;) {
        uint64_t end, arrival = UINT64_MAX;

        while (r->next < r->arrivals->count && r->arrivals->arrivals[r->next].arrived_ns <= r->s.now_ns)
            if (arrive(r))
                return -ENOMEM;
        decide(r);
        end = swn_task_next_ns(&r->s);
        if (r->next < r->arrivals->count)
            arrival = r->arrivals->arrivals[r->next].arrived_ns;
        if (end == SWN_TASK_NEVER && arrival == UINT64_MAX)
            return r->s.pass_count ? -ELOOP : 0;
        swn_task_advance(&r->s, end < arrival ? end : arrival);
        end_passes(r);
    }
}

static int check(const struct swn_network_table *networks, const struct swn_arrival_table *arrivals,
                 const struct swn_simulation *how)
{
    const struct swn_task_machine *m = &how->machine;

    if ((unsigned)how->policy >= SWN_TASK_POLICIES || !(m->disk_bytes_per_ns > 0) || !m->workers ||
        m->workers > SWN_TASK_WORKERS || m->readers > SWN_TASK_WORKERS || !(how->estimate > 0) ||
        !(how->estimate <= 16) || !(how->paging >= 0) || !(how->probability >= 0 && how->probability <= 1))
        return -EINVAL;
    for (uint32_t n = 0; swn_task_policy_is_bounded(how->policy) && n < arrivals->count; n++)
        if (swn_task_largest(&networks->networks[arrivals->arrivals[n].network], arrivals->arrivals[n].inputs) >
            m->memory_bytes)
            return -ENOSPC;
    return 0;
}

int swn_simulate_tasks(const struct swn_network_table *networks, const struct swn_arrival_table *arrivals,
                       const struct swn_simulation *how, uint64_t *response_ns, struct swn_simulation_result *result)
{
    struct run r = {
        .networks = networks, .arrivals = arrivals, .how = how, .response_ns = response_ns, .result = result};
    double sum = 0;
    int rc = check(networks, arrivals, how);

    memset(result, 0, sizeof *result);
    if (rc)
        return rc;
    r.is_bounded = swn_task_policy_is_bounded(how->policy);
    r.s.machine = how->machine;
    r.s.networks = networks->networks;
    r.s.network_count = networks->count;
    r.s.estimate = 1;
    r.s.cascade = how->cascade;
    r.s.is_shared = r.is_bounded && !how->is_private;
    r.open = calloc(arrivals->job_count ? arrivals->job_count : 1, sizeof *r.open);
    rc = !r.open || grow(&r) ? -ENOMEM : 0;
    for (uint32_t n = 0; !rc && r.s.is_shared && n < networks->count; n++) {
        r.s.copies[n] = (struct swn_task_copy){.network = n, .is_taken = 1};
        r.s.copy_count++;
    }
    rc = rc ? rc : run(&r);
    for (uint32_t job = 0; !rc && job < arrivals->job_count; job++)
        sum += (double)response_ns[job];
    result->mean_response_ns = arrivals->job_count ? sum / arrivals->job_count : 0;
    free(r.s.passes);
    free(r.s.copies);
    free(r.live);
    free(r.open);
    return rc;
}
