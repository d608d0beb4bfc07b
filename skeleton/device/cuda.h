/* skeleton/device/cuda.h - the program's CUDA runtime. The library finds it, never loads it, and builds without it.
 *
 * All calls return 0 or a cudaError_t, and concern the calling thread's current device.
 */
#ifndef SWN_SKELETON_DEVICE_CUDA_H
#define SWN_SKELETON_DEVICE_CUDA_H

#include <stddef.h>

/* cudaDeviceAttr */
enum {
    SWN_CUDA_INTEGRATED = 18,
    SWN_CUDA_MANAGED_MEMORY = 83,
    SWN_CUDA_PAGEABLE_MEMORY_ACCESS = 88,
    SWN_CUDA_CONCURRENT_MANAGED_ACCESS = 89,
    SWN_CUDA_HOST_POINTER_FOR_REGISTERED = 91,
    SWN_CUDA_HOST_REGISTER_SUPPORTED = 99,
};
/* Flags of cudaMallocManaged and cudaStreamAttachMemAsync, and of cudaHostRegister */
enum { SWN_CUDA_ATTACH_GLOBAL = 1, SWN_CUDA_ATTACH_HOST = 2 };
enum { SWN_CUDA_REGISTER_MAPPED = 2 };
enum { SWN_CUDA_NON_BLOCKING = 1 }; /* a stream that does not wait for the legacy one */
/* cudaStreamCaptureMode */
enum { SWN_CUDA_CAPTURE_RELAXED = 2 };

struct swn_cuda {
    int (*device_attribute)(int *value, int attribute, int device);
    int (*get_device)(int *device);
    int (*set_device)(int device);
    int (*device_synchronize)(void);
    int (*host_register)(void *p, size_t bytes, unsigned flags);
    int (*host_unregister)(void *p);
    int (*host_device_pointer)(void **device, void *host, unsigned flags);
    int (*malloc_managed)(void **p, size_t bytes, unsigned flags);
    int (*free)(void *p);
    int (*memory_info)(size_t *free, size_t *total);                           /* of the card's memory, in bytes */
    int (*stream_attach)(void *stream, void *p, size_t bytes, unsigned flags); /* bytes: 0 or all of the allocation */
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_synchronize)(void *stream);
    int (*stream_capturing)(void *stream, int *status); /* *status is 0 where nothing is being captured */
    int (*capture_mode)(int *mode); /* exchanges the thread's mode, so that its calls end no other thread's capture */
    int (*last_error)(void);        /* clears the error, too: PyTorch must not take it for one of its kernels */
};

/* Fills *out from the runtime that is in this process. 0; -ENOENT: there is none; -ENOSYS: it lacks a function.
 * Thread-safe. */
int swn_cuda_find(struct swn_cuda *out);

/* Until the result is given to swn_cuda_restore, calls of this thread end no thread's capture, and no capture refuses
 * them. */
int swn_cuda_relax(const struct swn_cuda *cuda);
void swn_cuda_restore(const struct swn_cuda *cuda, int mode);

/* Whether launches on the stream are captured into a graph. */
int swn_cuda_capturing(const struct swn_cuda *cuda, void *stream);
#define SWN_CUDA_CAPTURES 8
/* Whether a stream that swn_cuda_capturing found under capture (it remembers SWN_CUDA_CAPTURES) still is: then no
 * thread may wait for a device. Captures on other streams are unknown. Thread-safe. */
int swn_cuda_capture_under_way(const struct swn_cuda *cuda);
/* Whether this cudaError_t means that a capture made the call fail. */
int swn_cuda_refused_by_capture(int err);

/* *out: the function's address, in the library of this process whose name begins with `stem` ("libcudart"). 0; -ENOENT:
 * there is no such library; -ENOSYS: it has no such function. Thread-safe. */
int swn_cuda_symbol(const char *stem, const char *name, void **out);

/* The function that a call of `name` by the code at `caller` would reach without libswapnet's hook: that of another
 * library that interposes it; else of the library that the caller is linked with, as a process may have two; else of
 * any library whose name begins with `stem`. NULL: there is none. Thread-safe. */
void *swn_cuda_next(const char *stem, const char *name, const void *caller);

/* A function's name, and the offset of its pointer in a table. */
struct swn_cuda_entry {
    const char *name;
    size_t offset;
};

/* Fills `table` with the functions that `find` finds; `find` is swn_cuda_runtime_symbol or its like. 0, or find's first
 * error. */
int swn_cuda_fill(void *table, const struct swn_cuda_entry *entries, size_t n,
                  int (*find)(const char *name, void **out));
/* In the CUDA runtime. As swn_cuda_symbol. */
int swn_cuda_runtime_symbol(const char *name, void **out);

#endif
