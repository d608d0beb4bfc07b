/* skeleton/engine/subsystem.c - without skeleton/runtime there are no features. */
#include <stddef.h>

#include "skeleton/engine/subsystem.h"

static const struct swn_subsystem *const none[] = {NULL};
const struct swn_subsystem *const *swn_subsystems = none;
