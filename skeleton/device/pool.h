/* skeleton/device/pool.h - memory of one device in which blocks of weights come and go.
 *
 *   registered  ordinary memory that is registered with the driver. A block is where its buffer is.
 *   managed     the driver's own, attached to the host while it is filled and to the device while it is used. Likewise.
 *   mapped      the device's memory. Every block has an address of its own for as long as it lives, at which memory is
 *               mapped while it is there; a kernel that reads it at any other time faults, and never reads anything
 *               else (invariant 13). It is filled through buffers of ours. Memory is in chunks, any of which do for any
 *               block (skeleton/device/chunks.h).
 *
 * A block that is not there has an address, too (swn_devpool_reserve): the address at which it will be, or one that
 * cannot be read.
 *
 * Not thread-safe, but that swn_devpool_reserve, _unreserve and _follow may be called by any thread while one thread
 * calls the others. All calls concern that thread's current device. Results are 0, a cudaError_t, a CUresult, or
 * -errno.
 */
#ifndef SWN_SKELETON_DEVICE_POOL_H
#define SWN_SKELETON_DEVICE_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "skeleton/device/cuda.h"
#include "skeleton/device/cuda_vmm.h"
#include "skeleton/device/unified.h"

#define SWN_DEVPOOL_STAGES 2
#define SWN_DEVPOOL_FLIGHTS 3

struct swn_devchunk;

struct swn_devbuffer {
    size_t bytes;  /* a multiple of the pool's unit */
    char *host;    /* where it is filled; NULL: it is filled through stages */
    char *address; /* where the device reads it, while it is filled or used */
    struct swn_devchunk *chunks;
};

struct swn_devpool {
    const struct swn_devpool_way *way;
    struct swn_cuda cuda;
    struct swn_cuda_swap swap;
    struct swn_cuda_virtual driver;
    struct swn_unified_traits traits;
    int device;
    size_t unit;        /* sizes of buffers are multiples of it */
    size_t large;       /* size of large chunks, if more than a unit; a multiple of it */
    size_t stage_bytes; /* 0: no stages */
    void *stream;       /* the pool's own: copies, and attaching */
    struct stage {
        char *memory;
        void *event;
        int pinned;
    } stages[SWN_DEVPOOL_STAGES];
    void *flights[SWN_DEVPOOL_FLIGHTS]; /* events */
};

struct swn_devpool_way {
    const char *name;
    int fixed; /* a block has an address of its own, which does not change; and buffers can be divided and joined */
    int (*open)(struct swn_devpool *p);
    int (*make)(struct swn_devpool *p, struct swn_devbuffer *b); /* bytes is set */
    int (*drop)(struct swn_devpool *p, struct swn_devbuffer *b);
    /* enter: the buffer becomes that of the block at address `at`, to be filled. hand_over: all bytes are in place for
     * the device to read. leave: the buffer belongs to no block any more, as nothing on the device uses it. An error of
     * `leave`: the buffer is unchanged; -EFAULT: it belongs to neither, and its memory is lost. */
    int (*enter)(struct swn_devpool *p, struct swn_devbuffer *b, char *at);
    int (*hand_over)(struct swn_devpool *p, struct swn_devbuffer *b);
    int (*leave)(struct swn_devpool *p, struct swn_devbuffer *b);
};

/* Chooses the way for a device: that of its backend, which does not follow the processor's page tables; but `mapped`,
 * if possible, where `threads` of the program could keep an address that belongs to another block later; for a card,
 * which has no backend (NULL), `mapped`. `budget`: host bytes, against which stages count. 0; or the device cannot, and
 * *why says what is missing (static). */
int swn_devpool_choose(struct swn_devpool *p, int device, const struct swn_unified_backend *backend, int threads,
                       size_t budget, const char **why);
/* Called by the thread that will make all further calls: makes its stream and its stages. */
int swn_devpool_begin(struct swn_devpool *p);

/* Counts `bytes` of host memory for a device, or (negative) stops counting them, like small tensors. A forked child has
 * none of them. Any thread. */
void swn_devpool_count(long long bytes);
void swn_devpool_fork_child(void);

/* Unused address space for a block. NULL: there is none. */
char *swn_devpool_reserve(struct swn_devpool *p, size_t bytes);
void swn_devpool_unreserve(struct swn_devpool *p, char *at, size_t bytes);

/* Memory of stage i, which the device has finished reading: to be filled with up to stage_bytes. NULL: an error. */
char *swn_devpool_stage(struct swn_devpool *p, unsigned i);
/* Sends n bytes of it to the device, at address `to`. They have arrived when the flight has. */
int swn_devpool_send(struct swn_devpool *p, unsigned i, char *to, size_t n);
/* Pinned memory, from which the device's bus copies at full speed; the caller counts it. NULL: there is none. */
char *swn_devpool_pin(struct swn_devpool *p, size_t bytes);
/* Frees the memory, after all bytes sent from it have arrived. 0, or an error: the driver keeps it for good. */
int swn_devpool_unpin(struct swn_devpool *p, char *memory, size_t bytes);
/* Sends n bytes of it, which must not change until they have arrived. */
int swn_devpool_send_pinned(struct swn_devpool *p, char *to, const char *from, size_t n);

/* A flight is everything that was sent since the flight before. At most SWN_DEVPOOL_FLIGHTS of them, with consecutive
 * numbers, are under way: a call that begins another waits for the oldest to arrive. */
int swn_devpool_depart(struct swn_devpool *p, uint64_t flight);
/* Waits until the flight has arrived. */
int swn_devpool_arrived(struct swn_devpool *p, uint64_t flight);
/* Kernels that are launched on this stream from now on begin when the flight has arrived. The flight must be under way,
 * and its slot must not be reused meanwhile. */
int swn_devpool_follow(struct swn_devpool *p, uint64_t flight, void *stream);
/* Waits for everything that was sent. */
int swn_devpool_sent(struct swn_devpool *p);

#endif
