/* tests/unit/support/smaps.h - what the kernel says of a mapping of this process. */
#ifndef SWN_TESTS_UNIT_SUPPORT_SMAPS_H
#define SWN_TESTS_UNIT_SUPPORT_SMAPS_H

#include <stdint.h>

/* The field of /proc/self/smaps, in KiB, of the mapping that contains `at`; -1: there is none. */
long swn_smaps_kib(uintptr_t at, const char *field);

#endif
