/* skeleton/device/spare_buffers.h - buffers of a device that belong to no block. They are kept, as making one, or
 * giving one back to the driver, may stop the device.
 *
 * Not thread-safe.
 */
#ifndef SWN_SKELETON_DEVICE_SPARE_BUFFERS_H
#define SWN_SKELETON_DEVICE_SPARE_BUFFERS_H

#include <stddef.h>

#include "skeleton/device/pool.h"

struct swn_devspares {
    struct swn_devbuffer *all;
    size_t n, room;
};

/* Adds the buffer; buffers that can be divided are joined into one. 0 or -ENOMEM. */
int swn_devspares_put(struct swn_devspares *s, const struct swn_devpool *p, const struct swn_devbuffer *buffer);
/* Takes the smallest buffer of at least `bytes` and at most `largest`; exactly `bytes`, where buffers can be divided.
 * 0; -ENOENT: there is none; -ENOMEM: there was one, and some of it is lost. */
int swn_devspares_take(struct swn_devspares *s, struct swn_devpool *p, size_t bytes, size_t largest,
                       struct swn_devbuffer *out);
/* Takes any spare buffer; where buffers can be divided, all of them as one. 0 or -ENOENT. */
int swn_devspares_any(struct swn_devspares *s, struct swn_devbuffer *out);
/* Bytes of all spare buffers. */
size_t swn_devspares_bytes(const struct swn_devspares *s);

#endif
