/* torch_version.c - reads the version of an installed PyTorch: see torch_version.h. */
#include "skeleton/abi/torch_version.h"

#include <stdio.h>

int swn_torch_version_read(const char *file, char *version, size_t size)
{
    char line[256];
    unsigned major, minor;
    int found = 0;
    FILE *f = fopen(file, "re");

    if (f == NULL)
        return -1;
    while (!found && fgets(line, sizeof line, f))
        found = sscanf(line, "__version__ = '%u.%u", &major, &minor) == 2 ||
                sscanf(line, "__version__ = \"%u.%u", &major, &minor) == 2;
    fclose(f);
    return found && (size_t)snprintf(version, size, "%u.%u", major, minor) < size ? 0 : -1;
}
