/* skeleton/observe/subsystem.c - SWAPNET_PROFILE: the record is made when the engine starts, and saved when the process
 * ends. */
#include <string.h>

#include "skeleton/engine/subsystem.h"
#include "skeleton/observe/profile_record.h"

static void computed(struct swn_engine *e, const struct swn_weight *weight, double ns, double op_ns,
                     const struct swn_thread_state *t)
{
    swn_record_computed(e->features.record, weight, ns, op_ns, t);
}

static void read_done(struct swn_engine *e, const struct swn_weight *weight, size_t bytes, double ns)
{
    swn_record_read(e->features.record, weight, bytes, ns);
}

static void released(struct swn_engine *e, const struct swn_weight *weight, double ns)
{
    swn_record_released(e->features.record, weight, ns);
}

static const struct swn_observer observer = {
    .allocated = swn_record_alloc,
    .computed = computed,
    .passed = swn_record_pass,
    .read = read_done,
    .released = released,
    .leaving = swn_record_leaving,
};

static void start(struct swn_engine *e)
{
    e->features.observer = &observer;
    if (!e->config.profile_path[0])
        return;
    if (swn_record_create(&e->features.record))
        swn_say("no memory for a profile; going on without");
    atomic_store(&e->life.want_hook, 1); /* even where everything fits */
}

static void fork_child(struct swn_engine *e)
{
    if (e->features.record)
        swn_record_fork_child(e->features.record);
}

static void at_exit(struct swn_engine *e)
{
    int err = e->features.record && !e->life.forked ? swn_record_save(e) : 0;
    if (err)
        swn_say("cannot write the profile %s: %s", e->config.profile_path, strerror(-err));
}

const struct swn_subsystem swn_observe_subsystem = {
    .start = start,
    .fork_child = fork_child,
    .exit = at_exit,
};
