#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "swn_store_fixture.h"

struct swn_store_fixture swn_fix;

static int setup_in(const char *where)
{
    snprintf(swn_fix.dir, sizeof swn_fix.dir, "%s/swn-store.XXXXXX", where);
    if (!mkdtemp(swn_fix.dir))
        return -1;
    snprintf(swn_fix.path, sizeof swn_fix.path, "%s/model.store", swn_fix.dir);
    swn_test_model_make(&swn_fix.model, swn_fix.dir);
    swn_fault_init(&swn_fix.fault);
    return 0;
}

int swn_store_setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    return setup_in(tmp && *tmp ? tmp : "/var/tmp");
}

int swn_store_setup_in_memory(void **state)
{
    return access("/dev/shm", W_OK) ? swn_store_setup(state) : setup_in("/dev/shm");
}

int swn_store_teardown(void **state)
{
    (void)state;
    swn_test_model_free(&swn_fix.model);
    unlink(swn_fix.path);
    return rmdir(swn_fix.dir) || swn_fix.fault.open_files;
}

void swn_store_make(const struct swn_store_opts *opts)
{
    int rc = swn_store_build(&swn_fix.model.c, &swn_fix.fault.io, swn_fix.path, opts, swn_fix.why);
    if (rc)
        fail_msg("build: %d %s", rc, swn_fix.why);
}

struct swn_store *swn_store_made(void)
{
    struct swn_store *s = NULL;
    int rc = swn_store_open(&s, &swn_fix.fault.io, swn_fix.path, swn_fix.why);
    if (rc)
        fail_msg("open: %d %s", rc, swn_fix.why);
    return s;
}
