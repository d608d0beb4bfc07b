/* skeleton/runtime/runtime.c - which subsystems there are. They are called in this order: observing writes its record
 * before loading ends, and the process's socket comes up after everything else, and goes last. */
#include "skeleton/runtime/runtime.h"

#include "skeleton/engine/engine.h"
#include "skeleton/engine/subsystem.h"

extern const struct swn_subsystem swn_observe_subsystem, swn_load_subsystem, swn_device_subsystem, swn_tiling_subsystem,
    swn_activations_subsystem, swn_budget_subsystem;

int swn_runtime_start(const struct swn_config *config, char *why, size_t why_size)
{
    swn_subsystem_register(&swn_observe_subsystem);
    swn_subsystem_register(&swn_load_subsystem);
    swn_subsystem_register(&swn_device_subsystem);
    swn_subsystem_register(&swn_tiling_subsystem);
    swn_subsystem_register(&swn_activations_subsystem);
    swn_subsystem_register(&swn_budget_subsystem);
    return swn_engine_start(config, why, why_size);
}
