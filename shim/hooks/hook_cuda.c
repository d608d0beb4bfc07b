/* The registration of host memory with a CUDA driver, through the runtime or directly: memory that the program
 * registers must keep its pages (skeleton/device/host_register.h). The library's own calls bypass these hooks, as they
 * use the addresses of the runtime's functions (skeleton/device/cuda.c). So do the runtime's calls of the driver, which
 * do not go through symbols.
 *
 * PyTorch's references to the runtime are versioned. A definition without a version, in a library that defines none,
 * satisfies them all.
 */
#define _GNU_SOURCE
#include <stddef.h>

#include "skeleton/device/cuda.h"
#include "skeleton/device/host_register.h"

#define EXPORT __attribute__((visibility("default")))
/* cudaError_t and CUresult agree in these. */
enum { NO_MEMORY = 2, NOT_INITIALIZED = 3, NOT_REGISTERED = 713 };

typedef int (*register_fn)(void *p, size_t bytes, unsigned flags);
typedef int (*unregister_fn)(void *p);

static int do_register(register_fn real, void *p, size_t bytes, unsigned flags)
{
    struct swn_registration *r;
    if (!real)
        return NOT_INITIALIZED;
    if (swn_registered_begin(p, bytes, &r))
        return NO_MEMORY;
    int err = real(p, bytes, flags);
    swn_registered_end(r, !err);
    return err;
}

static int do_unregister(unregister_fn real, void *p)
{
    if (!real)
        return NOT_INITIALIZED;
    if (swn_registered_by_us(p))
        return NOT_REGISTERED;
    int err = real(p);
    if (!err)
        swn_registered_gone(p);
    return err;
}

#define NEXT(type, stem, name) ((type)swn_cuda_next(stem, name, __builtin_return_address(0)))

EXPORT int cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
    return do_register(NEXT(register_fn, "libcudart", "cudaHostRegister"), p, bytes, flags);
}

EXPORT int cudaHostUnregister(void *p)
{
    return do_unregister(NEXT(unregister_fn, "libcudart", "cudaHostUnregister"), p);
}

EXPORT int cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags)
{
    return do_register(NEXT(register_fn, "libcuda", "cuMemHostRegister_v2"), p, bytes, flags);
}

EXPORT int cuMemHostUnregister(void *p)
{
    return do_unregister(NEXT(unregister_fn, "libcuda", "cuMemHostUnregister"), p);
}
