/* tests/unit/support/test_model.h - a small checkpoint made by hand: a file of random bytes, and what lies where in it.
 */
#ifndef SWN_TESTS_UNIT_SUPPORT_TEST_MODEL_H
#define SWN_TESTS_UNIT_SUPPORT_TEST_MODEL_H

#include "blocks/checkpoint/checkpoint.h"

#define SWN_TEST_STORAGES 12
#define SWN_TEST_TENSORS 14

struct swn_test_model {
    struct swn_checkpoint c; /* of one file; its descriptor is the test's */
    char path[512];
    unsigned char *bytes; /* of the file */
    size_t size;
    struct swn_ckpt_file file;
    struct swn_ckpt_storage storages[SWN_TEST_STORAGES];
    struct swn_ckpt_tensor tensors[SWN_TEST_TENSORS];
    int64_t shapes[SWN_TEST_TENSORS][2], strides[SWN_TEST_TENSORS][2];
};

/* Writes `dir`/model.bin: storages from 0 bytes to above 1 MiB at multiples of 64, one of them (11) unused, two used by
 * two tensors each (one tie across layers, one slice), one tensor not contiguous, layers "a", "b", "c", "d.e", "" and a
 * layer "tied" without bytes of its own. Aborts the test when it cannot. */
void swn_test_model_make(struct swn_test_model *m, const char *dir);
void swn_test_model_free(struct swn_test_model *m);

#endif
