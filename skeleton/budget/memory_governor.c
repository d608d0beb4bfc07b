/* skeleton/budget/memory_governor.c - see memory_governor.h. */
#define _GNU_SOURCE
#include "skeleton/budget/memory_governor.h"

#include <poll.h>
#include <string.h>
#include <time.h>

#include "skeleton/budget/daemon_client.h"
#include "skeleton/engine/engine_internal.h"
#include "base/system_memory.h"
#include "base/fd_registry.h"
#include "base/size.h"
#include "base/thread.h"
#include "base/process_memory.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/engine/section.h"

/* The part of the available memory to use; the rest is for all other programs, as with swapnetd. */
#define SHARE 0.75
#define LOOK_MS 250
/* The machine's memory is read once a second, as base/system_memory.h demands. */
#define MACHINE_LOOKS 4
/* Every change makes a new plan: growth by less than this part is ignored. */
#define LEAST_GROWTH 16
#define LEAST_SHRINK 64
#define MOST_IGNORED ((uint64_t)4 << 20) /* half of the reserve for growth in base/process_memory.h */

struct swn_memory_governor {
    pthread_t thread;
    int machine, runs, off;
    uint64_t most; /* the user's own budget beside it, or UINT64_MAX */
    struct swn_follow follow;
    struct swn_process_memory whole; /* limit 0: SWAPNET_MEMORY is not set */
    uint64_t of_machine;             /* at the last reading */
    unsigned looks;
    int pressure; /* swn_pressure_open_own, or negative */
    int pressed;  /* the trigger has fired since the last reading of the machine */
};

static struct swn_memory_governor one;

static uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The memory for tensors that take `resident` bytes, of which `anon` are anonymous memory. 0: unknown. */
static uint64_t there_is(struct swn_memory_governor *f, uint64_t resident, uint64_t anon)
{
    struct swn_memory m;
    struct swn_process_memory_rss rss;
    uint64_t bytes = UINT64_MAX;
    if (f->machine && (f->pressed || f->looks++ % MACHINE_LOOKS == 0) && !swn_memory_read(&m, "")) {
        m.pressure = f->pressed ? SWN_PRESSURE_NOW : m.pressure;
        f->of_machine = swn_follow_total(&f->follow, &m, resident);
    }
    if (f->machine)
        bytes = f->of_machine;
    if (f->whole.limit && !swn_process_memory_read(&rss, ""))
        bytes = least_of(bytes, swn_process_memory_budget(&f->whole, &rss, anon, SWN_BUDGET_UNASKED_BYTES));
    if (!bytes || bytes == UINT64_MAX)
        return 0;
    bytes = least_of(bytes, f->most);
    return bytes > SWN_BUDGET_UNASKED_BYTES ? bytes >> 20 << 20 : swn_budget_unasked(f->most);
}

void swn_memory_governor_first(struct swn_config *config)
{
    struct swn_process_memory_rss rss;
    char a[32], b[32];
    if (!config->budget_auto && !config->memory_bytes)
        return;
    one = (struct swn_memory_governor){.machine = config->budget_auto,
                                       .pressure = -1,
                                       .most = config->budget_bytes ? config->budget_bytes : UINT64_MAX,
                                       .follow = {.share = SHARE, .ease = 1},
                                       .whole = {.limit = config->memory_bytes}};
    if (config->memory_bytes && !swn_process_memory_read(&rss, "")) {
        one.whole.least = rss.anon + rss.file;
        one.whole.least_file = rss.file;
        if (one.whole.least + SWN_BUDGET_UNASKED_BYTES > config->memory_bytes)
            swn_say("the program alone takes %s of the %s of SWAPNET_MEMORY: its tensors get no more than 8 MiB",
                    swn_format_mib(a, one.whole.least), swn_format_mib(b, config->memory_bytes));
    }
    uint64_t bytes = there_is(&one, 0, 0);
    if (bytes)
        config->budget_bytes = bytes;
}

/* Anonymous memory of the engine; the pool is shared memory. */
static uint64_t anonymous(struct swn_engine *e)
{
    return e->res.resident_bytes + swn_arena_warm_bytes(e->arena) + swn_small_bytes(e);
}

static int worth_it(uint64_t before, uint64_t now)
{
    return now > before ? now - before > before / LEAST_GROWTH
                        : before - now > least_of(before / LEAST_SHRINK, MOST_IGNORED);
}

static void look(struct swn_engine *e, struct swn_memory_governor *f)
{
    swn_lock(&e->lock);
    uint64_t resident = swn_engine_resident(e), anon = anonymous(e), before = e->budget.user_cap;
    int above = e->budget.target > before; /* its minimum prevented a smaller budget then; it may be possible by now */
    swn_unlock(&e->lock);
    uint64_t bytes = there_is(f, resident, anon);
    if (bytes && (above || worth_it(before, bytes)))
        swn_client_cap(e, bytes);
}

/* Waits until the next look. */
static void wait_a_little(struct swn_memory_governor *f)
{
    struct pollfd fd = {.fd = swn_fd_is_ours(f->pressure) ? f->pressure : -1, .events = POLLPRI};
    int n = poll(&fd, 1, LOOK_MS);
    if (n > 0 && fd.revents != POLLPRI) { /* the cgroup is gone; the timer remains */
        swn_fd_registry_close(f->pressure);
        f->pressure = -1;
    }
    f->pressed = n > 0 && fd.revents == POLLPRI;
    if (n < 0)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
}

static void *follower_main(void *arg)
{
    struct swn_memory_governor *f = arg;
    pthread_setname_np(pthread_self(), "swn-governor");
    f->pressure = f->machine ? swn_fd_registry(swn_pressure_open_own("")) : -1;
    for (;;) {
        wait_a_little(f);
        look(&swn_engine_one, f);
        if (f->pressed) /* at most one look per interval, however often the trigger fires */
            nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
    return NULL;
}

void swn_memory_governor_start(const struct swn_config *config)
{
    if (!config->budget_auto && !config->memory_bytes)
        return;
    int err = swn_thread_start(&one.thread, follower_main, &one);
    swn_lock(&swn_engine_one.lock);
    one.runs = !err;
    swn_unlock(&swn_engine_one.lock);
    if (err)
        swn_say("cannot follow memory: %s; the budget stays what it is", strerror(-err));
}

int swn_memory_governor_runs(void)
{
    return one.runs;
}

int swn_memory_governor_on(void)
{
    return one.runs && !one.off;
}

void swn_memory_governor_switch(int on)
{
    one.off = !on;
}

void swn_memory_governor_fork_child(struct swn_engine *e)
{
    if (e->config.budget_auto || e->config.memory_bytes)
        atomic_store(&e->life.want_client, 1);
    if (one.runs && one.pressure >= 0) /* a child opens its own, if it has a governor */
        swn_fd_registry_close(one.pressure);
    one.pressure = -1;
    one.runs = 0;
}
