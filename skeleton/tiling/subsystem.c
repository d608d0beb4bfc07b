/* skeleton/tiling/subsystem.c - the functions of slices, rows, fills and trials for the core and the torch backend. */
#include "skeleton/engine/engine_internal.h"
#include "skeleton/engine/subsystem.h"
#include "skeleton/tiling/fill.h"
#include "skeleton/tiling/expert.h"
#include "skeleton/tiling/part_waits.h"
#include "skeleton/tiling/row_gather.h"
#include "skeleton/tiling/slice.h"
#include "skeleton/tiling/trial_memory.h"

static void services(struct swn_engine *e, struct swn_runtime_services *out)
{
    (void)e;
    out->tiling.slices_offer = swn_slice_offer;
    out->tiling.slices_wanted = swn_slice_wanted;
    out->tiling.slices_least = swn_slice_least;
    out->tiling.slices_list = swn_slice_list;
    out->tiling.slices_refused = swn_slice_refused;
    out->tiling.slice_lend = swn_slice_lend;
    out->tiling.parts_begin = swn_parts_begin;
    out->tiling.parts_end = swn_parts_end;
    out->tiling.trial_map = swn_trial_map;
    out->tiling.trial_unmap = swn_trial_unmap;
    out->tiling.trial_alias_allocations = swn_trial_alias_allocations;
    out->tiling.trial_room = swn_trial_room;
    out->tiling.copy_room = swn_slice_copy_room;
    out->tiling.rows_copy = swn_gather_rows;
    out->tiling.experts_begin = swn_experts_begin;
    out->tiling.expert_lend = swn_expert_lend;
    out->tiling.fill_begin = swn_fill_begin;
    out->tiling.fill_next = swn_fill_next;
    out->tiling.fill_end = swn_fill_end;
}

static const struct swn_tiling tiling = {
    .rows_begin = swn_rows_begin,
    .rows_end = swn_rows_end,
    .rows_forget = swn_rows_forget,
    .slice_next = swn_slice_next,
    .slice_end = swn_slice_end,
    .experts_end = swn_experts_end,
    .slice_set = swn_slice_set,
};

static void start(struct swn_engine *e)
{
    e->features.tiling = &tiling;
}

static void fork_child(struct swn_engine *e)
{
    swn_trial_fork_child(e);
    swn_rows_fork_child(e);
    swn_parts_fork_child();
}

static const struct swn_reclaimer memory = {.trim = swn_rows_trim};

const struct swn_subsystem swn_tiling_subsystem = {
    .start = start,
    .services = services,
    .fork_child = fork_child,
    .budget_changed = swn_slice_set_least,
    .memory = &memory,
};
