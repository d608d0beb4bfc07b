/* tests/unit/support/fault_io.h - an I/O table whose N-th operation fails: the kernel's, with a counter in front. */
#ifndef SWN_TESTS_UNIT_SUPPORT_FAULT_IO_H
#define SWN_TESTS_UNIT_SUPPORT_FAULT_IO_H

#include "base/io.h"

struct swn_fault {
    struct swn_io io; /* to be given to what is tested */
    /* set by the test */
    long at;       /* the operation that fails, counted from 1; 0: none */
    int for_ever;  /* and all that follow */
    int err;       /* with which -errno */
    int no_sync;   /* fsync does nothing, for tests that would only wait for the disk */
    int no_direct; /* O_DIRECT is refused when opening */
    /* Not 0: every read and write moves only half of what was asked, rounded down to a multiple of this. */
    size_t short_align;
    /* called before operation `at`, once; may change the world. NULL: nothing */
    void (*hook)(void *user);
    void *user;
    /* found out */
    long count; /* operations so far */
    long fired;
    long open_files; /* of those opened through the table */
    unsigned char opened[1024];
};

/* Fresh, failing nothing. */
void swn_fault_init(struct swn_fault *f);
/* Sets the fault and forgets the counts, but not the open files. */
void swn_fault_arm(struct swn_fault *f, long at, int for_ever, int err);

#endif
