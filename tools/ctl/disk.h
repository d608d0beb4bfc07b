/* tools/ctl/disk.h - the disk's side of `swapnetctl profile`. */
#ifndef SWN_TOOLS_CTL_DISK_H
#define SWN_TOOLS_CTL_DISK_H

#include <stdio.h>

#include "profiles/queue_depth.h"

/* The directory of block stores and spill files. 0 or -errno. */
int ctl_disk_dir(char *dir, size_t size);

/* How the library reads the disk of that directory, by SWAPNET_DISK or the device profile. depth 0: neither could be
 * read (the library tells the user). */
struct swn_queue_depth ctl_disk_queue(const char *dir);

/* Measures that disk, prints the result, and writes a device profile: to `output`, or (NULL) where the library looks
 * for it. Returns an exit status; errors are printed. */
int ctl_disk_profile(const char *output);

/* Prints q; nothing where its depth is 0. */
void ctl_disk_print(FILE *out, const struct swn_queue_depth *q);

#endif
