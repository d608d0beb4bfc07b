/* Description: a reader that needs places only finds the records for tensors in every archive, whatever is pickled in
 * it; what a description names, it finds once; and the reader for others still refuses what cannot be described. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/archive.h"

/* Entries 1 and 2 are to be found, in that order, as bytes. */
static void assert_both(const struct archive *a, const char *first, const char *second)
{
    struct swn_checkpoint *c;
    char why[SWN_ERRMSG];
    const char *const names[] = {first, second};
    if (read_places(a->p, a->n, &c, why))
        fail_msg("refused: %s", why);
    assert_int_equal(c->kind, SWN_CKPT_RECORDS);
    assert_int_equal(c->storage_count, 2);
    assert_int_equal(c->tensor_count, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct swn_ckpt_storage *s = &c->storages[i];
        const struct swn_ckpt_tensor *t = &c->tensors[i];
        assert_string_equal(s->name, names[i]);
        assert_string_equal(t->name, names[i]);
        assert_int_equal(s->off, a->e[i + 1].data);
        assert_int_equal(s->bytes, a->e[i + 1].bytes);
        assert_int_equal(t->dtype, SWN_U8);
        assert_int_equal(t->ndim, 1);
        assert_int_equal(t->shape[0], s->bytes);
        assert_int_equal(t->stride[0], 1);
        assert_int_equal(t->storage, i);
        assert_int_equal(t->off, 0);
    }
    swn_checkpoint_close(c, &swn_io_sys);
}

/* Code, objects, another protocol, no pickle at all, an unknown version. */
static void test_any_pickle(void **state)
{
    static const struct {
        const char *pickle;
        size_t bytes;
        const char *version, *words;
        int err;
    } cases[] = {
        {"\x80\x02"
         "cargparse\nNamespace\n)\x81.",
         25, "3\n", "argparse.Namespace, which is code", -EINVAL},
        {"\x80\x04\x95\0\0\0\0\0\0\0\0N.", 13, "3\n", "pickle protocol 4", -ENOTSUP},
        {"\x80\x02"
         "ccollections\ndefaultdict\n.",
         28, "3\n", "collections.defaultdict", -EINVAL},
        {"", 0, "3\n", "ends inside an opcode", -EINVAL},
        {"\x80\x02N.", 4, "11\n", "newer than this swapnet", -ENOTSUP},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct archive a;
        archive_begin(&a);
        archive_add(&a, "m/data.pkl", cases[i].pickle, cases[i].bytes);
        archive_add(&a, "m/data/0", "12345678", 8);
        archive_add(&a, "m/data/10", "123", 3);
        archive_add(&a, "m/version", cases[i].version, strlen(cases[i].version));
        archive_finish(&a);
        assert_refused(a.p, a.n, "x.pt", cases[i].err, cases[i].words);
        assert_both(&a, "data/0", "data/10");
        archive_free(&a);
    }
}

static void test_exported_program(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        struct archive a;
        archive_begin(&a);
        archive_add(&a, "m/models/model.json", "{}", 2);
        archive_add(&a, "m/data/weights/weight_0", "12345678", 8);
        archive_add(&a, "m/data/constants/tensor_0", "123", 3);
        archive_add(&a, "m/data/weights/weight_1", NULL, 0);
        archive_add(&a, "m/data/weights/model_weights_config.json", "{}", 2);
        archive_add(&a, "m/data/aotinductor/model/model.so",
                    "\x7f"
                    "ELF",
                    4);
        archive_add(&a, "m/data/sample_inputs/model.pt", "PK", 2);
        archive_add(&a, "m/extra/data/0", "x", 1);
        archive_add(&a, "m/archive_format", "pt2", 3);
        archive_add(&a, "m/.data/version", "6\n", 2);
        (wide ? archive_finish64 : archive_finish)(&a);
        assert_refused(a.p, a.n, "x.pt2", -EINVAL, "no entry 'data.pkl'");
        assert_both(&a, "data/weights/weight_0", "data/constants/tensor_0");
        archive_free(&a);
    }
}

/* A described tensor keeps its name and type; a record that no tensor uses follows. */
static void test_described(void **state)
{
    struct archive a;
    struct swn_checkpoint *c;
    struct reading r = {.n = 0};
    char why[SWN_ERRMSG];
    (void)state;
    archive_small(&a);
    archive_add(&a, "m/data/1", "1234", 4);
    archive_finish(&a);
    assert_int_equal(read_places(a.p, a.n, &c, why), 0);
    assert_int_equal(c->kind, SWN_CKPT_TORCH);
    assert_int_equal(c->storage_count, 2);
    assert_int_equal(c->tensor_count, 2);
    assert_string_equal(c->tensors[0].name, "w");
    assert_int_equal(c->tensors[0].dtype, SWN_F32);
    assert_string_equal(c->tensors[1].name, "data/1");
    assert_int_equal(c->storages[1].off, a.e[3].data);
    swn_checkpoint_close(c, &swn_io_sys);
    assert_int_equal(read_bytes(&r, a.p, a.n, "x.pt", &c, why), 0);
    assert_int_equal(c->tensor_count, 1);
    swn_checkpoint_close(c, &r.io);
    archive_free(&a);
}

/* A compressed record is left out, with those beside it found. */
static void test_compressed(void **state)
{
    struct archive a;
    struct swn_checkpoint *c;
    char why[SWN_ERRMSG];
    (void)state;
    archive_begin(&a);
    archive_add(&a, "m/data.pkl", "\x80\x04N.", 4);
    archive_add(&a, "m/data/0", "12345678", 8);
    archive_add(&a, "m/data/1", "123", 3);
    archive_finish(&a);
    archive_set(&a, a.e[1].central + 10, 8, 2);
    archive_set(&a, a.e[1].local + 8, 8, 2);
    assert_int_equal(read_places(a.p, a.n, &c, why), 0);
    assert_int_equal(c->storage_count, 1);
    assert_string_equal(c->storages[0].name, "data/1");
    assert_int_equal(c->storages[0].off, a.e[2].data);
    swn_checkpoint_close(c, &swn_io_sys);
    archive_free(&a);
}

/* Without a record there is nothing to refer to, and the reader says what it says to others. */
static void test_no_record(void **state)
{
    struct archive a;
    struct swn_checkpoint *c;
    char why[SWN_ERRMSG];
    (void)state;
    archive_begin(&a);
    archive_add(&a, "m/word/document.xml", "<w/>", 4);
    archive_finish(&a);
    assert_int_equal(read_places(a.p, a.n, &c, why), -EINVAL);
    assert_non_null(strstr(why, "no entry 'data.pkl'"));
    archive_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_pickle), cmocka_unit_test(test_exported_program), cmocka_unit_test(test_described),
        cmocka_unit_test(test_compressed), cmocka_unit_test(test_no_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
