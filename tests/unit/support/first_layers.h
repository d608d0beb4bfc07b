/* tests/unit/support/first_layers.h - partitions by number, for tests that go through all of them. */
#ifndef SWN_TESTS_UNIT_SUPPORT_FIRST_LAYERS_H
#define SWN_TESTS_UNIT_SUPPORT_FIRST_LAYERS_H

#include <stddef.h>

/* The first layer of each block when there is a cut before layer i + 1 for each bit i of `mask`; how many blocks. */
size_t first_layers(unsigned mask, size_t layers, size_t *first);

#endif
