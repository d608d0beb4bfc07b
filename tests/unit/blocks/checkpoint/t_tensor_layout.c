/* Description: of a checkpoint it is known which tensor lies where, and which of another layer does the same. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "blocks/checkpoint/tensor_layout.h"

#define BYTES 8

static const char *const names[] = {
    "embed.weight",          "layers.1.down.weight",  "layers.1.up.weight",    "layers.10.up.b", "layers.2.down.weight",
    "layers.2.experts.1.up", "layers.3.experts.1.up", "layers.3x.down.weight", "layers.9.up.b",  "7"};
#define COUNT (sizeof names / sizeof *names)

static struct swn_layout *layout_of(uint64_t *data_off)
{
    char text[4096], why[SWN_ERRMSG];
    size_t n = 8;
    n += (size_t)sprintf(text + n, "{");
    for (size_t i = 0; i < COUNT; i++)
        n += (size_t)sprintf(text + n, "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[%zu,%zu]}",
                             i ? "," : "", names[i], BYTES, i * BYTES, (i + 1) * BYTES);
    n += (size_t)sprintf(text + n, "}");
    uint64_t header = n - 8;
    memcpy(text, &header, 8);
    *data_off = n;
    memset(text + n, 0, COUNT * BYTES);
    n += COUNT * BYTES;
    int fd = memfd_create("t_tensor_layout", 0);
    assert_int_equal(write(fd, text, n), n);
    struct swn_checkpoint *c;
    struct swn_layout *l;
    assert_int_equal(swn_checkpoint_open_fd(&c, &swn_io_sys, fd, "t.safetensors", why), 0);
    close(fd);
    assert_int_equal(swn_layout_create(&l, c), 0);
    return l;
}

static long at(const struct swn_layout *l, uint64_t data_off, const char *name)
{
    for (size_t i = 0; i < COUNT; i++)
        if (!strcmp(names[i], name))
            return swn_layout_at(l, data_off + i * BYTES);
    return -2;
}

static void places(void **state)
{
    (void)state;
    uint64_t off;
    struct swn_layout *l = layout_of(&off);
    assert_int_equal(swn_layout_count(l), COUNT);
    assert_int_equal(swn_layout_at(l, off - 1), -1);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(swn_layout_at(l, off + i * BYTES), i);
        assert_int_equal(swn_layout_at(l, off + i * BYTES + BYTES - 1), i);
        assert_int_equal(swn_layout_storage(l, i)->off, off + i * BYTES);
    }
    swn_layout_destroy(l, &swn_io_sys);
}

static void alike(void **state)
{
    (void)state;
    uint64_t off;
    struct swn_layout *l = layout_of(&off);
    static const struct {
        const char *from;
        int by;
        const char *to; /* NULL: none */
    } cases[] = {
        {"layers.1.down.weight", 1, "layers.2.down.weight"},
        {"layers.2.down.weight", -1, "layers.1.down.weight"},
        {"layers.2.down.weight", 1, NULL}, /* "3x" is no number */
        {"layers.1.down.weight", -1, NULL},
        {"layers.1.down.weight", -2, NULL},
        {"layers.1.up.weight", 1, NULL},
        {"layers.9.up.b", 1, "layers.10.up.b"},
        {"layers.10.up.b", -1, "layers.9.up.b"},
        {"layers.2.experts.1.up", 1, "layers.3.experts.1.up"},
        {"embed.weight", 1, NULL},
        {"7", 1, NULL},
        {"7", 0, "7"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        long found = swn_layout_alike(l, (size_t)at(l, off, cases[i].from), cases[i].by);
        assert_int_equal(found, cases[i].to ? at(l, off, cases[i].to) : -1);
    }
    swn_layout_destroy(l, &swn_io_sys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places),
        cmocka_unit_test(alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
