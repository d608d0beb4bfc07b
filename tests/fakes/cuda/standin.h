/* tests/fakes/cuda/standin.h - what tests ask of the stand-in for the CUDA runtime beside the runtime's own calls. */
#ifndef SWN_TESTS_FAKES_CUDA_STANDIN_H
#define SWN_TESTS_FAKES_CUDA_STANDIN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The device that is stood in for: nano, xavier, orin, thor or discrete. Before the first call; else the environment's
 * STANDIN_DEVICE says, or orin. */
void standin_be(const char *device);
/* The device has $STANDIN_MEMORY MiB of its own, if that is set. Of $STANDIN_IDLE MiB, beside those, PyTorch's
 * allocator says that it has them and nobody uses them. */
/* So many bytes, until it has been made to give them back to the device. */
size_t standin_idle(void);
void standin_trim(void);
/* Mapping a card's memory takes $STANDIN_MAP_MS milliseconds. */
/* Launches a kernel that reads n stretches of memory at its beginning and, `us` microseconds later, at its end. What
 * the device cannot reach, or what has changed meanwhile, ends the program. */
void standin_launch(void *stream, unsigned us, const void *const *stretches, const size_t *bytes, unsigned n);
/* Waits for the events for which the stream was told to wait; launching does, too. */
void standin_await(void *stream);
/* Whether this thread is a kernel's that is reading memory; for handlers of faults. */
int standin_kernel_reads(void);
/* The device has read [host, host + bytes), or has written it by a copy. If that is registered, it must be the pages
 * that were registered which are there. */
void standin_reached(const void *host, size_t bytes);
/* Whether the driver knows the memory, as it is its own or registered. */
int standin_knows(const void *host);
/* This thread's next registration returns so much later, when the driver has it already. */
void standin_register_slowly(unsigned us);
/* Where a kernel finds what is at a device address. */
void *standin_view(const void *device);
#define STANDIN_DEVICES 2 /* alike */
enum standin_kind {
    STANDIN_DEVICE,
    STANDIN_REGISTERED,
    STANDIN_MANAGED,
    STANDIN_RESERVED,
    STANDIN_PHYSICAL,
    STANDIN_PINNED
};
/* How many of them there are. */
unsigned standin_live(enum standin_kind kind);
/* Of virtual memory management: sizes and addresses are multiples of it. */
#define STANDIN_GRANULE ((size_t)2 << 20)
/* Whether the device knows it; so it does. */
void standin_virtual(int known);
/* Whether the stream's launches are captured rather than made. Not 0: the capture has been broken off by a call that is
 * not allowed meanwhile. */
int standin_capture(void *stream, int captured);
/* Waits for the device, as a copy between it and the host does that this thread makes on the stream. An error: refused,
 * as something is being captured. */
int standin_wait(void *stream);
/* How often it was chosen as a thread's current device, which initialises it. */
unsigned standin_chosen(int index);
/* How often memory has been made, given back, registered or unregistered: all of that may stop the device. */
unsigned standin_changes(void);
/* The most bytes of the device's own there ever were. */
size_t standin_peak(void);
/* The N-th call from now on that can fail does; 0: none. */
void standin_fail(unsigned n);

int cudaDeviceGetAttribute(int *value, int attribute, int device);
int cudaGetDevice(int *index);
int cudaSetDevice(int index);
int cudaDeviceSynchronize(void);
int cudaLaunchHostFunc(void *stream, void (*call)(void *arg), void *arg);
int cudaHostRegister(void *p, size_t bytes, unsigned flags);
int cudaHostUnregister(void *p);
int cudaHostGetDevicePointer(void **device, void *host, unsigned flags);
int cudaHostAlloc(void **p, size_t bytes, unsigned flags);
int cudaFreeHost(void *p);
struct standin_pointer { /* cudaPointerAttributes */
    int type;            /* 0: the driver does not know it, 1: pinned, 2: the device's, 3: managed */
    int device;
    void *on_device, *on_host;
};
int cudaPointerGetAttributes(struct standin_pointer *out, const void *p);
int cudaMallocManaged(void **p, size_t bytes, unsigned flags);
int cudaMalloc(void **p, size_t bytes);
int cudaFree(void *p);
int cudaMemGetInfo(size_t *free, size_t *total);
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream);
int cudaStreamAttachMemAsync(void *stream, void *p, size_t bytes, unsigned flags);
int cudaStreamSynchronize(void *stream);
int cudaStreamCreateWithFlags(void **stream, unsigned flags);
int cudaStreamDestroy(void *stream); /* the last one only is known to be */
int cudaStreamIsCapturing(void *stream, int *status);
int cudaThreadExchangeStreamCaptureMode(int *mode);
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags);
int cudaEventCreateWithFlags(void **event, unsigned flags);
int cudaEventRecord(void *event, void *stream);
int cudaEventQuery(void *event);
int cudaEventSynchronize(void *event);
int cudaEventDestroy(void *event);
int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *how);
int cudaGetLastError(void);

#ifdef __cplusplus
}
#endif
#endif
