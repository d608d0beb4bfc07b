/* skeleton/device/read.h - reads a tensor's bytes, wherever they are, into memory of a device. */
#ifndef SWN_SKELETON_DEVICE_READ_H
#define SWN_SKELETON_DEVICE_READ_H

#include "skeleton/engine/engine_internal.h"

struct swn_devread {
    uint64_t disk_bytes; /* read from a file, past the page cache, straight to their destination */
    int bounced;         /* the kernel refused direct reads to the device's memory */
};

/* Copies [off, off + len) of the tensor at `data`, which stays alive meanwhile, to page-aligned memory with room for
 * whole pages; off is a multiple of the page. Bytes that are not in a file, or were written since, or cannot be read,
 * come from the tensor's own address. Counts in *count. No lock held. */
void swn_devread(struct swn_engine *e, uintptr_t data, size_t off, size_t len, char *to, struct swn_devread *count);

#endif
