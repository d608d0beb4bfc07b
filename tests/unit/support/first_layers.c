/* tests/unit/support/first_layers.c - see first_layers.h. */
#include "tests/unit/support/first_layers.h"

size_t first_layers(unsigned mask, size_t layers, size_t *first)
{
    size_t blocks = 1;
    first[0] = 0;
    for (size_t i = 1; i < layers; i++)
        if (mask & 1u << (i - 1))
            first[blocks++] = i;
    return blocks;
}
