/* skeleton/device/cuda_vmm.h - the CUDA functions beyond skeleton/device/cuda.h with which weights come and go on a
 * device: streams, events, copies, and the driver's virtual memory management, by which an address can be kept while
 * the memory behind it changes.
 *
 * As there: found in the process, never loaded, cudaError_t (or CUresult, of the driver's), for the thread's current
 * device.
 */
#ifndef SWN_SKELETON_DEVICE_CUDA_VMM_H
#define SWN_SKELETON_DEVICE_CUDA_VMM_H

#include <stddef.h>
#include <stdint.h>

enum { SWN_CUDA_EVENT_QUIET = 1 | 2 }; /* a thread that waits for it sleeps; it records no times */
enum { SWN_CUDA_HOST_TO_DEVICE = 1 };

struct swn_cuda_swap {
    int (*event_create)(void **event, unsigned flags);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*event_synchronize)(void *event);
    int (*event_destroy)(void *event);
    int (*memcpy_async)(void *to, const void *from, size_t bytes, int kind, void *stream);
    int (*stream_wait)(void *stream, void *event, unsigned flags);
};

/* CUmemAllocationProp and CUmemAccessDesc */
struct swn_cuda_location {
    int type; /* SWN_CUDA_LOCATION_DEVICE */
    int id;
};
enum { SWN_CUDA_LOCATION_DEVICE = 1, SWN_CUDA_MEMORY_PINNED = 1, SWN_CUDA_READ_WRITE = 3 };
struct swn_cuda_memory_kind {
    int type; /* SWN_CUDA_MEMORY_PINNED */
    int exported;
    struct swn_cuda_location location;
    void *unused;
    unsigned char flags[8];
};
struct swn_cuda_access {
    struct swn_cuda_location location;
    int access;
};
enum { SWN_CUDA_VIRTUAL_MEMORY = 102 }; /* CUdevice_attribute */

struct swn_cuda_virtual {
    int (*device_attribute)(int *value, int attribute, int device);
    int (*granularity)(size_t *bytes, const struct swn_cuda_memory_kind *kind, int recommended);
    int (*reserve)(uint64_t *at, size_t bytes, size_t alignment, uint64_t hint, unsigned long long flags);
    int (*unreserve)(uint64_t at, size_t bytes);
    int (*create)(unsigned long long *handle, size_t bytes, const struct swn_cuda_memory_kind *kind,
                  unsigned long long flags);
    int (*release)(unsigned long long handle);
    int (*map)(uint64_t at, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags);
    int (*unmap)(uint64_t at, size_t bytes);
    int (*set_access)(uint64_t at, size_t bytes, const struct swn_cuda_access *access, size_t n);
};

/* 0; -ENOENT: there is no runtime; -ENOSYS: it (or its driver) lacks a function. Thread-safe. */
int swn_cuda_find_swap(struct swn_cuda_swap *out);
int swn_cuda_find_virtual(struct swn_cuda_virtual *out);

#endif
