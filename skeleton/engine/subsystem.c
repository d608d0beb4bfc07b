/* skeleton/engine/subsystem.c - before skeleton/runtime has said which features there are, there are none. */
#include <stddef.h>

#include "skeleton/engine/subsystem.h"

static const struct swn_subsystem *const none[] = {NULL};
const struct swn_subsystem *const *swn_subsystems = none;
