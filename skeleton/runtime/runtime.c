/* skeleton/runtime/runtime.c - which subsystems there are. They are asked in this order: what is observed is written
 * down before loading ends, and the process's socket is there when everything else is, and goes last. */
#include "skeleton/runtime/runtime.h"

#include "skeleton/core/engine.h"
#include "skeleton/core/subsystem.h"

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
