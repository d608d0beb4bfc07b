/* profiles/probe_layers.h - how long layers take to read and to drop, for a profile of a run in which nothing was
 * streamed.
 *
 * The probe writes a scratch file into a directory of block stores, and reads pieces of the sizes of the model's layers
 * through the fetch queue that streams weights, a few at once as when layers are read ahead. It registers as many
 * references as a layer has, and more, and releases them. For programs only: it takes seconds and hundreds of MiB of
 * disk.
 */
#ifndef SWN_PROFILES_PROBE_LAYERS_H
#define SWN_PROFILES_PROBE_LAYERS_H

#include "base/io.h"
#include "profiles/profile.h"

/* Adds reads and releases to the layers of p, and how long a read waits. queue: how to read the disk
 * (profiles/disk_profile.h); NULL, or a depth of 0: as without a device profile. 0 or -errno. The bytes read are
 * bounded, whatever the profile says. */
int swn_probe(struct swn_profile *p, const struct swn_io *io, const char *dir, const struct swn_queue_depth *queue);

#endif
