/* skeleton/runtime/runtime.c - the list of subsystems. They are called in this order: observing writes its record
 * before loading ends, and the process's socket starts after everything else, and ends last. */
#include "skeleton/runtime/runtime.h"

#include "skeleton/engine/engine.h"
#include "skeleton/engine/subsystem.h"

extern const struct swn_subsystem swn_observe_subsystem, swn_load_subsystem, swn_device_subsystem, swn_tiling_subsystem,
    swn_activations_subsystem, swn_budget_subsystem;

static const struct swn_subsystem *const all[] = {
    &swn_observe_subsystem,
    &swn_load_subsystem,
    &swn_device_subsystem,
    &swn_tiling_subsystem,
    &swn_activations_subsystem,
    &swn_budget_subsystem,
    NULL,
};

int swn_runtime_start(const struct swn_config *config, char *why, size_t why_size)
{
    swn_subsystems = all;
    return swn_engine_start(config, why, why_size);
}
