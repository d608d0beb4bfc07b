/* skeleton/device/unified.h - memory that the processor and the GPU share: three ways, behind one small table.
 *
 * - pageable: the GPU follows the processor's page tables. Any memory will do, also what is mapped from a file and may
 *   change its place in memory at any time (Thor).
 * - registered: memory has to be registered with the driver, which pins its pages: they may not go (Xavier, Orin).
 * - managed: memory has to be the driver's own. While a kernel runs, the processor may touch only what is attached to
 *   the host; so a buffer is attached there while it is filled, and to the device from then on (Nano, TX2).
 *
 * Which of them a device knows is in its attributes. Nothing here may be called before the program itself uses its GPU:
 * the first attribute that is asked for initialises the driver. All calls concern the thread's current device; errors
 * are cudaError_t, and are forgotten by the runtime. Thread-safe. A caller relaxes its thread (swn_cuda_relax) where
 * another thread may be capturing a graph.
 */
#ifndef SWN_SKELETON_DEVICE_UNIFIED_H
#define SWN_SKELETON_DEVICE_UNIFIED_H

#include <stddef.h>

#include "skeleton/engine/config.h"
#include "skeleton/device/cuda.h"

struct swn_unified_traits {
    int integrated, pageable, host_register, host_pointer, managed, concurrent;
};

struct swn_unified_block {
    void *host;   /* the processor's address of the bytes */
    size_t bytes; /* whole pages */
    void *device; /* the device's address */
    void *stream; /* the stream in whose order it is handed over, without waiting for others: not the legacy one */
};

struct swn_unified_backend {
    const char *name;
    int shares; /* the device reads a tensor's own bytes; else it has buffers, which have to be filled */
    int pins;   /* the bytes may not leave meanwhile */
    /* Shares: makes b->host known to the device and sets b->device. Else: sets b->host and b->device to a new buffer
     * that the processor may fill at any time. */
    int (*open)(const struct swn_cuda *cuda, const struct swn_unified_traits *traits, struct swn_unified_block *b);
    /* The bytes are in place, and the processor no longer reads b->host: any stream may read b->device from now on. */
    int (*hand_over)(const struct swn_cuda *cuda, const struct swn_unified_traits *traits, struct swn_unified_block *b);
    /* Waits until no launched work can use b any more, and undoes open. After an error the device may still use it:
     * then no other tensor may get that memory. */
    int (*close)(const struct swn_cuda *cuda, struct swn_unified_block *b);
};

/* 0 or a cudaError_t. */
int swn_unified_traits_get(const struct swn_cuda *cuda, int device, struct swn_unified_traits *out);
/* The way for a device with these traits. NULL: none, or not the one that the user wants. Static. */
const struct swn_unified_backend *swn_unified_choose(const struct swn_unified_traits *traits,
                                                     enum swn_config_unified wish);

#endif
