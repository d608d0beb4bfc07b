/* Description: safetensors files that break a rule are refused by its name, those that keep them are read, sharded ones
 * too; memory stays within twice the header; failing reads are errors, never leaks. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/support/archive.h"

/* A file of that header and `data` bytes. `claimed`: what the first 8 bytes say, if it is not the header's length. */
static void make_file(struct archive *a, const char *header, size_t data, int64_t claimed)
{
    archive_begin(a);
    archive_number(a, claimed >= 0 ? (uint64_t)claimed : strlen(header), 8);
    archive_bytes(a, header, strlen(header));
    for (size_t i = 0; i < data; i++)
        archive_bytes(a, "d", 1);
}

#define T(name, dtype, shape, offsets)                                                                                 \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *header;
    size_t data;
    int64_t claimed; /* -1: the truth */
    const char *words;
} refused[] = {
    {"{}", 0, 100, "the file has 10"},
    {"{}", 0, 1, "the header's size is 1 bytes"},
    {"{}", 0, INT64_C(100000001), "above the limit of 100 MB"},
    {"{}", 0, INT64_MAX, "above the limit of 100 MB"},
    {" {}", 0, -1, "does not begin with '{'"},
    {"[]", 0, -1, "does not begin with '{'"},
    {"{}x", 0, -1, "something behind the end"},
    {"{}", 1, -1, "belong to no tensor"},
    {"{" T("a", "U8", "[2]", "[0,2]") "}", 3, -1, "1 bytes at the end belong to no tensor"},
    {"{" T("a", "U8", "[2]", "[0,2]") "}", 1, -1, "outside the file"},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("a", "U8", "[2]", "[2,4]") "}", 4, -1, "two tensors have the name 'a'"},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[3,5]") "}", 5, -1, "a hole in front of tensor 'b'"},
    {"{" T("a", "U8", "[2]", "[1,3]") "}", 3, -1, "a hole in front of tensor 'a'"},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[1,3]") "}", 3, -1, "an overlap"},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[0,2]") "}", 2, -1, "an overlap"},
    {"{" T("a", "U8", "[2]", "[2,0]") "}", 2, -1, "outside the file"},
    {"{" T("a", "U8", "[3]", "[0,2]") "}", 2, -1, "span 2 bytes, its shape needs 3"},
    {"{" T("a", "F32", "[1]", "[0,2]") "}", 2, -1, "span 2 bytes, its shape needs 4"},
    {"{" T("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, -1, "shape overflows"},
    {"{" T("a", "F64", "[4611686018427387904]", "[0,0]") "}", 0, -1, "shape overflows"},
    {"{" T("a", "F32", "[0,4294967296,4294967296]", "[0,0]") "}", 0, -1, "shape overflows"},
    {"{" T("a", "F32", "[-1]", "[0,4]") "}", 4, -1, "a whole number is missing"},
    {"{" T("a", "F32", "[1.0]", "[0,4]") "}", 4, -1, "',' or ']' is missing"},
    {"{" T("a", "F32", "[01]", "[0,4]") "}", 4, -1, "a whole number is missing"},
    {"{" T("a", "F32", "[18446744073709551617]", "[0,4]") "}", 4, -1, "a number is too large"},
    {"{" T("a", "F32", "[1,]", "[0,4]") "}", 4, -1, "a whole number is missing"},
    {"{" T("a", "F32", "[1]", "[0,4,4]") "}", 4, -1, "more than 2 numbers"},
    {"{" T("a", "F32", "[1]", "[0]") "}", 4, -1, "not two numbers"},
    {"{" T("a", "F33", "[1]", "[0,4]") "}", 4, -1, "F33 is not a known element type"},
    {"{" T("a", "none", "[1]", "[0,4]") "}", 4, -1, "not a known element type"},
    {"{" T("a", "F4", "[3]", "[0,1]") "}", 1, -1, "tensor 'a': the last dimension of F4 has to be a multiple of 2"},
    {"{" T("a", "F4", "[]", "[0,1]") "}", 1, -1, "the last dimension of F4 has to be a multiple of 2"},
    {"{" T("a", "F4", "[0,3]", "[0,0]") "}", 0, -1, "the last dimension of F4 has to be a multiple of 2"},
    {"{" T("a", "F4", "[2]", "[0,2]") "}", 2, -1, "span 2 bytes, its shape needs 1"},
    {"{" T("a", "F6_E2M3", "[4]", "[0,3]") "}", 3, -1, "less than a byte"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, -1,
     "'dtype' is there twice"},
    {"{\"a\":{\"shape\":[],\"data_offsets\":[0,1]}}", 1, -1, "is missing"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"more\":1}}", 1, -1, "'more' is not a known key"},
    {"{\"a\":{}}", 0, -1, "'\"' is missing"},
    {"{\"a\":1}", 0, -1, "'{' is missing"},
    {"{\"a\":{\"dtype\":{\"a\":{\"a\":{}}}}}", 0, -1, "'\"' is missing"},
    {"{\"__metadata__\":{\"k\":[[[[[[]]]]]]}}", 0, -1, "'\"' is missing"},
    {"{\"__metadata__\":{\"k\":\"v\",\"k\":\"w\"}}", 0, -1, "a key of '__metadata__' is there twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, -1, "'__metadata__' is there twice"},
    {"{\"__metadata__\":{\"k\":1}}", 0, -1, "'\"' is missing"},
    {"{" T("\xff", "U8", "[1]", "[0,1]") "}", 1, -1, "not UTF-8"},
    {"{" T("\xc0\x80", "U8", "[1]", "[0,1]") "}", 1, -1, "not UTF-8"},
    {"{" T("\xed\xa0\x80", "U8", "[1]", "[0,1]") "}", 1, -1, "not UTF-8"},
    {"{" T("a\nb", "U8", "[1]", "[0,1]") "}", 1, -1, "control character"},
    {"{" T("a\\u0000", "U8", "[1]", "[0,1]") "}", 1, -1, "a zero byte"},
    {"{" T("a\\ud800", "U8", "[1]", "[0,1]") "}", 1, -1, "escape is not valid"},
    {"{" T("a\\x41", "U8", "[1]", "[0,1]") "}", 1, -1, "escape is not valid"},
    {"{" T("a", "U8", "[1]", "[0,1]") ",}", 1, -1, "'\"' is missing"},
    {"{" T("a", "U8", "[1]", "[0,1]"), 1, -1, "',' or '}' is missing"},
    {"{\"a", 0, -1, "ends inside a text"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        struct archive a;
        make_file(&a, refused[i].header, refused[i].data, refused[i].claimed);
        assert_refused(a.p, a.n, "x.safetensors", -EINVAL, refused[i].words);
        archive_free(&a);
    }
    assert_refused("\2\0\0\0\0\0\0\0{", 9, "x.safetensors", -EINVAL, "too short");
}

/* 65 dimensions, a name of 5000 bytes. */
static void test_limits(void **state)
{
    char header[8192];
    struct archive a;
    (void)state;
    int n = snprintf(header, sizeof(header), "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[1");
    for (int i = 0; i < 64; i++)
        n += snprintf(header + n, sizeof(header) - (size_t)n, ",1");
    snprintf(header + n, sizeof(header) - (size_t)n, "]}}");
    make_file(&a, header, 1, -1);
    assert_refused(a.p, a.n, "x.safetensors", -EINVAL, "more than 64 numbers");
    archive_free(&a);
    snprintf(header, sizeof(header), "{\"%05000d\":{\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[]}}", 0);
    make_file(&a, header, 1, -1);
    assert_refused(a.p, a.n, "x.safetensors", -EINVAL, "longer than 4096 bytes");
    archive_free(&a);
}

static const char good[] = "{\"__metadata__\":{\"format\":\"pt\"}," T("w", "F32", "[2,3]", "[2,26]") "," T(
    "s", "BF16", "[]", "[0,2]") ",\n " T("e", "I64", "[4,0,2]", "[26,26]") "," T("n\\u00e9\\ud83d\\ude00", "BOOL",
                                                                                 "[1]", "[26,27]") "}   ";

static void test_accepted(void **state)
{
    struct reading r = {.n = 0};
    struct swn_checkpoint *c;
    struct swn_identity id;
    char why[SWN_ERRMSG];
    struct archive a;
    (void)state;
    make_file(&a, good, 27, -1);
    for (size_t limit = 0; limit < 4; limit++) {
        r.short_reads = limit;
        assert_int_equal(read_bytes(&r, a.p, a.n, "x.safetensors", &c, why), 0);
        assert_int_equal(c->kind, SWN_CKPT_SAFETENSORS);
        assert_int_equal(c->tensor_count, 4); /* in the header's order */
        assert_string_equal(c->tensors[0].name, "w");
        assert_int_equal(c->tensors[0].dtype, SWN_F32);
        assert_int_equal(c->tensors[0].stride[0], 3);
        assert_int_equal(c->storages[c->tensors[0].storage].off, sizeof(good) - 1 + 8 + 2);
        assert_int_equal(c->tensors[1].ndim, 0);
        assert_int_equal(c->tensors[2].stride[0], 2);
        assert_int_equal(c->storages[c->tensors[2].storage].bytes, 0);
        assert_string_equal(c->tensors[3].name, "n\xc3\xa9\xf0\x9f\x98\x80");
        for (size_t i = 0; i + 1 < c->storage_count; i++) /* in file order */
            assert_true(c->storages[i].off + c->storages[i].bytes <= c->storages[i + 1].off);
        assert_int_equal(swn_checkpoint_identity(&r.io, c->files[0].fd, &id, why), 0);
        assert_true(id.directory == c->files[0].identity.directory);
        swn_checkpoint_close(c, &r.io);
    }
    archive_free(&a);
    make_file(&a, "{}", 0, -1);
    assert_int_equal(read_bytes(&r, a.p, a.n, "x.safetensors", NULL, why), 0);
    archive_free(&a);
}

/* Two halves of a byte are one element of PyTorch's, so the last dimension is halved; the keys may come in any order.
 */
static void test_half_bytes(void **state)
{
    static const char header[] =
        "{" T("w", "F4", "[3,32]", "[0,48]") ","
                                             "\"v\":{\"data_offsets\":[48,49],\"shape\":[2],\"dtype\":\"F4\"}," T(
                                                 "e", "F4", "[2,0]", "[49,49]") "}";
    struct reading r = {.n = 0};
    struct swn_checkpoint *c;
    char why[SWN_ERRMSG];
    struct archive a;
    (void)state;
    make_file(&a, header, 49, -1);
    assert_int_equal(read_bytes(&r, a.p, a.n, "x.safetensors", &c, why), 0);
    assert_int_equal(c->tensor_count, 3);
    for (size_t i = 0; i < 3; i++) {
        static const int64_t last[] = {16, 1, 0}, bytes[] = {48, 1, 0};
        const struct swn_ckpt_tensor *t = &c->tensors[i];
        assert_int_equal(t->dtype, SWN_F4_E2M1FN_X2);
        assert_int_equal(t->shape[t->ndim - 1], last[i]);
        assert_int_equal(c->storages[t->storage].bytes, bytes[i]);
    }
    assert_int_equal(c->tensors[0].shape[0], 3);
    assert_int_equal(c->tensors[0].stride[0], 16);
    swn_checkpoint_close(c, &r.io);
    archive_free(&a);
}

static void test_faults(void **state)
{
    struct archive a;
    char why[SWN_ERRMSG];
    (void)state;
    make_file(&a, good, 27, -1);
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        for (size_t n = 1;; n++) {
            struct reading r = {.fail_at = n, .for_ever = for_ever, .err = -EIO};
            int rc = read_bytes(&r, a.p, a.n, "x.safetensors", NULL, why);
            if (r.calls < n) {
                assert_int_equal(rc, 0);
                assert_true(n > 5);
                break;
            }
            assert_int_equal(rc, -EIO);
        }
    }
    archive_free(&a);
}

/* A header of 10 MB, the usual one and one of the smallest entries there are: what is taken from the heap meanwhile. */
static void test_memory(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)state;
    skip(); /* the sanitizers' allocators do not count for mallinfo2 */
#else
    static const char *const entry[] = {
        "%s\"model.layers.%zu.self_attn.q_proj.weight\":{\"dtype\":\"F32\",\"shape\":[0,4096],\"data_offsets\":[0,0]}",
        "%s\"%zx\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
    };
    (void)state;
    for (size_t kind = 0; kind < 2; kind++) {
        const size_t room = 10u << 20;
        char *header = malloc(room + 200), why[SWN_ERRMSG], path[] = "/tmp/t_safetensors-XXXXXX";
        size_t n = 0;
        assert_non_null(header);
        for (size_t i = 0; n < room; i++)
            n += (size_t)sprintf(header + n, entry[kind], i ? "," : "{", i);
        header[n++] = '}';
        int fd = mkstemp(path);
        uint64_t size = n;
        assert_true(fd >= 0 && write(fd, &size, 8) == 8 && write(fd, header, n) == (ssize_t)n);
        unlink(path);
        free(header);
        struct swn_checkpoint *c;
        struct mallinfo2 before = mallinfo2();
        assert_int_equal(swn_checkpoint_open_fd(&c, &swn_io_sys, fd, "x.safetensors", why), 0);
        struct mallinfo2 after = mallinfo2();
        size_t used = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
        print_message("%zu tensors, header %zu bytes, kept %zu bytes\n", c->tensor_count, n, used);
        assert_true(used <= 2 * n);
        swn_checkpoint_close(c, &swn_io_sys);
        close(fd);
    }
#endif
}

/* --- shards --- */

static char dir[64];

static void write_file(const char *name, const void *p, size_t n)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, p, n) == (ssize_t)n);
    close(fd);
}

static void write_shard(const char *name, const char *header, size_t bytes)
{
    struct archive a;
    make_file(&a, header, bytes, -1);
    write_file(name, a.p, a.n);
    archive_free(&a);
}

static int open_index(const char *json, struct swn_checkpoint **c, char *why)
{
    char path[256];
    write_file("m.index.json", json, strlen(json));
    snprintf(path, sizeof(path), "%s/m.index.json", dir);
    return swn_checkpoint_open(c, &swn_io_sys, path, why);
}

static void test_shards(void **state)
{
    static const struct {
        const char *json, *words;
        int err;
    } bad[] = {
        {"{\"weight_map\":{\"a\":\"two\",\"c\":\"one\",\"x\":\"two\"}}",
         "no tensor 'x' in two, nor in another of its files", -EINVAL},
        {"{\"weight_map\":{\"b\":\"two\",\"a\":\"one\"}}", "'a' is in one and in two, and the index says one", -EINVAL},
        {"{\"weight_map\":{\"b\":\"two\",\"c\":\"one\"}}", "and in two, and the index does not say where", -EINVAL},
        {"{\"weight_map\":{\"a\":\"none\",\"c\":\"one\",\"b\":\"two\"}}", "and the index says none", -EINVAL},
        {"{\"weight_map\":{\"a\":\"nothing\"}}", "nothing: neither a zip archive", -EINVAL},
        {"{\"weight_map\":{\"a\":\"small\"}}", "tensor 'e': F6_E2M3 is an element type", -EINVAL},
        {"{\"weight_map\":{\"a\":\"../one\"}}", "not the name of a file beside", -EINVAL},
        {"{\"weight_map\":{\"a\":\"/one\"}}", "not the name of a file beside", -EINVAL},
        {"{\"weight_map\":{\"a\":\"..\"}}", "not the name of a file beside", -EINVAL},
        {"{\"weight_map\":{\"a\":\"\"}}", "not the name of a file beside", -EINVAL},
        {"{\"weight_map\":{\"a\":\"o\\u0000e\"}}", "not the name of a file beside", -EINVAL},
        {"{\"weight_map\":{\"a\":\"three\"}}", "three: No such file or directory; the index names it", -ENOENT},
        {"{\"weight_map\":{\"a\":\"one\",\"a\":\"two\"}}", "'a' is there twice", -EINVAL},
        {"{\"weight_map\":{\"a\":\"one\",\"w\":\"zip.pt\"}}", "several formats", -EINVAL},
        {"{\"weight_map\":{\"b\":\"two\",\"d\":\"two again\"}}", "two and two again are one file under two names",
         -EINVAL},
        {"{\"weight_map\":{\"b\":\"link\",\"d\":\"two\"}}", "link and two are one file under two names", -EINVAL},
        {"{\"weight_map\":{}}", "is empty", -EINVAL},
        {"{\"metadata\":{}}", "has no weight_map", -EINVAL},
        {"{\"weight_map\":{\"a\":\"one\"},\"weight_map\":{\"a\":\"one\"}}", "'weight_map' is there twice", -EINVAL},
        {"{\"weight_map\":{\"a\":\"one\"}} x", "something behind", -EINVAL},
        {"{\"metadata\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "nested more than", -EINVAL},
        {"{\"metadata\":1.2.3,\"weight_map\":{\"a\":\"one\"}}", "a value is not valid", -EINVAL},
        {"{\"weight_map\":{\"a\":\".\"}}", "not the name of a file beside", -EINVAL},
        {"[]", "'{' is missing", -EINVAL},
    };
    struct archive a;
    struct swn_checkpoint *c;
    char why[SWN_ERRMSG];
    (void)state;
    strcpy(dir, "/tmp/t_safetensors-XXXXXX");
    assert_non_null(mkdtemp(dir));
    write_shard("one", "{" T("a", "U8", "[1]", "[0,1]") "," T("c", "U8", "[2]", "[1,3]") "}", 3);
    write_shard("two",
                "{" T("b", "U8", "[2]", "[0,2]") "," T("a", "U8", "[2]", "[2,4]") "," T("d", "U8", "[1]", "[4,5]") "}",
                5);
    archive_small(&a);
    archive_finish(&a);
    write_file("zip.pt", a.p, a.n);
    archive_free(&a);
    write_shard("none", "{}", 0);
    write_shard("small", "{" T("e", "F6_E2M3", "[4]", "[0,3]") "}", 3);
    write_file("nothing", "", 0);
    char path[256], again[256];
    snprintf(path, sizeof(path), "%s/two", dir);
    snprintf(again, sizeof(again), "%s/two again", dir);
    assert_int_equal(link(path, again), 0);
    snprintf(again, sizeof(again), "%s/link", dir);
    assert_int_equal(symlink("two", again), 0);
    /* All that is in the files, by the last that has it: `d`, which the map does not know, `c`, which is elsewhere, and
     * two's `a`, where the map says so. */
    static const char *const accepted[] = {
        "{\"metadata\":{\"total_size\":-1.5e3,\"l\":[true,null,{}]},"
        "\"weight_map\":{\"b\":\"two\",\"a\":\"two\",\"c\":\"one\"}}",
        "{\"weight_map\":{\"b\":\"one\",\"a\":\"two\",\"c\":\"none\"}}",
    };
    for (size_t j = 0; j < 2; j++) {
        assert_int_equal(open_index(accepted[j], &c, why), 0);
        assert_int_equal(c->file_count, 2 + j);
        assert_int_equal(c->tensor_count, 4);
        assert_int_equal(c->storage_count, 4);
        static const char *const names[] = {"c", "b", "a", "d"};
        for (size_t i = 0; i < 4; i++) {
            assert_string_equal(c->tensors[i].name, names[i]);
            const char *file = c->files[c->storages[c->tensors[i].storage].file].path;
            assert_string_equal(strrchr(file, '/'), i ? "/two" : "/one");
        }
        assert_int_equal(c->tensors[2].shape[0], 2);
        swn_checkpoint_close(c, &swn_io_sys);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        int rc = open_index(bad[i].json, &c, why);
        if (rc != bad[i].err || !strstr(why, bad[i].words))
            fail_msg("wanted %d and '%s', got %d and '%s'", bad[i].err, bad[i].words, rc, why);
    }
    static const char *const files[] = {"one",  "two",     "two again", "link",        "zip.pt",
                                        "none", "nothing", "small",     "m.index.json"};
    assert_int_equal(swn_checkpoint_open(&c, &swn_io_sys, dir, why), -EINVAL);
    assert_non_null(strstr(why, "not a regular file"));
    /* nobody writes to it: a reader that opened it as a file would wait for ever */
    snprintf(path, sizeof(path), "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(20);
    assert_int_equal(swn_checkpoint_open(&c, &swn_io_sys, path, why), -EINVAL);
    assert_non_null(strstr(why, "not a regular file"));
    assert_int_equal(open_index("{\"weight_map\":{\"a\":\"fifo\"}}", &c, why), -EINVAL);
    assert_non_null(strstr(why, "fifo: not a regular file"));
    alarm(0);
    unlink(path);
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
        unlink(path);
    }
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_limits), cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_half_bytes), cmocka_unit_test(test_faults), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
