/* profiles/disk_profile.h - the device profile of one disk, which says how many reads of what size suit it.
 *
 * The profile lies beside the block stores on that disk, as disk-MAJOR-MINOR.json after the device number of the
 * directory: a cache that is copied to another disk takes the old disk's profile along, but not its number. `swapnetctl
 * profile --disk` writes the profile, the library reads it. A number may come to mean another disk; that costs time,
 * and never changes a result. Thread-safe.
 */
#ifndef SWN_PROFILES_DISK_PROFILE_H
#define SWN_PROFILES_DISK_PROFILE_H

#include <stddef.h>
#include <sys/types.h>

#include "profiles/profile.h"

/* For a directory on device `dev`. 0 or -ENAMETOOLONG. */
int swn_disk_path(char *out, size_t size, const char *dir, dev_t dev);

/* The path where the library looks: that of SWAPNET_DISK (`named`), or, where that is "", swn_disk_path. 0; -ENOENT:
 * SWAPNET_DISK is "off"; -ENAMETOOLONG. */
int swn_disk_find(char *out, size_t size, const char *named, const char *dir, dev_t dev);

/* The kernel's name of the disk, "nvme0n1p2", or "8:1" where it has none. Returns buf. */
const char *swn_disk_name(char buf[64], dev_t dev);

/* The depth and request size of the device profile at `path`, without the measurements. Safe inside the program's
 * process: reads only a regular file of at most 64 KiB. 0; an -errno with a text; -ENOENT: there is no file; -ENODATA:
 * the profile has no depth. */
int swn_disk_queue(struct swn_queue_depth *out, const char *path, char why[SWN_PROFILE_WHY]);

#endif
