/* memory_io.h - an I/O table whose one file is a piece of memory, for fuzz targets. */
#ifndef SWN_TESTS_FUZZ_MEMORY_IO_H
#define SWN_TESTS_FUZZ_MEMORY_IO_H

#include "blocks/checkpoint/checkpoint.h"
#include "base/io.h"

struct memory_file {
    const unsigned char *bytes;
    size_t size;
};

/* A table that opens, reads and describes `file` under any path; everything else is swn_io_sys's. */
struct swn_io memory_io(struct memory_file *file);

/* Aborts unless the checkpoint keeps what blocks/checkpoint/checkpoint.h promises: storages in order, apart and inside
 * the file; tensors inside their storages, with names that are there once. */
void check_checkpoint(const struct swn_checkpoint *c, size_t file_bytes);

/* The processor time of this thread, in seconds. */
double cpu_s(void);
/* Aborts if reading `bytes`, which began at `begin_s`, has taken longer than a second for each MiB. A tenth of a second
 * is always allowed. */
void check_time(double begin_s, size_t bytes);

#endif
