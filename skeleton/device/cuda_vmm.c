/* skeleton/device/cuda_vmm.c - see cuda_vmm.h. */
#define _GNU_SOURCE
#include "skeleton/device/cuda_vmm.h"

#include <errno.h>
#include <string.h>

#include "skeleton/device/cuda.h"

static const struct swn_cuda_entry runtime[] = {
    {"cudaEventCreateWithFlags", offsetof(struct swn_cuda_swap, event_create)},
    {"cudaEventRecord", offsetof(struct swn_cuda_swap, event_record)},
    {"cudaEventQuery", offsetof(struct swn_cuda_swap, event_query)},
    {"cudaEventSynchronize", offsetof(struct swn_cuda_swap, event_synchronize)},
    {"cudaEventDestroy", offsetof(struct swn_cuda_swap, event_destroy)},
    {"cudaMemcpyAsync", offsetof(struct swn_cuda_swap, memcpy_async)},
    {"cudaStreamWaitEvent", offsetof(struct swn_cuda_swap, stream_wait)},
};

static const struct swn_cuda_entry driver[] = {
    {"cuDeviceGetAttribute", offsetof(struct swn_cuda_virtual, device_attribute)},
    {"cuMemGetAllocationGranularity", offsetof(struct swn_cuda_virtual, granularity)},
    {"cuMemAddressReserve", offsetof(struct swn_cuda_virtual, reserve)},
    {"cuMemAddressFree", offsetof(struct swn_cuda_virtual, unreserve)},
    {"cuMemCreate", offsetof(struct swn_cuda_virtual, create)},
    {"cuMemRelease", offsetof(struct swn_cuda_virtual, release)},
    {"cuMemMap", offsetof(struct swn_cuda_virtual, map)},
    {"cuMemUnmap", offsetof(struct swn_cuda_virtual, unmap)},
    {"cuMemSetAccess", offsetof(struct swn_cuda_virtual, set_access)},
};

int swn_cuda_find_swap(struct swn_cuda_swap *out)
{
    return swn_cuda_fill(out, runtime, sizeof runtime / sizeof runtime[0], swn_cuda_runtime_symbol);
}

/* The driver's library is in the process where there is a GPU; otherwise the runtime may have the function. */
static int driver_symbol(const char *name, void **out)
{
    int (*entry_point)(const char *, void **, unsigned long long, int *);
    if (!swn_cuda_symbol("libcuda", name, out))
        return 0;
    void *function, *found = NULL;
    int how = 0;
    if (swn_cuda_runtime_symbol("cudaGetDriverEntryPoint", &function))
        return -ENOSYS;
    memcpy(&entry_point, &function, sizeof function);
    if (entry_point(name, &found, 0, &how) || !found)
        return -ENOSYS;
    *out = found;
    return 0;
}

int swn_cuda_find_virtual(struct swn_cuda_virtual *out)
{
    return swn_cuda_fill(out, driver, sizeof driver / sizeof driver[0], driver_symbol);
}
