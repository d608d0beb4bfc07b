/* Whether the kernel does what it says, for tests of what follows from it. An emulator (qemu-user) answers "done" to
 * advice that it ignores. Each probe prints why when the answer is no. */
#ifndef SWN_TESTS_UNIT_SUPPORT_KERNEL_DOES_H
#define SWN_TESTS_UNIT_SUPPORT_KERNEL_DOES_H

/* MADV_REMOVE gives the pages of a memfd back. */
int swn_probe_removes(void);
/* MADV_DONTDUMP leaves memory out of core dumps: where it does not, what /proc/self/status counts is an emulator's. */
int swn_probe_leaves_out(void);
/* MADV_POPULATE_READ maps pages, or says that it cannot. */
int swn_probe_populates(void);
/* It has io_uring, whose rings read (Linux 5.6), and lets us make one. */
int swn_probe_rings(void);

#endif
