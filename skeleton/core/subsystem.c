/* skeleton/core/subsystem.c - the list of features that the process has. */
#include <stdlib.h>

#include "skeleton/core/subsystem.h"

const struct swn_subsystem *swn_subsystems[SWN_SUBSYSTEMS_MOST + 1];

void swn_subsystem_register(const struct swn_subsystem *s)
{
    for (size_t i = 0; i < SWN_SUBSYSTEMS_MOST; i++) {
        if (swn_subsystems[i] == s)
            return;
        if (!swn_subsystems[i]) {
            swn_subsystems[i] = s;
            return;
        }
    }
    abort(); /* the list is written in one place, skeleton/runtime, and is that long */
}
