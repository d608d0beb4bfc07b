/* skeleton/activations/subsystem.c - planned addresses for the tensors of a pass. */
#include "skeleton/activations/activation_plan.h"
#include "skeleton/core/engine_internal.h"
#include "skeleton/core/subsystem.h"

static const struct swn_placement placement = {
    .find = swn_places_find,
    .born = swn_places_born,
    .died = swn_places_died,
    .passed = swn_places_passed,
    .drop = swn_places_drop,
    .refuse = swn_places_refuse,
};

static void start(struct swn_engine *e)
{
    e->placement = &placement;
}

const struct swn_subsystem swn_activations_subsystem = {.name = "activations", .start = start};
