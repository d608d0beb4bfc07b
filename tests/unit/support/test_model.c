/* tests/unit/support/test_model.c - see test_model.h. */
#define _GNU_SOURCE
#include "tests/unit/support/test_model.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t storage_bytes[SWN_TEST_STORAGES] = {
    4096, 64, 1 << 20, (1 << 20) + 12, 0, 4, 70000, 4092, 4100, 300000, 8, 5000,
};

/* In checkpoint order. Sizes are of float32 unless said otherwise. */
static const struct {
    const char *name;
    uint32_t storage;
    enum swn_dtype dtype;
    uint32_t ndim;
    int64_t shape[2], stride[2];
    uint64_t off;
} described[SWN_TEST_TENSORS] = {
    {"a.weight", 0, SWN_F32, 2, {32, 32}, {32, 1}, 0},
    {"a.bias", 1, SWN_F32, 1, {16}, {1}, 0},
    {"b.weight", 2, SWN_F32, 2, {512, 512}, {512, 1}, 0},
    {"c.weight", 3, SWN_F32, 2, {3, 87381}, {87381, 1}, 12},
    {"d.e.empty", 4, SWN_F32, 2, {0, 7}, {7, 1}, 0},
    {"d.e.scalar", 5, SWN_F32, 0, {0}, {0}, 0},
    {"d.e.turned", 6, SWN_F32, 2, {100, 175}, {1, 100}, 0},
    {"c.bias", 7, SWN_U8, 1, {4092}, {1}, 0},
    {"c.extra", 8, SWN_BF16, 1, {2050}, {1}, 0},
    {"top", 9, SWN_F16, 2, {300, 500}, {500, 1}, 0},
    {"tied.weight", 2, SWN_F32, 2, {512, 512}, {512, 1}, 0},
    {"tied.slice", 9, SWN_F16, 1, {100}, {2}, 64},
    {"b.count", 10, SWN_I64, 0, {0}, {0}, 0},
    {"a.again", 0, SWN_F32, 1, {8}, {1}, 128},
};

static void fail(const char *what)
{
    perror(what);
    abort();
}

void swn_test_model_make(struct swn_test_model *m, const char *dir)
{
    memset(m, 0, sizeof *m);
    uint64_t off = 200; /* a head that is no storage, at no round offset */
    for (size_t i = 0; i < SWN_TEST_STORAGES; i++) {
        off = (off + 63) & ~UINT64_C(63);
        m->storages[i] = (struct swn_ckpt_storage){"storage", 0, off, storage_bytes[i]};
        off += storage_bytes[i];
    }
    m->size = off;
    m->bytes = malloc(m->size);
    if (!m->bytes)
        fail("malloc");
    for (size_t i = 0; i < m->size; i++)
        m->bytes[i] = (unsigned char)((i * 2654435761U) >> 13);
    snprintf(m->path, sizeof m->path, "%s/model.bin", dir);
    int fd = open(m->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, m->bytes, m->size) != (ssize_t)m->size)
        fail(m->path);
    m->file = (struct swn_ckpt_file){.path = m->path, .fd = fd};
    if (swn_identity_stat(&swn_io_sys, fd, &m->file.identity))
        fail("identity");
    m->file.identity.directory = 4711;
    for (size_t i = 0; i < SWN_TEST_TENSORS; i++) {
        memcpy(m->shapes[i], described[i].shape, sizeof m->shapes[i]);
        memcpy(m->strides[i], described[i].stride, sizeof m->strides[i]);
        m->tensors[i] = (struct swn_ckpt_tensor){.name = (char *)described[i].name,
                                                 .storage = described[i].storage,
                                                 .dtype = described[i].dtype,
                                                 .ndim = described[i].ndim,
                                                 .shape = m->shapes[i],
                                                 .stride = m->strides[i],
                                                 .off = described[i].off};
    }
    m->c = (struct swn_checkpoint){.kind = SWN_CKPT_TORCH,
                                   .files = &m->file,
                                   .file_count = 1,
                                   .storages = m->storages,
                                   .storage_count = SWN_TEST_STORAGES,
                                   .tensors = m->tensors,
                                   .tensor_count = SWN_TEST_TENSORS};
}

void swn_test_model_free(struct swn_test_model *m)
{
    close(m->file.fd);
    unlink(m->path);
    free(m->bytes);
}
