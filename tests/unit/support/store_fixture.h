/* tests/unit/support/store_fixture.h - for tests of block stores: a directory with the checkpoint of
 * tests/unit/support/test_model.h, a path for its store, and an I/O table that can fail. Each test has them anew; its
 * teardown fails when a file was left behind or a descriptor left open. */
#ifndef SWN_TESTS_UNIT_SUPPORT_STORE_FIXTURE_H
#define SWN_TESTS_UNIT_SUPPORT_STORE_FIXTURE_H

#include "tests/unit/support/fault_io.h"
#include "blocks/store/store.h"
#include "tests/unit/support/test_model.h"

extern struct swn_store_fixture {
    char dir[512], path[600], why[SWN_ERRMSG];
    struct swn_test_model model;
    struct swn_fault fault;
} swn_fix;

/* For cmocka. In memory: for what would wait for the disk some hundred times. */
int swn_store_setup(void **state);
int swn_store_setup_in_memory(void **state);
int swn_store_teardown(void **state);

/* With the fixture's table, from its checkpoint to its path; they fail the test when they cannot. */
void swn_store_make(const struct swn_store_opts *opts);
struct swn_store *swn_store_made(void);

/* All bytes of a file; the caller frees them. */
unsigned char *swn_store_slurp(const char *name, size_t *size);
void swn_store_spit(const char *name, const void *bytes, size_t size);

/* How many files the fixture's directory has. */
int swn_store_files(void);

/* That a store holds the fixture's model, whatever its order. */
void swn_store_is_right(const struct swn_store *s);

#endif
