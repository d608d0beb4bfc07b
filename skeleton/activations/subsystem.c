/* skeleton/activations/subsystem.c - planned addresses for the tensors of a pass. */
#include "skeleton/activations/activation_plan.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/engine/subsystem.h"

static const struct swn_placement placement = {
    .find = swn_activation_plan_find,
    .on_alloc = swn_activation_plan_on_alloc,
    .on_free = swn_activation_plan_on_free,
    .passed = swn_activation_plan_passed,
    .drop = swn_activation_plan_drop,
    .refuse = swn_activation_plan_refuse,
};

static void start(struct swn_engine *e)
{
    e->features.placement = &placement;
}

const struct swn_subsystem swn_activations_subsystem = {.start = start};
