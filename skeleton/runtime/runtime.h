/* skeleton/runtime/runtime.h - the engine of the process with all of its features. */
#ifndef SWN_SKELETON_RUNTIME_RUNTIME_H
#define SWN_SKELETON_RUNTIME_RUNTIME_H

#include <stddef.h>

struct swn_config;

/* Sets the list of subsystems, and starts the engine. Once; 0, or -errno with a text in why[]. */
int swn_runtime_start(const struct swn_config *config, char *why, size_t why_size);

#endif
