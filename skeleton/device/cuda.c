/* skeleton/device/cuda.c - see cuda.h. */
#define _GNU_SOURCE
#include "skeleton/device/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const struct swn_cuda_entry functions[] = {
    {"cudaDeviceGetAttribute", offsetof(struct swn_cuda, device_attribute)},
    {"cudaGetDevice", offsetof(struct swn_cuda, get_device)},
    {"cudaSetDevice", offsetof(struct swn_cuda, set_device)},
    {"cudaDeviceSynchronize", offsetof(struct swn_cuda, device_synchronize)},
    {"cudaHostRegister", offsetof(struct swn_cuda, host_register)},
    {"cudaHostUnregister", offsetof(struct swn_cuda, host_unregister)},
    {"cudaHostGetDevicePointer", offsetof(struct swn_cuda, host_device_pointer)},
    {"cudaMallocManaged", offsetof(struct swn_cuda, malloc_managed)},
    {"cudaFree", offsetof(struct swn_cuda, free)},
    {"cudaMemGetInfo", offsetof(struct swn_cuda, memory_info)},
    {"cudaStreamAttachMemAsync", offsetof(struct swn_cuda, stream_attach)},
    {"cudaStreamCreateWithFlags", offsetof(struct swn_cuda, stream_create)},
    {"cudaStreamSynchronize", offsetof(struct swn_cuda, stream_synchronize)},
    {"cudaStreamIsCapturing", offsetof(struct swn_cuda, stream_capturing)},
    {"cudaThreadExchangeStreamCaptureMode", offsetof(struct swn_cuda, capture_mode)},
    {"cudaGetLastError", offsetof(struct swn_cuda, last_error)},
};

struct library {
    const char *stem;
    char path[PATH_MAX];
};

/* Whether the path is a library of that stem: libcudart.so.13 and its like, and libcudart-d0da41ae.so.11.0 in some
 * wheels. */
static int is_library(const char *path, const char *stem)
{
    size_t len = strlen(stem);
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    const char *rest = base + len;
    return !strncmp(base, stem, len) && (*rest == '.' || *rest == '-') && strstr(rest, ".so");
}

static int find_library(struct dl_phdr_info *info, size_t size, void *out)
{
    struct library *l = out;
    (void)size;
    if (!is_library(info->dlpi_name, l->stem))
        return 0;
    snprintf(l->path, sizeof l->path, "%s", info->dlpi_name);
    return 1;
}

int swn_cuda_symbol(const char *stem, const char *name, void **out)
{
    struct library l = {.stem = stem};
    dl_iterate_phdr(find_library, &l);
    void *library = l.path[0] ? dlopen(l.path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (!library)
        return -ENOENT;
    *out = dlsym(library, name);
    return *out ? 0 : -ENOSYS;
}

/* Looks among the libraries that the caller's library is linked with. Python loads extensions separately, so the global
 * scope and RTLD_NEXT may lack them. */
static void *linked_with(const void *caller, const char *name)
{
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) || !map || !map->l_name[0])
        return NULL; /* the caller is the program itself, whose libraries are in the global scope */
    void *library = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
    void *f = library ? dlsym(library, name) : NULL;
    if (library)
        dlclose(library);
    return f;
}

void *swn_cuda_next(const char *stem, const char *name, const void *caller)
{
    Dl_info info;
    void *found, *next = dlsym(RTLD_NEXT, name);
    if (next && dladdr(next, &info) && !is_library(info.dli_fname, stem))
        return next;
    void *linked = linked_with(caller, name);
    if (linked)
        return linked;
    return next ? next : swn_cuda_symbol(stem, name, &found) ? NULL : found;
}

int swn_cuda_runtime_symbol(const char *name, void **out)
{
    return swn_cuda_symbol("libcudart", name, out);
}

int swn_cuda_fill(void *table, const struct swn_cuda_entry *entries, size_t n,
                  int (*find)(const char *name, void **out))
{
    for (size_t i = 0; i < n; i++) {
        void *function;
        int err = find(entries[i].name, &function);
        if (err)
            return err;
        memcpy((char *)table + entries[i].offset, &function, sizeof function);
    }
    return 0;
}

int swn_cuda_find(struct swn_cuda *out)
{
    return swn_cuda_fill(out, functions, sizeof functions / sizeof functions[0], swn_cuda_runtime_symbol);
}

int swn_cuda_relax(const struct swn_cuda *cuda)
{
    int mode = SWN_CUDA_CAPTURE_RELAXED;
    cuda->capture_mode(&mode);
    return mode;
}

void swn_cuda_restore(const struct swn_cuda *cuda, int mode)
{
    cuda->capture_mode(&mode);
}

/* Streams that were under capture at the last query. */
static _Atomic(void *) captured[SWN_CUDA_CAPTURES];

static int is_capturing(const struct swn_cuda *cuda, void *stream)
{
    int status = 0, err = cuda->stream_capturing(stream, &status);
    if (err) /* then the status means nothing: for the legacy stream, while a stream that waits for it is captured */
        cuda->last_error();
    return !err && status;
}

int swn_cuda_capture_under_way(const struct swn_cuda *cuda)
{
    int any = 0;
    for (int i = 0; i < SWN_CUDA_CAPTURES; i++) {
        void *stream = atomic_load(&captured[i]);
        if (stream && is_capturing(cuda, stream))
            any = 1;
        else if (stream)
            atomic_compare_exchange_strong(&captured[i], &stream, NULL);
    }
    return any;
}

static int note_captured(void *stream)
{
    for (int i = 0; i < SWN_CUDA_CAPTURES; i++)
        if (atomic_load(&captured[i]) == stream)
            return 1;
    for (int i = 0; i < SWN_CUDA_CAPTURES; i++) {
        void *none = NULL;
        if (atomic_compare_exchange_strong(&captured[i], &none, stream))
            return 1;
    }
    return 0;
}

/* A stream of the program may be gone by the next query of other streams. */
static void forget_captured(void *stream)
{
    for (int i = 0; stream && i < SWN_CUDA_CAPTURES; i++) {
        void *same = stream;
        atomic_compare_exchange_strong(&captured[i], &same, NULL);
    }
}

int swn_cuda_capturing(const struct swn_cuda *cuda, void *stream)
{
    static _Atomic unsigned next;
    if (!is_capturing(cuda, stream)) {
        forget_captured(stream);
        return 0;
    }
    if (!note_captured(stream)) {
        swn_cuda_capture_under_way(cuda); /* forgets captures that have ended */
        if (!note_captured(stream))
            atomic_store(&captured[atomic_fetch_add(&next, 1) % SWN_CUDA_CAPTURES], stream);
    }
    return 1;
}

int swn_cuda_refused_by_capture(int err)
{
    return err >= 900 && err <= 908; /* cudaErrorStreamCapture... */
}
