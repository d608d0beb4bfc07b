/* Description: a tensor is described if all of it lies in its storage, and in no other case, whatever numbers say where
 * it lies: each field takes the values at which sums and products change their sign or wrap around. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/archive.h"
#include "tests/unit/support/random.h"

#define FLOATS 6 /* of the storage */

static const int64_t values[] = {-1,        0,        1, 2, FLOATS, FLOATS + 1, INT64_C(1) << 31, INT64_C(1) << 62,
                                 INT64_MAX, INT64_MIN};
#define VALUES (sizeof values / sizeof *values)
#define FIELDS 6

/* The storage's number of elements, the tensor's offset, its two sizes and its two strides. */
enum { NUMBER, OFFSET, SIZE_0, SIZE_1, STRIDE_0, STRIDE_1 };

static const char storage_head[] = "\x80\x02}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\n"
                                   "FloatStorage\nX\1\0\0\0"
                                   "0X\3\0\0\0cpu";

struct writer {
    char p[512];
    size_t n;
};

static void put(struct writer *w, const void *p, size_t n)
{
    memcpy(w->p + w->n, p, n);
    w->n += n;
}
#define PUT(w, text) put(w, text, sizeof(text) - 1)

static void put_number(struct writer *w, int64_t v)
{
    PUT(w, "\x8a\x08");
    put(w, &v, 8);
}

static void put_pickle(struct writer *w, const int64_t f[FIELDS])
{
    w->n = 0;
    PUT(w, storage_head);
    put_number(w, f[NUMBER]);
    PUT(w, "tQ");
    put_number(w, f[OFFSET]);
    put_number(w, f[SIZE_0]);
    put_number(w, f[SIZE_1]);
    PUT(w, "\x86");
    put_number(w, f[STRIDE_0]);
    put_number(w, f[STRIDE_1]);
    PUT(w, "\x86\x89"
           "ccollections\nOrderedDict\n)RtRs.");
}

static int has_none(const int64_t f[FIELDS])
{
    return !f[SIZE_0] || !f[SIZE_1];
}

/* By numbers that do not wrap around. */
static int lies_in_its_storage(const int64_t f[FIELDS])
{
    for (int i = 0; i < FIELDS; i++)
        if (f[i] < 0)
            return 0;
    __int128 last = f[OFFSET], count = (__int128)f[SIZE_0] * f[SIZE_1];
    if (!count)
        return f[NUMBER] == FLOATS;
    last += (__int128)(f[SIZE_0] - 1) * f[STRIDE_0] + (__int128)(f[SIZE_1] - 1) * f[STRIDE_1];
    return f[NUMBER] == FLOATS && last < FLOATS && count <= INT64_MAX;
}

static void check_described(const struct swn_checkpoint *c, const int64_t f[FIELDS])
{
    assert_int_equal(c->tensor_count, 1);
    const struct swn_ckpt_tensor *t = &c->tensors[0];
    assert_int_equal(c->storages[t->storage].bytes, FLOATS * 4);
    assert_int_equal(t->ndim, 2);
    assert_true(t->shape[0] == f[SIZE_0] && t->shape[1] == f[SIZE_1]);
    assert_true(t->stride[0] == f[STRIDE_0] && t->stride[1] == f[STRIDE_1]);
    assert_int_equal(t->off, has_none(f) ? 0 : f[OFFSET] * 4);
}

/* 1: it is described. */
static int read_pickle(const int64_t f[FIELDS])
{
    static const char zeros[FLOATS * 4];
    struct writer w;
    struct archive a;
    struct reading r = {.n = 0};
    struct swn_checkpoint *c;
    char why[SWN_ERRMSG];
    put_pickle(&w, f);
    archive_begin(&a);
    archive_add(&a, "m/data.pkl", w.p, w.n);
    archive_add(&a, "m/data/0", zeros, sizeof zeros);
    archive_add(&a, "m/version", "3\n", 2);
    archive_finish(&a);
    int rc = read_bytes(&r, a.p, a.n, "x.pt", &c, why);
    /* One without elements may begin anywhere, as far as that can be said in bytes. */
    if (rc == 0 || !has_none(f))
        if ((rc == 0) != lies_in_its_storage(f))
            fail_msg("%lld elements, offset %lld, sizes %lld %lld, strides %lld %lld: %s", (long long)f[0],
                     (long long)f[1], (long long)f[2], (long long)f[3], (long long)f[4], (long long)f[5],
                     rc ? why : "is described");
    if (!rc) {
        check_described(c, f);
        swn_checkpoint_close(c, &r.io);
    }
    archive_free(&a);
    return !rc;
}

/* All combinations of five fields where the sixth is right, and of that one all values beside some of the others. */
static void in_pickles(void **state)
{
    (void)state;
    unsigned described = 0, all = 1, left = rounds_of(4); /* of four */
    for (unsigned i = 1; i < FIELDS; i++)
        all *= VALUES;
    for (unsigned n = 0; n < all; n++) {
        int64_t f[FIELDS] = {FLOATS};
        if (rnd_below(4) >= left)
            continue;
        for (unsigned i = 1, rest = n; i < FIELDS; i++, rest /= VALUES)
            f[i] = values[rest % VALUES];
        described += (unsigned)read_pickle(f);
        f[NUMBER] = values[n % VALUES];
        if (n % 7 == 0)
            described += (unsigned)read_pickle(f);
    }
    assert_true(described > 100 && described < all / 4);
}

/* Its bytes are the file's, no more and no less: whatever shape and place say otherwise is refused. */
static void in_safetensors(void **state)
{
    (void)state;
    unsigned described = 0;
    for (unsigned n = 0; n < VALUES * VALUES * VALUES * VALUES; n++) {
        int64_t f[4];
        char file[512], text[400], why[SWN_ERRMSG];
        struct reading r = {.n = 0};
        for (unsigned i = 0, rest = n; i < 4; i++, rest /= VALUES)
            f[i] = i == 3 && values[rest % VALUES] == FLOATS ? FLOATS * 4 : values[rest % VALUES];
        int len = snprintf(text, sizeof text,
                           "{\"w\":{\"dtype\":\"F32\",\"shape\":[%lld,%lld],\"data_offsets\":[%lld,%lld]}}",
                           (long long)f[0], (long long)f[1], (long long)f[2], (long long)f[3]);
        uint64_t header = (uint64_t)len;
        memset(file, 0, sizeof file);
        memcpy(file, &header, 8);
        memcpy(file + 8, text, header);
        int rc = read_bytes(&r, file, 8 + header + FLOATS * 4, "x.safetensors", NULL, why);
        int right = f[0] > 0 && f[1] > 0 && (__int128)f[0] * f[1] == FLOATS && f[2] == 0 && f[3] == FLOATS * 4;
        if ((rc == 0) != right)
            fail_msg("%s: %s", text, rc ? why : "is described");
        described += rc == 0;
    }
    assert_int_equal(described, 2); /* 1 by 6 and 6 by 1 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_pickles),
        cmocka_unit_test(in_safetensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
