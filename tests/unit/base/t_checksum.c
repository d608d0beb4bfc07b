/* Description: the checksum of what comes from a store is XXH3-64, whatever instructions compute it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <xxhash.h>

#include "base/checksum.h"

static void same_number(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 3, 8, 16, 17, 128, 240, 241, 1024, 4096, 4097, (1 << 20) + 7};
    unsigned char *bytes = malloc((1 << 20) + 64);
    assert_non_null(bytes);
    for (size_t i = 0; i < (1 << 20) + 64; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t off = 0; off < 33; off += 11)
            assert_int_equal(swn_sum(bytes + off, sizes[i]), XXH3_64bits(bytes + off, sizes[i]));
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_number)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
