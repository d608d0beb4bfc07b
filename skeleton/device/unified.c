/* skeleton/device/unified.c - see unified.h. */
#include "skeleton/device/unified.h"

#include <stdint.h>

static int forget(const struct swn_cuda *cuda, int err)
{
    if (err)
        cuda->last_error();
    return err;
}

static int stay(const struct swn_cuda *cuda, const struct swn_unified_traits *traits, struct swn_unified_block *b)
{
    (void)cuda, (void)traits, (void)b;
    return 0;
}

/* The program's launched work may use a tensor after it was dropped, on any stream: PyTorch reuses the memory of its
 * own device tensors in the order of a stream, but the processor reuses this memory. Weights are seldom dropped, so
 * this waits for all streams, instead of keeping an event for each use. */
static int wait_for_device(const struct swn_cuda *cuda)
{
    return forget(cuda, cuda->device_synchronize());
}

static int pageable_open(const struct swn_cuda *cuda, const struct swn_unified_traits *traits,
                         struct swn_unified_block *b)
{
    (void)cuda, (void)traits;
    b->device = b->host;
    return 0;
}

static int pageable_close(const struct swn_cuda *cuda, struct swn_unified_block *b)
{
    (void)b;
    return wait_for_device(cuda);
}

static int registered_open(const struct swn_cuda *cuda, const struct swn_unified_traits *traits,
                           struct swn_unified_block *b)
{
    int err = forget(cuda, cuda->host_register(b->host, b->bytes, SWN_CUDA_REGISTER_MAPPED));
    if (err)
        return err;
    b->device = b->host;
    err = traits->host_pointer ? 0 : forget(cuda, cuda->host_device_pointer(&b->device, b->host, 0));
    if (err)
        forget(cuda, cuda->host_unregister(b->host));
    return err;
}

static int registered_close(const struct swn_cuda *cuda, struct swn_unified_block *b)
{
    int err = wait_for_device(cuda);
    return err ? err : forget(cuda, cuda->host_unregister(b->host));
}

static int managed_open(const struct swn_cuda *cuda, const struct swn_unified_traits *traits,
                        struct swn_unified_block *b)
{
    unsigned attach = traits->concurrent ? SWN_CUDA_ATTACH_GLOBAL : SWN_CUDA_ATTACH_HOST;
    int err = forget(cuda, cuda->malloc_managed(&b->host, b->bytes, attach));
    if (!err && (uintptr_t)b->host % 4096 != 0) { /* page alignment is not guaranteed, and direct reads need it */
        cuda->free(b->host);
        b->host = NULL;
        return -1;
    }
    b->device = b->host;
    return err;
}

static int managed_hand_over(const struct swn_cuda *cuda, const struct swn_unified_traits *traits,
                             struct swn_unified_block *b)
{
    if (traits->concurrent)
        return 0;
    int err = cuda->stream_attach(b->stream, b->host, 0, SWN_CUDA_ATTACH_GLOBAL);
    /* The buffer is attached in the order of that stream, and may be used on any stream. */
    return forget(cuda, err ? err : cuda->stream_synchronize(b->stream));
}

static int managed_close(const struct swn_cuda *cuda, struct swn_unified_block *b)
{
    int err = wait_for_device(cuda);
    return err ? err : forget(cuda, cuda->free(b->host));
}

static const struct swn_unified_backend pageable = {"pageable", 1, 0, pageable_open, stay, pageable_close};
static const struct swn_unified_backend registered = {"registered", 1, 1, registered_open, stay, registered_close};
static const struct swn_unified_backend managed = {"managed", 0, 0, managed_open, managed_hand_over, managed_close};

int swn_unified_traits_get(const struct swn_cuda *cuda, int device, struct swn_unified_traits *out)
{
    const struct {
        int attribute, *value;
    } wanted[] = {
        {SWN_CUDA_INTEGRATED, &out->integrated},
        {SWN_CUDA_PAGEABLE_MEMORY_ACCESS, &out->pageable},
        {SWN_CUDA_HOST_REGISTER_SUPPORTED, &out->host_register},
        {SWN_CUDA_HOST_POINTER_FOR_REGISTERED, &out->host_pointer},
        {SWN_CUDA_MANAGED_MEMORY, &out->managed},
        {SWN_CUDA_CONCURRENT_MANAGED_ACCESS, &out->concurrent},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        int err = forget(cuda, cuda->device_attribute(wanted[i].value, wanted[i].attribute, device));
        if (err)
            return err;
    }
    return 0;
}

const struct swn_unified_backend *swn_unified_choose(const struct swn_unified_traits *traits,
                                                     enum swn_config_unified wish)
{
    switch (wish) {
    case SWN_CONFIG_UNIFIED_OFF:
        return NULL;
    case SWN_CONFIG_UNIFIED_PAGEABLE:
        return traits->pageable ? &pageable : NULL;
    case SWN_CONFIG_UNIFIED_REGISTERED:
        return traits->host_register ? &registered : NULL;
    case SWN_CONFIG_UNIFIED_MANAGED:
        return traits->managed ? &managed : NULL;
    case SWN_CONFIG_UNIFIED_AUTO:
        break;
    }
    /* A card with memory of its own may reach the host's as well, over a far slower bus: the user must ask for weights
     * to stay there. */
    if (!traits->integrated)
        return NULL;
    return traits->pageable ? &pageable : traits->host_register ? &registered : traits->managed ? &managed : NULL;
}
