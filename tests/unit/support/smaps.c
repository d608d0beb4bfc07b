/* tests/unit/support/smaps.c - see smaps.h. */
#include "tests/unit/support/smaps.h"

#include <stdio.h>
#include <string.h>

long swn_smaps_kib(uintptr_t at, const char *field)
{
    char line[256];
    unsigned long lo, hi;
    long kib = -1;
    int here = 0;
    size_t len = strlen(field);
    FILE *smaps = fopen("/proc/self/smaps", "r");
    while (smaps && fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%lx-%lx ", &lo, &hi) == 2)
            here = at >= lo && at < hi;
        else if (here && !strncmp(line, field, len) && sscanf(line + len, ": %ld kB", &kib) == 1)
            break;
    }
    if (smaps)
        fclose(smaps);
    return kib;
}
