/* Room within the budget: what leaves for it, in which order, and how wide the window is. What stays for good is the
 * plan's to say (swn_policy.c). */
#define _GNU_SOURCE
#include <errno.h>

#include "swn_behind.h"
#include "swn_devcopy.h"
#include "swn_engine_priv.h"
#include "swn_size.h"

#define MIB ((size_t)1 << 20)
#define FIRST_WINDOW_LEAST (2 * MIB)
#define FIRST_WINDOW_MOST (32 * MIB)
/* Room made ahead of need: enough for the largest weights of most models. */
#define BEHIND_PART 4
#define BEHIND_MOST (32 * MIB)
/* Whoever goes only some time after he is asked to is asked when this part of the budget is left. */
#define SOON_PART 16

static size_t window(struct swn_engine *e)
{
    return e->pool ? swn_pool_window(e->pool) : 0;
}

/* The window before there is a plan. */
size_t swn_policy_first_window(struct swn_engine *e)
{
    size_t first = e->goal_bytes / 8;
    first = first < FIRST_WINDOW_LEAST ? FIRST_WINDOW_LEAST : first > FIRST_WINDOW_MOST ? FIRST_WINDOW_MOST : first;
    return first / SWN_GRANULE * SWN_GRANULE;
}

static int may_leave(const struct swn_range *r)
{
    return atomic_load(&r->state) == SWN_HOME && !r->pins && !r->lodges;
}

/* An operator is reading it, or has just made it. */
static int at_work(const struct swn_engine *e, const struct swn_range *r)
{
    return r->readers || (r->alloc_seq == e->seq && atomic_load(&e->hook_state) == 2);
}

/* A kept weight that was streamed once, and that no operator is using. */
static int kept_idle(const struct swn_range *r)
{
    return r->frame && r->frame->kept && r->published && !r->frame->users && !r->readers;
}

/* The range whose leaving hurts least: what the plan streams, then what was used longest ago, kept weights and what is
 * being read last. */
static struct swn_range *victim(struct swn_engine *e, const struct swn_range *spare, int desperate)
{
    struct swn_range *best = NULL;
    int best_class = 0;
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next) {
        if (!may_leave(r) || r == spare)
            continue;
        int class = r->readers ? 3 : at_work(e, r) ? 4 : swn_is_weight(r) && e->planned ? (r->keep ? 2 : 0) : 1;
        if (class >= 3 && !desperate)
            continue;
        if (!best || class < best_class || (class == best_class && r->last_use < best->last_use)) {
            best = r;
            best_class = class;
        }
    }
    return best;
}

/* It leaves without a write. */
static struct swn_range *kept_victim(struct swn_engine *e, const struct swn_range *spare)
{
    struct swn_range *best = NULL;
    for (struct swn_range *r = swn_arena_first(e->arena); r; r = r->next)
        if (kept_idle(r) && r != spare && (!best || r->last_use > best->last_use))
            best = r;
    return best;
}

void swn_policy_unkeep(struct swn_engine *e, struct swn_range *r)
{
    if (swn_residency_remap(&e->res, r))
        swn_policy_home(e, r, 0);
    else
        swn_policy_drop_frame(e, r);
}

/* Lets go of warm pages until `bytes` more fit; of those that a plan has a use for last, or not at all. */
static void trim_warm(struct swn_engine *e, size_t bytes, int plots)
{
    struct swn_piece piece;
    for (;;) {
        size_t need = swn_engine_resident(e) + bytes, over = need - e->config.budget_bytes;
        if (need <= e->config.budget_bytes ||
            (!swn_arena_trim(e->arena, over, &piece) && (!plots || !swn_arena_trim_plots(e->arena, over, &piece))))
            return;
        swn_residency_drop(&e->res, piece.addr, piece.bytes);
        e->dropped += piece.bytes;
    }
}

/* Whether `bytes` more fit once pages that nobody uses have gone; nothing else is let go for them, nor is room taken
 * that activations will want again. */
int swn_policy_fits_free(struct swn_engine *e, size_t bytes)
{
    bytes += swn_arena_plot_cold(e->arena);
    trim_warm(e, bytes, 0);
    return swn_engine_resident(e) + bytes <= e->config.budget_bytes;
}

static void say_over_budget(struct swn_engine *e, size_t bytes, uint64_t limit)
{
    size_t over = swn_engine_resident(e) + bytes - limit;
    if (over > e->over_budget_peak)
        e->over_budget_peak = over;
    char a[32], b[32];
    if (e->said_over++)
        return;
    if (bytes > limit) { /* no plan will help: said here, and not once more when it is read */
        e->said_oversize++;
        swn_say("one tensor of %s alone exceeds the budget of %s; going over it while it is written; as a weight it is "
                "read through a mapping, slower but with the same result (SWAPNET_STRICT=1 makes this an error)",
                swn_format_mib(a, bytes), swn_format_mib(b, limit));
        return;
    }
    swn_say("the tensors in use at once need %s more than the budget of %s; going over it: give SWAPNET_BUDGET more "
            "(SWAPNET_STRICT=1 makes this an error)",
            swn_format_mib(a, over), swn_format_mib(b, limit));
}

/* Lets one range go. 0, or -ENOMEM when nothing is left that could. */
static int let_one_go(struct swn_engine *e, const struct swn_range *spare, int may_spill, int desperate, int *busy)
{
    struct swn_range *r = may_spill ? victim(e, spare, desperate) : NULL;
    struct swn_range *kept = kept_victim(e, spare);
    if (kept && (!r || (swn_is_weight(r) && r->keep && e->planned))) {
        swn_policy_unkeep(e, kept);
        e->plan_dirty = 1; /* the plan thought there was room for it */
        return 0;
    }
    if (!r)
        return -ENOMEM;
    int err = swn_policy_spill(e, r);
    if (err == -EBUSY && ++*busy < 8) {
        r->last_use = e->seq + 1; /* a store came in: it is in use, look for another */
        return 0;
    }
    return err ? -ENOMEM : 0;
}

/* Whether a frame that is in use or still coming keeps the window from having so many bytes; others leave. */
static int is_held(struct swn_engine *e, size_t bytes)
{
    int held = 0;
    for (struct swn_frame *f = swn_pool_first(e->pool), *n; f; f = n) {
        n = f->next;
        if (!swn_pool_in_the_way(e->pool, f, bytes))
            continue;
        if (f->users || (f->state == SWN_FRAME_FILLING && !swn_swapin_cancel(e, f)))
            held = 1;
        else
            swn_policy_evict(e, f);
    }
    return held;
}

static void keep_width(struct swn_engine *e)
{
    e->window_goal = window(e);
    swn_pool_resize(e->pool, e->window_goal);
}

/* A plan counted on more. */
static void give_up_width(struct swn_engine *e)
{
    keep_width(e);
    e->plan_dirty |= e->planned;
}

int swn_policy_resize_window(struct swn_engine *e, size_t bytes)
{
    size_t most = swn_pool_window_most(e->pool), now;
    bytes = bytes < most ? bytes : most;
    int held = is_held(e, bytes);
    do {
        now = window(e);
        if (!held && bytes > now && swn_policy_try_room(e, bytes - now, NULL))
            return -ENOMEM;
    } while (window(e) != now); /* it has given back what was lent to it, and needs as much more */
    e->window_goal = bytes;
    int err = swn_pool_resize(e->pool, bytes);
    e->filled += !err && bytes > now ? bytes - now : 0;
    if (!err || err == -EBUSY)
        return err;
    keep_width(e);
    return -EBADF;
}

/* A window that could not change its size at once, because what is at its end was in use or still coming, does when it
 * is not; also to nothing, where everything comes to stay. */
void swn_policy_window(struct swn_engine *e)
{
    if (!e->pool || e->window_goal == window(e) || swn_policy_resize_window(e, e->window_goal) != -ENOMEM)
        return;
    give_up_width(e); /* there is no room for more by now */
}

/* 0: the window is as narrow as it was before room was lent to it. */
static int take_back_room(struct swn_engine *e)
{
    size_t own = e->lent_from;
    if (e->planned || !own || own >= window(e))
        return 0;
    e->lent_from = 0;
    return !swn_policy_resize_window(e, own);
}

/* As far as one can tell before there is a pool. */
static int may_spill(const struct swn_engine *e)
{
    return e->half && atomic_load(&e->hook_state) != 3 && e->res.pagemap_fd >= 0 && e->allocs >= e->spill_retry;
}

static int can_spill(struct swn_engine *e)
{
    return may_spill(e) && swn_policy_pool(e) == 0;
}

/* One step of a budget that shrinks. 0: something went, -ENOMEM: nothing can now. */
int swn_policy_give(struct swn_engine *e, int desperate)
{
    struct swn_piece piece;
    size_t before = swn_engine_resident(e);
    if (before > e->goal_bytes && swn_devcopy_ask(e, before - e->goal_bytes))
        return -ENOMEM; /* not yet, but without a write, and before anything that operators use */
    swn_lodge_evict(e);
    if (swn_arena_trim(e->arena, SIZE_MAX, &piece) || swn_arena_trim_plots(e->arena, SIZE_MAX, &piece)) {
        swn_residency_drop(&e->res, piece.addr, piece.bytes);
        e->dropped += piece.bytes;
        return 0;
    }
    swn_rows_trim(e);
    take_back_room(e); /* before anything has to be written */
    if (!e->planned && window(e) > e->goal_bytes / 3 && window(e) > swn_policy_first_window(e))
        swn_policy_resize_window(e, swn_policy_first_window(e));
    if (e->pool && e->window_goal > window(e))
        give_up_width(e);
    swn_policy_window(e);
    if (swn_engine_resident(e) < before || swn_behind_wait(e))
        return 0;
    int busy = 0;
    return let_one_go(e, NULL, can_spill(e), desperate, &busy);
}

/* While a model is built and loaded, and the budget has been full before, room is made ahead of need, so that the disk
 * writes while the program computes. Once weights are read, what is still home is better left there. */
static void write_behind(struct swn_engine *e, size_t bytes, const struct swn_range *spare)
{
    size_t ahead =
        e->config.budget_bytes / BEHIND_PART < BEHIND_MOST ? e->config.budget_bytes / BEHIND_PART : BEHIND_MOST;
    if (!e->pressed || e->visits || e->planned || !can_spill(e))
        return;
    while (swn_engine_resident(e) - swn_behind_bytes(e) + bytes + ahead > e->config.budget_bytes) {
        struct swn_range *r = victim(e, spare, 0);
        if (!r || swn_behind_start(e, r))
            return;
    }
}

/* Also what operators are using leaves, if need be and `desperate`. 0 or -ENOMEM. */
static int let_go(struct swn_engine *e, size_t bytes, const struct swn_range *spare, int desperate)
{
    swn_behind_reap(e);
    if (!e->config.enforce)
        return 0;
    if (swn_engine_resident(e) + bytes > e->config.budget_bytes)
        trim_warm(e, bytes, 1);
    size_t soon = swn_engine_resident(e) + bytes + e->goal_bytes / SOON_PART;
    if (swn_devcopy_bytes() && soon > e->config.budget_bytes)
        swn_devcopy_ask(e, soon - e->config.budget_bytes);
    int spills = swn_engine_resident(e) + bytes > e->config.budget_bytes && can_spill(e);
    e->pressed |= spills;
    write_behind(e, bytes, spare);
    int busy = 0;
    while (swn_engine_resident(e) + bytes > e->config.budget_bytes &&
           (take_back_room(e) || swn_lodge_evict(e) || swn_rows_trim(e)))
        trim_warm(e, bytes, 1);
    for (int last = 0; last <= desperate; last++)
        while (swn_engine_resident(e) + bytes > e->config.budget_bytes)
            if (!swn_behind_wait(e) && let_one_go(e, spare, spills, last, &busy))
                break;
    return swn_engine_resident(e) + bytes <= e->config.budget_bytes ? 0 : -ENOMEM;
}

/* Makes `bytes` more fit the budget. 0, or -ENOMEM when what is in use does not fit; `spare` must not leave. */
int swn_policy_try_room(struct swn_engine *e, size_t bytes, const struct swn_range *spare)
{
    return let_go(e, bytes, spare, 1);
}

/* What can leave while operators go on with what they have; rather too little than too much. */
struct idle {
    size_t unused;       /* memory that holds nothing, or that another frame is made from again */
    size_t home, copied; /* ranges that have to be written; weights that the file has */
    size_t first;        /* less so much, for the window that would have to be made, and counts */
};

static struct idle idle_of(struct swn_engine *e)
{
    int spills = may_spill(e);
    struct idle idle = {.unused = swn_arena_warm_bytes(e->arena) + swn_behind_bytes(e)};
    if (!e->planned && e->lent_from && e->lent_from < window(e))
        idle.unused += window(e) - e->lent_from;
    for (const struct swn_range *r = swn_arena_first(e->arena); r; r = r->next)
        if (may_leave(r))
            idle.home += spills && !at_work(e, r) ? r->size : 0;
        else if (kept_idle(r))
            idle.copied += r->frame->size;
    for (const struct swn_frame *f = e->lodged_bytes ? swn_pool_first(e->pool) : NULL; f; f = f->next)
        if (f->lodged && f->range && !f->users && f->state != SWN_FRAME_FILLING)
            idle.unused += f->size;
    idle.first = spills && !e->pool ? swn_policy_first_window(e) : 0;
    return idle;
}

static size_t idle_bytes(struct swn_engine *e)
{
    struct idle idle = idle_of(e);
    size_t bytes = idle.unused + idle.home + idle.copied;
    return bytes > idle.first ? bytes - idle.first : 0;
}

/* The same for memory that can be done without: nothing leaves where that would not be enough, nor does what an
 * operator is using. */
int swn_policy_offer_room(struct swn_engine *e, size_t bytes)
{
    if (e->config.enforce && swn_engine_resident(e) + bytes > e->config.budget_bytes) {
        size_t idle = idle_bytes(e);
        if (swn_engine_resident(e) + bytes > e->config.budget_bytes + idle)
            return -ENOMEM;
    }
    return let_go(e, bytes, NULL, 0);
}

uint64_t swn_policy_room_ns(struct swn_engine *e, size_t bytes)
{
    size_t limit = e->config.budget_bytes, resident = swn_engine_resident(e);
    if (!e->config.enforce || (bytes <= limit && resident - swn_arena_warm_bytes(e->arena) <= limit - bytes))
        return 0;
    struct idle idle = idle_of(e);
    size_t all = idle.unused + idle.home + idle.copied, held = resident > all ? resident - all : 0;
    if (bytes > limit || held + idle.first > limit - bytes)
        return UINT64_MAX;
    size_t need = resident + bytes + idle.first - limit, unused = idle.unused;
    if (need <= unused)
        return 0;
    need -= unused;
    /* What has to be written goes first (let_one_go). */
    size_t write = need < idle.home ? need : idle.home;
    double read = 1 / swn_policy_disk(e).bytes_per_ns;
    double wrote = e->written_bytes ? (double)e->written_ns / (double)e->written_bytes : read;
    return (uint64_t)((double)write * wrote + (double)need * read);
}

/* Makes room for memory that will be used whether there is any or not. */
int swn_policy_make_room(struct swn_engine *e, size_t bytes, const struct swn_range *spare)
{
    int err = swn_policy_try_room(e, bytes, spare);
    uint64_t limit = e->config.budget_bytes;
    if (e->goal_bytes < limit) /* on its way down, and nobody was promised that it holds already */
        limit = e->promised_bytes;
    if (!err || swn_engine_resident(e) + bytes <= limit)
        return 0;
    say_over_budget(e, bytes, limit);
    return err;
}

/* The next plan leaves room for it, or all there is beside the window. What is seen is no more than there was room for,
 * as idle activations are written out: by that alone each plan would keep weights that leave in its first pass. */
void swn_policy_note_shortage(struct swn_engine *e, size_t other)
{
    size_t most = e->goal_bytes > window(e) ? e->goal_bytes - window(e) : 0;
    other = other < most ? other : most;
    if (other > e->other_peak)
        e->other_peak = other;
}

/* Before there is a plan, room that nobody needs is lent to the window, so that the next weights are read while one is
 * computed with. It is taken back before anything has to leave for it. */
void swn_policy_lend_room(struct swn_engine *e, size_t bytes)
{
    size_t most = e->config.budget_bytes / 3, now = window(e);
    bytes = swn_round_up(bytes < most ? bytes : most, SWN_GRANULE);
    if (e->planned || !now || bytes <= now || swn_engine_resident(e) + bytes - now > e->config.budget_bytes)
        return;
    size_t own = e->lent_from ? e->lent_from : now;
    if (!swn_policy_resize_window(e, bytes))
        e->lent_from = own;
}

/* Before there is a plan: a weight wider than the window gets a window it fits, as long as that leaves most of the
 * budget to everything else. */
int swn_policy_widen(struct swn_engine *e, size_t size)
{
    if (size <= window(e) || size > e->config.budget_bytes / 3)
        return 0;
    return swn_policy_resize_window(e, swn_round_up(size, SWN_GRANULE)) == 0;
}
