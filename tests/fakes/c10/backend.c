/* The torch backend that belongs to it: makes a tensor when it is attached, and keeps it; then it refuses, or it does
 * not. */
#include <stdlib.h>

#include "skeleton/abi/abi.h"

__attribute__((visibility("default"))) extern const struct swn_torch_backend swn_aten_backend;
void *alloc_cpu(size_t n) __asm__("_ZN3c109alloc_cpuEm"); /* the executable's, as a preloaded library's would be */

__attribute__((visibility("default"))) extern void *backend_kept;
void *backend_kept;

static const char *attach(const struct swn_runtime_services *host)
{
    (void)host;
    backend_kept = alloc_cpu(1000);
    return getenv("HALF_REFUSES");
}

static const char *watch(void (*result)(const char *op, const struct swn_result *result))
{
    (void)result;
    return NULL;
}

const struct swn_torch_backend swn_aten_backend = {
    .abi = SWN_ATEN_ABI, .attach = attach, .watch = watch, .version = "9.99.0"};
