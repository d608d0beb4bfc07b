/* Description: parameters are registered where their bytes are, ties included, whatever blocks a model is cut into; and
 * the public C API gives the same bytes, or an error for bytes that changed. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "skeleton/capi/swapnet.h"
#include "blocks/store/skeleton.h"
#include "tests/unit/support/test_model.h"

static char dir[512], path[600], why[SWN_ERRMSG];
static struct swn_test_model model;

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/t_capi.XXXXXX", tmp && *tmp ? tmp : "/var/tmp");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/model.store", dir);
    swn_test_model_make(&model, dir);
    return swn_store_build(&model.c, &swn_io_sys, path, NULL, why);
}

static int teardown(void **state)
{
    (void)state;
    swn_test_model_free(&model);
    unlink(path);
    return rmdir(dir);
}

/* The bytes of a tensor as the checkpoint has them. */
static const unsigned char *expected(const char *name)
{
    for (size_t i = 0; i < SWN_TEST_TENSORS; i++)
        if (!strcmp(model.tensors[i].name, name))
            return model.bytes + model.storages[model.tensors[i].storage].off + model.tensors[i].off;
    fail_msg("no tensor %s", name);
    return NULL;
}

static uint64_t bytes_left(const struct swn_store *s, size_t tensor)
{
    return s->extents[s->tensors[tensor].extent].bytes - s->tensors[tensor].off;
}

/* Reads a block by hand, as it lies in the store. */
static void *load(const struct swn_store *s, const struct swn_block *b)
{
    char *base = aligned_alloc(4096, b->bytes + 4096);
    assert_int_equal(b->bytes % 4096, 0);
    assert_int_equal(pread(s->file.fd, base, b->own_bytes, (off_t)b->off), (ssize_t)b->own_bytes);
    for (uint32_t i = 0; i < b->tie_count; i++) {
        const struct swn_store_extent *e = &s->extents[b->ties[i].extent];
        assert_true(b->ties[i].at + e->bytes <= b->bytes);
        assert_int_equal(pread(s->file.fd, base + b->ties[i].at, e->bytes, (off_t)e->off), (ssize_t)e->bytes);
    }
    return base;
}

static void every_range_of_layers(void **state)
{
    (void)state;
    struct swn_store *s;
    struct swn_skeleton *sk;
    assert_int_equal(swn_store_open(&s, &swn_io_sys, path, why), 0);
    assert_int_equal(swn_skeleton_make(&sk, s), 0);
    assert_int_equal(sk->slot_count, SWN_TEST_TENSORS);
    assert_true(swn_skeleton_bytes(sk) < 2048);
    uint64_t *sizes = calloc(s->layer_count, sizeof *sizes);
    assert_int_equal(swn_store_layer_bytes(s, sizes), 0);
    for (uint32_t first = 0; first < s->layer_count; first++) {
        for (uint32_t layers = 1; first + layers <= s->layer_count; layers++) {
            struct swn_block b;
            uint64_t sum = 0;
            assert_int_equal(swn_block_make(&b, sk, first, layers), 0);
            for (uint32_t i = 0; i < layers; i++)
                sum += sizes[first + i];
            assert_true(layers == 1 ? b.bytes == sum : b.bytes <= sum);
            void *base = load(s, &b);
            swn_skeleton_register(sk, &b, base);
            for (uint32_t i = 0; i < sk->slot_count; i++) {
                const struct swn_skeleton_slot *slot = &sk->slots[i];
                int inside = s->tensors[i].layer >= first && s->tensors[i].layer < first + layers;
                if (inside != (slot->data != NULL))
                    fail_msg("layers %u+%u: slot %u", first, layers, i);
                if (inside)
                    assert_memory_equal(slot->data, expected(s->tensors[i].name), bytes_left(s, i));
            }
            swn_skeleton_unregister(sk, &b);
            for (uint32_t i = 0; i < sk->slot_count; i++)
                assert_null(sk->slots[i].data);
            free(base);
            swn_block_free(&b);
        }
    }
    struct swn_block b;
    assert_int_equal(swn_block_make(&b, sk, 0, 0), -EINVAL);
    assert_int_equal(swn_block_make(&b, sk, 6, 1), -EINVAL);
    assert_int_equal(swn_block_make(&b, sk, 5, 2), -EINVAL);
    assert_int_equal(swn_block_make(&b, sk, 1, UINT32_MAX), -EINVAL);
    free(sizes);
    swn_skeleton_free(sk);
    swn_store_close(s, &swn_io_sys);
}

static void check_block(const struct swapnet_model *m, size_t block)
{
    struct swapnet_tensor t;
    assert_true(swapnet_tensor_count(m, block) > 0);
    for (size_t k = 0; k < swapnet_tensor_count(m, block); k++) {
        assert_int_equal(swapnet_tensor(m, block, k, &t), 0);
        assert_non_null(t.data);
        if (t.ndim == 1)
            assert_memory_equal(t.data, expected(t.name), (size_t)t.shape[0]); /* bytes at least */
        if (!strcmp(t.name, "b.weight")) {
            assert_string_equal(t.dtype, "float32");
            assert_int_equal(t.ndim, 2);
            assert_int_equal(t.shape[1], 512);
            assert_memory_equal(t.data, expected(t.name), 512 * 512 * 4);
        }
    }
    assert_int_equal(swapnet_tensor(m, block, swapnet_tensor_count(m, block), &t), -EINVAL);
}

static void public_api(void **state)
{
    (void)state;
    struct swapnet_model *m = NULL;
    struct swapnet_tensor t;
    assert_int_equal(swapnet_open(&m, dir, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, dir));
    assert_int_equal(swapnet_open(&m, path, why, sizeof why), 0);
    assert_int_equal(swapnet_block_count(m), 6);
    uint64_t least = swapnet_smallest_budget(m);
    assert_int_equal(swapnet_cut(m, least - 1), -ENOSPC);
    for (uint64_t budget = least; budget < least * 3; budget += least / 3) {
        int blocks = swapnet_cut(m, budget);
        assert_true(blocks > 0 && (size_t)blocks == swapnet_block_count(m));
        for (int pass = 0; pass < 2; pass++) {
            for (size_t i = 0; i < (size_t)blocks; i++) {
                assert_int_equal(swapnet_swap_in(m, i), 0);
                assert_int_equal(swapnet_cut(m, budget), -EBUSY);
                if (i + 1 < (size_t)blocks) {
                    assert_int_equal(swapnet_prefetch(m, i + 1), 0);
                    assert_true(swapnet_block_bytes(m, i) + swapnet_block_bytes(m, i + 1) <= budget);
                }
                check_block(m, i);
                assert_int_equal(swapnet_swap_in(m, i), 0); /* there already */
                assert_int_equal(swapnet_swap_out(m, i), 0);
                assert_int_equal(swapnet_tensor(m, i, 0, &t), 0);
                assert_null(t.data);
                assert_int_equal(swapnet_swap_out(m, i), 0);
            }
        }
    }
    size_t none = swapnet_block_count(m);
    assert_int_equal(swapnet_swap_in(m, none), -EINVAL);
    assert_int_equal(swapnet_swap_out(m, none), -EINVAL);
    assert_int_equal(swapnet_tensor_count(m, none), 0);
    assert_int_equal(swapnet_prefetch(m, 0), 0); /* closing waits for it */
    swapnet_close(m);
    swapnet_close(NULL);
}

static void changed_bytes_are_an_error(void **state)
{
    (void)state;
    struct swapnet_model *m;
    struct swn_store *s;
    struct swapnet_tensor t;
    assert_int_equal(swn_store_open(&s, &swn_io_sys, path, why), 0);
    assert_int_equal(swapnet_open(&m, path, why, sizeof why), 0);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    const struct swn_store_extent *e = &s->extents[s->layers[1].first_extent];
    unsigned char byte = (unsigned char)(model.bytes[e->source_off + 1000] + 1);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)e->off + 1000), 1);
    assert_int_equal(swapnet_swap_in(m, 0), 0);
    assert_int_equal(swapnet_swap_in(m, 1), -EILSEQ);
    assert_int_equal(swapnet_tensor(m, 1, 0, &t), 0);
    assert_null(t.data);
    assert_int_equal(swapnet_swap_in(m, 5), -EILSEQ); /* tied to it */
    byte--;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)e->off + 1000), 1);
    assert_int_equal(swapnet_swap_in(m, 1), 0);
    check_block(m, 1);
    assert_int_equal(ftruncate(fd, (off_t)s->extents[s->layers[2].first_extent].off + 4096), 0);
    assert_int_equal(swapnet_swap_in(m, 3), -ENODATA);
    close(fd);
    swapnet_close(m);
    swn_store_close(s, &swn_io_sys);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_range_of_layers),
        TEST(public_api),
        TEST(changed_bytes_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
