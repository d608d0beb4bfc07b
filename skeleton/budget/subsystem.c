/* skeleton/budget/subsystem.c - the process's own socket, through which users see and change its budget, and the
 * daemon. */
#include "scheduler/protocol/control.h"
#include "skeleton/budget/budget.h"
#include "skeleton/budget/daemon_client.h"
#include "skeleton/budget/memory_governor.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/engine/subsystem.h"

static void fill_stats(void *user, struct swn_stats *out)
{
    (void)user;
    swn_engine_stats(out);
}

static void start(struct swn_engine *e)
{
    struct swn_control_opts opts = {.fill = fill_stats, .set = swn_client_set, .user = e};
    if (swn_control_start(&e->budget.control, &opts))
        e->budget.control = NULL; /* no directory for the socket: only `swapnetctl status` misses the process */
}

static void fork_child(struct swn_engine *e)
{
    if (e->budget.control)
        swn_control_abandon(e->budget.control);
    e->budget.control = NULL;
    swn_budget_fork_child(e);
    swn_client_fork_child(e);
    swn_memory_governor_fork_child(e);
}

static void stats(struct swn_engine *e, struct swn_stats *out)
{
    out->in_flight_ns = swn_budget_in_flight_ns(e);
    out->daemon_socket = swn_client_daemon(e);
}

static void at_exit(struct swn_engine *e)
{
    swn_control_stop(e->budget.control);
}

const struct swn_subsystem swn_budget_subsystem = {
    .start = start,
    .unlocked = swn_client_after_fork,
    .fork_child = fork_child,
    .stats = stats,
    .exit = at_exit,
};
