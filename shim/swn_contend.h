/* swn_contend.h - reads from the disk that nobody wants, to see what they cost a program that computes meanwhile.
 *
 * What a disk delivers goes through the same memory that operators read their weights from, and on a virtual machine
 * through processors of the host: with a disk of 3.5 GB/s convolutional networks take 7 % longer, on however many
 * threads. Only for programs that are profiled. Thread-safe.
 */
#ifndef SWN_CONTEND_H
#define SWN_CONTEND_H

#include "swn_io.h"

struct swn_contend;

/* A thread that makes a scratch file in the directory of block stores, and then waits to be told. NULL: none to be had.
 * io and dir outlive it. */
struct swn_contend *swn_contend_start(const struct swn_io *io, const char *dir);
/* Whether there is something to read. */
int swn_contend_ready(struct swn_contend *c);
/* From now on it reads all the time, or no more: then the read that is under way is its last. */
void swn_contend_set(struct swn_contend *c, int busy);
/* Waits for its end. */
void swn_contend_stop(struct swn_contend *c);

#endif
