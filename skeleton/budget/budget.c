/* Changes the budget of a running process.
 *
 * A larger one is the limit from the next allocation on. A smaller one is at first only the target: the thread in this
 * file makes the plan for it without the lock, puts it into force, and evicts one range after the other, while the
 * limit follows the resident bytes down. So the program's own threads never pay for more than their own allocations,
 * and an idle program shrinks as well (invariant 12). Memory that an operator is using leaves when the operator ends.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "skeleton/core/expected_read.h"
#include "skeleton/engine/subsystem.h"
#include "skeleton/budget/daemon_client.h"
#include "skeleton/device/device.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/load/load.h"
#include "base/thread.h"
#include "skeleton/budget/budget.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/plan.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/engine/section.h"

/* When nothing else can leave, and no operator has ended for this long, the memory of operators leaves, too: it is read
 * back, or, if it is written, becomes resident over the limit. */
#define PATIENCE_MS 20
/* A tensor that the program keeps writing to is recalled each time: then it is written ever more rarely, in the end
 * after PATIENCE_MS times two to this power. */
#define RECALLS_MOST 7
/* Writing to the spill file holds the engine's lock; other threads get the lock in such pauses. */
#define BREATH_NS 50000

struct swn_budgeter {
    pthread_t thread;
    pthread_cond_t wanted;  /* there is a new target */
    pthread_cond_t bound;   /* the target is reached */
    uint64_t changes, done; /* number of targets set, and of the last one that was reached */
    uint64_t begin_ns, took_ns, begin_spilled, spilled;
};

/* Makes the plan for the target, while the program runs on under the old one. */
static void replan(struct swn_engine *e)
{
    struct swn_plan_candidate candidate = {0};
    e->plan.dirty = 1; /* if it cannot be made or committed now, the end of an operator does it */
    for (struct swn_thread_state *t = e->ops.threads; t && !candidate.n; t = t->next) {
        t->next_plan_try = 0;
        if (e->plan.planned && e->pool)
            swn_plan_candidate_make(e, t, &candidate);
    }
    if (!candidate.n)
        return;
    uint64_t goal = e->budget.target, plans = e->plan.made;
    e->plan.dirty = 0; /* so that later changes, which the candidate does not know, are seen */
    swn_unlock(&e->lock);
    int err = swn_plan_candidate_solve(&candidate);
    swn_lock(&e->lock);
    int changed = e->plan.dirty;
    if (e->plan.made == plans && (err || goal != e->budget.target || swn_plan_commit(e, &candidate) || changed))
        e->plan.dirty = 1; /* else the end of an operator made a newer plan, which stays */
    swn_plan_candidate_free(&candidate);
}

static void set_limit(struct swn_engine *e, uint64_t bytes)
{
    e->budget.limit = bytes;
    if (bytes == e->budget.target)
        e->budget.bound_ns = swn_now_ns();
}

/* Lowers the limit to the resident bytes; never raises it. */
static void follow(struct swn_engine *e)
{
    uint64_t now = swn_engine_resident(e), limit = now > e->budget.target ? now : e->budget.target;
    if (limit < e->budget.limit)
        set_limit(e, limit);
}

static void breathe(struct swn_engine *e)
{
    swn_unlock(&e->lock);
    nanosleep(&(struct timespec){.tv_nsec = BREATH_NS}, NULL);
    swn_lock(&e->lock);
}

/* Continues until the limit is the target, or the target changes. */
static void shrink(struct swn_engine *e, struct swn_budgeter *b, uint64_t change)
{
    int force = 0;
    unsigned recalls = 0; /* in a row: each cost a write of all of a tensor */
    uint64_t no_write_until = 0;
    follow(e);
    while (e->budget.target < e->budget.limit && b->changes == change) {
        uint64_t before = swn_spilled_so_far(e);
        int err = swn_shrink_step(e, force, swn_now_ns() >= no_write_until);
        if (!err) {
            force = 0;
            recalls = swn_spilled_so_far(e) != before ? 0 : recalls; /* frames leave without a write */
        } else {
            if (err == -EBUSY) {
                no_write_until = swn_now_ns() + (PATIENCE_MS * 1000000ull << recalls);
                recalls += recalls < RECALLS_MOST;
            }
            force = swn_cond_wait_until(&e->changed, &e->lock, swn_now_ns() + PATIENCE_MS * 1000000ull) == ETIMEDOUT;
        }
        follow(e);
        if (swn_spilled_so_far(e) != before)
            breathe(e);
    }
}

static void *budget_main(void *arg)
{
    struct swn_engine *e = &swn_engine_one;
    struct swn_budgeter *b = arg;
    pthread_setname_np(pthread_self(), "swn-budget");
    swn_lock(&e->lock);
    for (;;) {
        while (b->done == b->changes)
            pthread_cond_wait(&b->wanted, &e->lock);
        uint64_t change = b->changes;
        swn_unlock(&e->lock);
        swn_device_follow_budget();
        swn_lock(&e->lock);
        replan(e);
        if (b->changes == change)
            shrink(e, b, change);
        if (b->changes != change)
            continue;
        b->took_ns = swn_now_ns() - b->begin_ns;
        b->spilled = swn_spilled_so_far(e) - b->begin_spilled;
        b->done = change;
        pthread_cond_broadcast(&b->bound);
        swn_client_wake(e);
    }
    return NULL;
}

static struct swn_budgeter *budgeter(struct swn_engine *e)
{
    if (e->budget.budgeter)
        return e->budget.budgeter;
    struct swn_budgeter *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    swn_cond_init(&b->wanted);
    swn_cond_init(&b->bound);
    if (swn_thread_start(&b->thread, budget_main, b)) {
        free(b);
        return NULL;
    }
    return e->budget.budgeter = b;
}

/* Without a thread of the engine, the program's threads shrink at their next allocation. */
static int leave_it_to_the_program(struct swn_engine *e, struct swn_budget_change *out)
{
    set_limit(e, e->budget.target);
    e->plan.dirty = 1;
    out->bound = swn_engine_resident(e) <= e->budget.target;
    return out->bound ? 0 : -EAGAIN;
}

static int change(struct swn_engine *e, uint64_t bytes, unsigned wait_ms, struct swn_budget_change *out)
{
    uint64_t begin = swn_now_ns();
    swn_expected_read_cancel(e, 1);
    int grows = bytes >= e->budget.limit;
    if (e->budget.target == e->budget.limit)
        e->budget.limit_at_change = e->budget.target;
    e->budget.target = bytes;
    SWN_EACH_SUBSYSTEM (s, budget_changed)
        s->budget_changed(e);
    e->budget.target_since_ns = e->budget.in_flight_ns = begin;
    e->budget.target_seq = e->ops.seq;
    if (grows || !e->config.enforce)
        set_limit(e, bytes);
    struct swn_budgeter *b = budgeter(e);
    if (!b)
        return leave_it_to_the_program(e, out);
    uint64_t mine = ++b->changes;
    b->begin_ns = begin;
    b->begin_spilled = swn_spilled_so_far(e);
    pthread_cond_signal(&b->wanted);
    pthread_cond_broadcast(&e->changed); /* the thread may be waiting for room for an older target */
    uint64_t until = b->begin_ns + wait_ms * 1000000ull;
    while (b->done < mine && swn_cond_wait_until(&b->bound, &e->lock, until) != ETIMEDOUT)
        ;
    out->bound = b->done >= mine || e->budget.limit <= bytes;
    out->took_ns = b->done >= mine ? b->took_ns : swn_now_ns() - begin;
    out->spilled_bytes = b->done >= mine ? b->spilled : swn_spilled_so_far(e) - b->begin_spilled;
    return out->bound ? 0 : -EAGAIN;
}

int swn_engine_set_budget(uint64_t bytes, unsigned wait_ms, struct swn_budget_change *out)
{
    struct swn_engine *e = &swn_engine_one;
    *out = (struct swn_budget_change){0};
    if (!swn_engine_running())
        return -ESRCH;
    swn_lock(&e->lock);
    out->minimum_bytes = swn_plan_minimum(e);
    int err = 0;
    if (bytes == e->budget.target && e->budget.target == e->budget.limit)
        out->bound = 1;
    else if (bytes < out->minimum_bytes && bytes < e->budget.target)
        err = -ERANGE;
    else
        err = change(e, bytes, wait_ms, out);
    out->budget_bytes = e->budget.target;
    swn_unlock(&e->lock);
    return err;
}

/* Memory of operators that were running, and of reads that were under way, leaves when these end. */
uint64_t swn_budget_in_flight_ns(const struct swn_engine *e)
{
    for (const struct swn_op *op = e->ops.open; op; op = op->next_open)
        if (op->seq <= e->budget.target_seq)
            return 0;
    for (const struct swn_frame *f = e->pool ? swn_pool_first(e->pool) : NULL; f; f = f->next)
        if (f->pending && swn_frame_use(f)->start_ns <= e->budget.target_since_ns)
            return 0;
    return e->budget.in_flight_ns;
}

/* The thread is the parent's. Its memory is lost: its state in the child is unknown. */
void swn_budget_fork_child(struct swn_engine *e)
{
    e->budget.budgeter = NULL;
    set_limit(e, e->budget.target);
}
