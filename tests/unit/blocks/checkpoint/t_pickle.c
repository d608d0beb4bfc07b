/* Description: pickles that name code, lie about tensors or are built to exhaust a reader are refused, with words that
 * say so; nothing is ever called. What torch.save writes becomes tensors by name. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/archive.h"
#include "base/bump_alloc.h"
#include "blocks/checkpoint/pickle.h"

#define P "\x80\x02"
#define S(n, text) "X" n "\0\0\0" text
#define STORAGE(class, numel) "(" S("\x07", "storage") class S("\x01", "0") S("\x03", "cpu") numel "tQ"
#define FLOATS "ctorch\nFloatStorage\n"
#define V1 "ctorch._utils\n_rebuild_tensor\n"
#define V2 "ctorch._utils\n_rebuild_tensor_v2\n"
#define V3 "ctorch._utils\n_rebuild_tensor_v3\n"
#define HOOKS "ccollections\nOrderedDict\n)R"
/* data/0 has 8 bytes: two floats */
#define TENSOR_AT(offset, size, stride) V2 "(" STORAGE(FLOATS, "K\x02") offset size stride "\x89" HOOKS "tR"
#define TENSOR TENSOR_AT("K\0", "K\x02\x85", "K\x01\x85")

struct text {
    const char *p;
    size_t n;
    const char *words; /* of the refusal, or NULL: accepted */
    int err;
};
#define REFUSED(p, words)                                                                                              \
    {                                                                                                                  \
        p, sizeof(p) - 1, words, -EINVAL                                                                               \
    }

/* An archive around the pickle. */
static void wrap(struct archive *a, const void *pickle, size_t n, int torchscript)
{
    archive_begin(a);
    archive_add(a, "m/data.pkl", pickle, n);
    archive_add(a, "m/data/0", "\0\0\x80\x3f\0\0\0\x40", 8);
    archive_add(a, "m/version", "3\n", 2);
    if (torchscript)
        archive_add(a, "m/constants.pkl", P ").", 4);
    archive_finish(a);
}

static const struct text cases[] = {
    /* code */
    REFUSED(P "cos\nsystem\n" S("\x02", "id") "\x85R.", "refers to os.system"),
    REFUSED(P "cposix\nsystem\n.", "refers to posix.system"),
    REFUSED(P "c__builtin__\neval\n(" S("\x01", "1") "tR.", "refers to __builtin__.eval"),
    REFUSED(P "cbuiltins\nexec\n.", "torch.save(model.state_dict(), PATH)"),
    REFUSED(P "ctorch.nn.modules.linear\nLinear\n)\x81.", "refers to torch.nn.modules.linear.Linear"),
    REFUSED(P "c\xff\xc3\nsys\xe2\x82\n.", "refers to ??.sys??"),
    REFUSED(P "c__torch__\nM\n)\x81.", "refers to __torch__.M"),
    REFUSED(P "ctorch.storage\n_load_from_bytes\n.", "refers to torch.storage._load_from_bytes"),
    REFUSED(P "ctorch._utils\n_rebuild_tensor_v2.__globals__\n.", "which is code"),
    REFUSED(P "cos\\system\n.", "ends inside an opcode"),
    REFUSED(P "c"
              "\n\n.",
            "which is code"),
    REFUSED(P S("\x02", "os") S("\x06", "system") "\x93.", "opcode 0x93"),
    REFUSED(P "(ios\nsystem\n.", "opcode 0x69"),
    REFUSED(P "(cos\nsystem\no.", "refers to os.system"),
    REFUSED(P "(o.", "opcode 0x6f"),
    REFUSED(P "\x82\x01.", "opcode 0x82"),
    REFUSED(P "\x83\x01\0.", "opcode 0x83"),
    REFUSED(P "\x84\x01\0\0\0.", "opcode 0x84"),
    REFUSED(P "Pid\n.", "opcode 0x50"),
    REFUSED(P "(dI1\n.", "opcode 0x64"),
    REFUSED(P "ccollections\nOrderedDict\n}R.", "without a tuple of arguments"),
    REFUSED(P "K\x01)R.", "not a function"),
    REFUSED(P FLOATS ")R.", "which is not a function"),
    REFUSED(P "ctorch\nTensor\n)\x81.", "makes an object of torch.Tensor"),
    REFUSED(P TENSOR "}b.", "a tensor's is never set"),
    REFUSED(P "}}b.", "has none"),
    REFUSED(P HOOKS "Nb.", "has none"),
    /* tensors that lie */
    REFUSED(P TENSOR_AT("K\x01", "K\x02\x85", "K\x01\x85") ".", "beyond the end of its storage"),
    REFUSED(P TENSOR_AT("K\0", "K\x03\x85", "K\x01\x85") ".", "beyond the end of its storage"),
    REFUSED(P TENSOR_AT("K\0", "K\x02\x85", "K\x02\x85") ".", "beyond the end of its storage"),
    REFUSED(P TENSOR_AT("J\xff\xff\xff\xff", "K\x02\x85", "K\x01\x85") ".", "wrong arguments"),
    REFUSED(P TENSOR_AT("K\0", "J\xff\xff\xff\xff\x85", "K\x01\x85") ".", "negative"),
    REFUSED(P TENSOR_AT("K\0", "K\x02\x85", "J\xff\xff\xff\xff\x85") ".", "negative"),
    REFUSED(P TENSOR_AT("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", "K\x01\x85", "K\x01\x85") ".", "offset overflows"),
    REFUSED(P TENSOR_AT("K\0", "\x8a\x05\0\0\0\0\x01\x8a\x05\0\0\0\0\x01\x86", "K\0K\0\x86") ".", "sizes overflow"),
    REFUSED(P TENSOR_AT("K\0", "K\x02\x85", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85") ".", "sizes overflow"),
    REFUSED(P TENSOR_AT("K\0", "\x8a\x09\0\0\0\0\0\0\0\0\x01\x85", "K\x01\x85") ".", "not an integer"),
    REFUSED(P TENSOR_AT("K\0", "K\x01K\x02\x86", "K\x01\x85") ".", "the same length"),
    REFUSED(P TENSOR_AT("K\0", "\x88\x85", "K\x01\x85") ".", "not an integer"),
    REFUSED(P TENSOR_AT("K\0", "]", "K\x01\x85") ".", "not tuples"),
    REFUSED(P V2 "(" STORAGE(FLOATS, "K\x02") "tR.", "wrong arguments"),
    REFUSED(P V2 "(" STORAGE(FLOATS, "K\x02") "K\0K\x02\x85K\x01\x85K\0" HOOKS "tR.", "wrong arguments"),
    REFUSED(P V2 "(" STORAGE(FLOATS, "K\x02") "K\0K\x02\x85K\x01\x85\x89}K\0K\0stR.", "wrong arguments"),
    REFUSED(P V2 "(" STORAGE("ctorch\nLongStorage\n", "K\x01") "K\0K\x01\x85K\x01\x85\x88" HOOKS "tR.",
            "wrong arguments"),
    REFUSED(P V2 "(" STORAGE("ctorch\nQInt8Storage\n", "K\x08") "K\0K\x01\x85K\x01\x85\x89" HOOKS "tR.",
            "wrong arguments"),
    REFUSED(P V3 "(" STORAGE("ctorch.storage\nUntypedStorage\n", "K\x08") "K\0K\x01\x85K\x01\x85\x89" HOOKS FLOATS
                                                                          "tR.",
            "wrong arguments"),
    REFUSED(P V3 "(" STORAGE("ctorch.storage\nUntypedStorage\n", "K\x08") "K\0K\x05\x85K\x01\x85\x89" HOOKS
                                                                          "ctorch\nuint16\ntR.",
            "beyond the end"),
    REFUSED(P STORAGE(FLOATS, "K\x03") ".", "has 8 bytes, the pickle says 12"),
    REFUSED(P STORAGE(FLOATS, "J\xff\xff\xff\xff") ".", "not a storage's"),
    REFUSED(P STORAGE(FLOATS, "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f") ".", "size overflows"),
    REFUSED(P STORAGE("ctorch\nTensor\n", "K\x02") ".", "not a storage's"),
    REFUSED(P "(" S("\x06", "module") FLOATS S("\x01", "0") S("\x03", "cpu") "K\x02tQ.", "not a storage's"),
    REFUSED(P S("\x01", "0") "Q.", "not a storage's"),
    REFUSED(P "(" S("\x07", "storage") FLOATS S("\x01", "1") S("\x03", "cpu") "K\x02tQ.",
            "data/1 is not in the archive"),
    REFUSED(P "(" S("\x07", "storage") FLOATS S("\x09", "../data/0") S("\x03", "cpu") "K\x02tQ.", "not in the archive"),
    REFUSED(P "(" S("\x07", "storage") FLOATS S("\0", "") S("\x03", "cpu") "K\x02tQ.", "key is empty"),
    REFUSED(P STORAGE(FLOATS, "K\x02") STORAGE("ctorch\nIntStorage\n", "K\x02") "\x86.", "has two types"),
    REFUSED(P "ctorch._utils\n_rebuild_parameter_with_state\n(" TENSOR "\x89" HOOKS "}" S("\x04", "data") TENSOR "stR.",
            "sets more than attributes"),
    REFUSED(P "ctorch._utils\n_rebuild_parameter_with_state\n(" TENSOR "\x89" HOOKS "}" S("\x09", "__class__") "NstR.",
            "sets more than attributes"),
    REFUSED(P "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._tensor\n_rebuild_from_type_v2\nctorch\nTensor\n)}tR.",
            "wrong arguments"),
    REFUSED(P "ctorch._tensor\n_rebuild_from_type_v2\n(ccollections\nOrderedDict\nctorch\nTensor\n)}tR.",
            "wrong arguments"),
    REFUSED(P "ctorch\nSize\n(K\x01N\x86tR.", "wrong arguments"),
    REFUSED(P "ctorch\nSize\n)R.", "wrong arguments"),
    REFUSED(P "ctorch\ndevice\n" S("\x03", "gpu") "\x85R.", "wrong arguments"),
    /* the machine itself */
    REFUSED("\x80\x02", "ends inside an opcode"),
    REFUSED("\x80", "ends inside an opcode"),
    REFUSED("}q\0.", "not a pickle that torch.save writes"),
    REFUSED(P ".", "ends with 0 values"),
    REFUSED(P "NN.", "ends with 2 values"),
    REFUSED(P "(N.", "ends with"),
    REFUSED(P "N.N", "bytes behind the end"),
    REFUSED(P "X\xff\xff\xff\x7f.", "ends inside an opcode"),
    REFUSED(P "X\xff\xff\xff\xff.", "ends inside an opcode"),
    REFUSED(P S("\x01", "\xff") ".", "not UTF-8"),
    REFUSED(P "Nr\xff\xff\xff\x7f.", "memo entry 2147483647 comes before entry 0"),
    REFUSED(P "h\0.", "memo entry 0 does not exist"),
    REFUSED(P "q\0.", "takes more from the stack"),
    REFUSED(P "t.", "there is no mark"),
    REFUSED(P "N(\x85.", "takes more from the stack"), /* what lies below a mark is out of reach */
    REFUSED(P "](Na.", "takes more from the stack"),
    REFUSED(P "}Na.", "not a list"),
    REFUSED(P "]NNs.", "not a dict"),
    REFUSED(P "}(Nu.", "a key has no value"),
    REFUSED(P "}]Ns.", "a dict key is neither"),
    REFUSED(P "}" TENSOR "Ns.", "a dict key is neither"),
    REFUSED(P "}]\x85Ns.", "a dict key is neither"),
    /* names */
    REFUSED(P "}(" S("\x01", "a") TENSOR S("\x01", "a") "Nu.", "has a key twice"),
    REFUSED(P "}(K\x01" TENSOR "\x88" TENSOR "u.", "has a key twice"), /* True is 1 */
    REFUSED(P "}(K\x01" TENSOR S("\x01", "1") TENSOR "u.", "two tensors have the name '1'"),
    REFUSED(P "}N" TENSOR "s.", "neither texts nor integers"),
    REFUSED(P "}" S("\x01", "\0") TENSOR "s.", "a name has a zero byte"),
    {"\x80\x04\x95\0\0\0\0\0\0\0\0N.", 13, "pickle protocol 4", -ENOTSUP},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct archive a;
        wrap(&a, cases[i].p, cases[i].n, 0);
        assert_refused(a.p, a.n, "x.pt", cases[i].err, cases[i].words);
        archive_free(&a);
    }
}

/* Reads a pickle inside an archive; the names of its tensors, each with its first byte's offset in the storage, or why
 * not. */
static char *names_of(const void *pickle, size_t n, int torchscript)
{
    static char out[8192];
    struct reading r = {.n = 0};
    struct swn_checkpoint *c;
    char why[SWN_ERRMSG];
    struct archive a;
    size_t len = 0;
    wrap(&a, pickle, n, torchscript);
    if (read_bytes(&r, a.p, a.n, "x.pt", &c, why)) {
        snprintf(out, sizeof(out), "%s", why);
    } else {
        out[0] = 0;
        for (size_t i = 0; i < c->tensor_count; i++)
            len += (size_t)snprintf(out + len, sizeof(out) - len, "%s@%d ", c->tensors[i].name, (int)c->tensors[i].off);
        if (c->skipped_count)
            snprintf(out + len, sizeof(out) - len, "skipped %d, %s", (int)c->skipped_count, c->skipped);
        swn_checkpoint_close(c, &r.io);
    }
    archive_free(&a);
    return out;
}
#define NAMES(p) names_of(p, sizeof(p) - 1, 0)
#define SCRIPT_NAMES(p) names_of(p, sizeof(p) - 1, 1)

/* clang-format off: what belongs together in a pickle is on one line */
#define KEY(k) S("\x01", k)
static void test_names(void **state)
{
    (void)state;
    assert_string_equal(NAMES(P TENSOR "."), "tensor@0 ");
    assert_string_equal(NAMES(P "}(" KEY("a") "](" TENSOR_AT("K\x01", "K\x01\x85", "K\x01\x85") "N" TENSOR "e"
                                                                                                "K\x05" TENSOR "u."),
                        "a.0@4 a.2@0 5@0 ");
    /* shared: both names; a container inside itself: once */
    assert_string_equal(NAMES(P "}q\0(" KEY("a") TENSOR "q\x01" KEY("b") "h\x01" KEY("c") "h\0u."), "a@0 b@0 ");
    assert_string_equal(NAMES(P "}(" KEY("m") "}" KEY("w") TENSOR "sq\0" KEY("e") "h\0u."), "m.w@0 e.w@0 ");
    /* what else is in checkpoints: _metadata, sizes, dtypes, devices, sets, bytes, long numbers, floats, counters */
    assert_string_equal(NAMES(P HOOKS KEY("w") TENSOR "s}" S("\x09", "_metadata") HOOKS "sb."), "w@0 ");
    assert_string_equal(
        NAMES(P "}(" KEY("a") "ctorch\nSize\n(K\x01K\x02tq\0\x85R" KEY("b") "ctorch\nfloat16\n" KEY(
            "c") "ctorch\ndevice\n" S("\x04",
                                      "cuda") "K\x01\x86R" KEY("d") "c__builtin__\nset\n](K\x01K\x02"
                                                                    "e\x85R" KEY("e") "c_codecs\nencode\n" S("\x02",
                                                                                                             "\xc3\xbf")
                                                                        S("\x06", "latin1") "\x86R" KEY(
                                                                            "f") "\x8a\x09\0\0\0"
                                                                                 "\0\0\0\0\0"
                                                                                 "\x01" KEY("g") "G\0\0\0\0\0\0\0"
                                                                                                 "\0" KEY(
                                                                                                     "h") "ccolle"
                                                                                                          "ctions"
                                                                                                          "\nCoun"
                                                                                                          "ter\n}"
                                                                                                          "K\x01K"
                                                                                                          "\x02s"
                                                                                                          "\x85"
                                                                                                          "R" KEY("w")
                                                                                                              TENSOR
              "u."),
        "w@0 ");
    /* parameters, with attributes and without; the older and the newer way to write a tensor */
    assert_string_equal(NAMES(P "ctorch._utils\n_rebuild_parameter\n" TENSOR "\x88" HOOKS "\x87R."), "tensor@0 ");
    assert_string_equal(
        NAMES(P "ctorch._utils\n_rebuild_parameter_with_state\n(" TENSOR "\x88" HOOKS "}" S("\x03", "tag") "NstR."),
        "tensor@0 ");
    assert_string_equal(NAMES(P "ctorch._tensor\n_rebuild_from_type_v2\n(" V2 "ctorch\nTensor\n"
                                "(" STORAGE(FLOATS, "K\x02") "K\0K\x02\x85K\x01\x85\x89" HOOKS "t}tR."),
                        "tensor@0 ");
    assert_string_equal(NAMES(P V1 "(" STORAGE(FLOATS, "K\x02") "K\x01))tR."), "tensor@4 ");
    assert_string_equal(NAMES(P V3 "(" STORAGE("ctorch.storage\nUntypedStorage\n",
                                               "K\x08") "K\x03K\x01\x85K\x01\x85\x89" HOOKS "ctorch\nuint16\ntR."),
                        "tensor@6 ");
    /* empty views may begin anywhere, but say 0; stride 0 */
    assert_string_equal(NAMES(P TENSOR_AT("M\xff\xff", "K\0\x85", "K\x01\x85") "."), "tensor@0 ");
    assert_string_equal(NAMES(P TENSOR_AT("K\x01", "M\xff\xff\x85", "K\0\x85") "."), "tensor@4 ");
}

static void test_skipped(void **state)
{
    (void)state;
    assert_string_equal(
        NAMES(P "}(" KEY(
            "m") "ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\nK\x02\x85K\x01\x85\x89tR" KEY("w")
                  TENSOR "u."),
        "w@0 skipped 1, m: a meta tensor, which has no bytes");
    assert_string_equal(NAMES(P "]" STORAGE(FLOATS, "K\x02") "a."), "skipped 1, 0: a storage without a tensor");
    assert_string_equal(NAMES(P "ctorch._utils\n_rebuild_qtensor\n(" STORAGE(
                            "ctorch\nQInt8Storage\n",
                            "K\x08") "K\0K\x08\x85K\x01\x85"
                                     "ctorch\nper_tensor_affine\nG\x3f\xf0\0\0\0\0\0\0K\0\x87\x89" HOOKS "tR."),
                        "skipped 1, tensor: a quantized tensor");
    assert_string_equal(NAMES(P "ctorch._utils\n_rebuild_sparse_tensor\nctorch.serialization\n_get_layout\n" S(
                            "\x10", "torch.sparse_coo") "\x85R" TENSOR TENSOR "K\x02\x85\x87\x86R."),
                        "skipped 1, tensor: a sparse tensor");
    assert_string_equal(NAMES(P V2
                              "(" STORAGE("ctorch\nComplexFloatStorage\n", "K\x01") "K\0K\x01\x85K\x01\x85\x89" HOOKS
                                                                                    "}" S("\x04", "conj") "\x88stR."),
                        "skipped 1, tensor: a view with a pending conjugation or negation");
    assert_string_equal(NAMES(P "ctorch._utils\n_rebuild_nested_tensor\n(" TENSOR TENSOR TENSOR TENSOR "tR."),
                        "skipped 1, tensor: a nested tensor");
    assert_string_equal(
        NAMES(P "ctorch._utils\n_rebuild_wrapper_subclass\n(ctorch\nTensor\nctorch\nfloat32\nK\x02\x85K\x01"
                "\x85K\0NN\x89tR."),
        "skipped 1, tensor: a tensor of a class that wraps others");
    assert_string_equal(NAMES(P "ctorch._utils\n_rebuild_device_tensor_from_cpu_tensor\n(" TENSOR
                                "ctorch\nfloat32\n" S("\x03", "cpu") "\x89tR."),
                        "skipped 1, tensor: a tensor to be made on a device");
}

/* A tensor's attributes are not kept: where these are tensors, or hold some, the store would lack them. */
static void test_tensor_with_tensors_for_attributes_is_reported(void **state)
{
    (void)state;
    static const char lost[] = "w@0 skipped 1, t: a tensor with tensors for attributes";
#define WITH(attribute)                                                                                                \
    NAMES(P "}(" KEY("t") "ctorch._tensor\n_rebuild_from_type_v2\n(" V2 "ctorch\nTensor\n"                             \
                          "(" STORAGE(FLOATS, "K\x02") "K\0K\x02\x85K\x01\x85\x89" HOOKS "t}" S("\x01", "a") attribute \
          "stR" KEY("w") TENSOR "u.")
    assert_string_equal(WITH(TENSOR), lost);
    assert_string_equal(WITH("](K\x01" TENSOR "e"), lost);
    assert_string_equal(WITH("}" S("\x01", "b") TENSOR "\x85s"), lost);
    assert_string_equal(WITH("]]]]]]]]]]]]]]]]]]]]aaaaaaaaaaaaaaaaaaa"), lost); /* too deep to tell */
    assert_string_equal(WITH("](K\x01" S("\x01", "x") "e"), "t@0 w@0 ");
    assert_string_equal(NAMES(P "}(" KEY("t") "ctorch._utils\n_rebuild_parameter_with_state\n(" TENSOR "\x88" HOOKS
                                              "}" S("\x01", "a") TENSOR "stR" KEY("w") TENSOR "u."),
                        lost);
}

/* What is not described is held to its arguments all the same. */
static void test_skipped_of_wrong_arguments(void **state)
{
    (void)state;
    static const char wrong[] = "wrong arguments";
    assert_non_null(strstr(NAMES(P "ctorch._utils\n_rebuild_meta_tensor_no_storage\n(NNNNtR."), wrong));
    assert_non_null(strstr(
        NAMES(P "ctorch._utils\n_rebuild_qtensor\n(" STORAGE("ctorch\nQInt8Storage\n", "K\x08") "NNNNNNtR."), wrong));
    assert_non_null(
        strstr(NAMES(P "ctorch._utils\n_rebuild_qtensor\n(" STORAGE(
                   FLOATS, "K\x02") "K\0K\x02\x85K\x01\x85"
                                    "ctorch\nper_tensor_affine\nG\x3f\xf0\0\0\0\0\0\0K\0\x87\x89" HOOKS "tR."),
               wrong));
    assert_non_null(strstr(NAMES(P "ctorch._utils\n_rebuild_sparse_tensor\nctorch.serialization\n_get_layout\n" S(
                               "\x10", "torch.sparse_coo") "\x85R)\x86R."),
                           wrong));
    assert_non_null(strstr(
        NAMES(P "ctorch._utils\n_rebuild_wrapper_subclass\n(ctorch\nTensor\nctorch\nfloat32\nNNNNNNtR."), wrong));
    /* of a tensor that has no complex numbers, even that it is not conjugated */
    assert_non_null(strstr(
        NAMES(P V2 "(" STORAGE(FLOATS, "K\x02") "K\0K\x02\x85K\x01\x85\x89" HOOKS "}" S("\x04", "conj") "\x89stR."),
        "conjugated"));
    /* PyTorch may not put a storage into a leaf that requires a gradient */
    assert_non_null(
        strstr(NAMES(P V3 "(" STORAGE("ctorch.storage\nUntypedStorage\n", "K\x08") "K\0K\x01\x85K\x01\x85\x88" HOOKS
                                                                                   "ctorch\nfloat8_e5m2\ntR."),
               "gradient"));
}

/* Things beside tensors, as torch.save writes them. */
static void test_bytearrays_and_devices(void **state)
{
    (void)state;
    assert_string_equal(NAMES(P "}(" KEY("a") "c__builtin__\nbytearray\nc_codecs\nencode\n" S("\x03", "abc")
                                  S("\x06", "latin1") "\x86R\x85R" KEY("b") "c__builtin__\nbytearray\n)R" KEY(
                                      "d") "ctorch\ndevice\n" S("\x06", "vulkan") "\x85R" KEY("w") TENSOR "u."),
                        "w@0 ");
    assert_non_null(
        strstr(NAMES(P "c__builtin__\nbytearray\nctorch\ndevice\n" S("\x03", "cpu") "\x85R\x85R."), "wrong arguments"));
}

/* Types that newer PyTorch has, packed ones too; others cannot be saved in a tensor, but named. */
static void test_types(void **state)
{
    (void)state;
    assert_string_equal(
        NAMES(P V3 "(" STORAGE("ctorch.storage\nUntypedStorage\n", "K\x08") "K\x03K\x01\x85K\x01\x85\x89" HOOKS
                                                                            "ctorch\nfloat4_e2m1fn_x2\ntR."),
        "tensor@3 ");
    assert_string_equal(NAMES(P V3 "(" STORAGE("ctorch.storage\nUntypedStorage\n",
                                               "K\x08") "K\x03K\x01\x85K\x01\x85\x89" HOOKS "ctorch\nbits16\ntR."),
                        "tensor@6 ");
    assert_string_equal(NAMES(P "}(" KEY("t") "ctorch\nint4\n" KEY("w") TENSOR "u."), "w@0 ");
    assert_non_null(strstr(NAMES(P V3 "(" STORAGE("ctorch.storage\nUntypedStorage\n",
                                                  "K\x08") "K\0K\x01\x85K\x01\x85\x89" HOOKS "ctorch\nint4\ntR."),
                           "wrong arguments"));
    assert_non_null(strstr(NAMES(P "ctorch\nfloat3_new\n."), "torch.float3_new, a part of PyTorch that"));
    assert_non_null(strstr(NAMES(P "ctorch.nn.modules.linear\nLinear\n."), "which is code"));
}

static void test_torchscript(void **state)
{
    (void)state;
    assert_string_equal(SCRIPT_NAMES(P "c__torch__.x\nNet\n)\x81}(" S("\x02", "fc") "c__torch__\nL\n)\x81}" KEY("w")
                                         TENSOR
                                     "sb" KEY("l") "ctorch.jit._pickle\nbuild_intlist\n](K\x01"
                                                   "e\x85R" KEY("t") "ctorch.jit._pickle\nrestore_type_tag\n](" TENSOR
                                                                     "e" S("\x0c", "List[Tensor]") "\x86Rub."),
                        "fc.w@0 t.0@0 ");
    assert_non_null(strstr(SCRIPT_NAMES(P "c__torch__evil\nNet\n)\x81."), "refers to __torch__evil.Net"));
    assert_non_null(strstr(SCRIPT_NAMES(P "cos\nsystem\n)\x81."), "refers to os.system"));
    assert_non_null(strstr(SCRIPT_NAMES(P "c__torch__\nN\nN\x85\x81."), "only TorchScript's own"));
    assert_non_null(strstr(SCRIPT_NAMES(P "c__torch__\nN\n)\x81}b}b."), "has none"));
}
/* clang-format on */

/* Pickles whose size is made by a loop. */
struct writer {
    char *p;
    size_t n;
};

static void put(struct writer *w, const void *p, size_t n)
{
    memcpy(w->p + w->n, p, n);
    w->n += n;
}

static void put_byte(struct writer *w, int byte, size_t times)
{
    memset(w->p + w->n, byte, times);
    w->n += times;
}

/* What PyTorch refuses to set, and what changes the tensor. */
static void test_states(void **state)
{
    (void)state;
    static const char *const names[] = {"shape", "dtype", "T", "device", "data", "_backward_hooks", "__class__"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct writer w = {.p = calloc(1, 1024)};
        static const char head[] = P "ctorch._utils\n_rebuild_parameter_with_state\n(" TENSOR "\x88" HOOKS "}X";
        uint32_t len = (uint32_t)strlen(names[i]);
        put(&w, head, sizeof(head) - 1);
        put(&w, &len, 4);
        put(&w, names[i], len);
        put(&w, "NstR.", 5);
        assert_non_null(strstr(names_of(w.p, w.n, 0), "sets more than attributes"));
        free(w.p);
    }
}

static void assert_names_hold(struct writer *w, const char *words)
{
    const char *names = names_of(w->p, w->n, 0);
    if (!strstr(names, words))
        fail_msg("wanted '%s', got '%s'", words, names);
    w->n = 2; /* keep the protocol */
}

static void test_bombs(void **state)
{
    enum { MARKS = 1000000 };
    static const char tensor[] = TENSOR "s.", leaf[] = TENSOR;
    struct writer w = {.p = malloc(2 * MARKS)};
    (void)state;
    assert_non_null(w.p);
    put(&w, P, 2);
    put_byte(&w, '(', MARKS);
    put_byte(&w, '.', 1);
    assert_names_hold(&w, "ends with 0 values");
    /* lists of two of the list before: a tree of 2^60 tensors in 800 bytes */
    put(&w, "(](", 3);
    put(&w, leaf, sizeof(leaf) - 1);
    put(&w, "eq\0", 3);
    for (int i = 1; i < 60; i++)
        put(&w, (char[]){']', '(', 'h', (char)(i - 1), 'h', (char)(i - 1), 'e', 'q', (char)i}, 9);
    put(&w, "t.", 2);
    assert_names_hold(&w, "refer to each other too often");
    put_byte(&w, ']', 65);
    put_byte(&w, 'a', 64);
    put_byte(&w, '.', 1);
    assert_names_hold(&w, "nested more than 64 deep");
    put(&w, "}X\x05\x10\0\0", 6);
    put_byte(&w, 'k', 0x1005);
    put(&w, tensor, sizeof(tensor) - 1);
    assert_names_hold(&w, "longer than 4096 bytes");
    free(w.p);
}

/* What a pickle can make a reader take is bounded by its own size. */
static void test_memory(void **state)
{
    static const char ops[] = "}]N(q)K";
    enum { N = 1 << 20 };
    char *p = malloc(N), why[SWN_ERRMSG];
    (void)state;
    assert_non_null(p);
    for (size_t i = 0; i < sizeof(ops) - 1; i++) {
        struct swn_bump_alloc bump = {.limit_bytes = (size_t)1 << 30};
        struct swn_pickle_opts opts = {.name = "x"};
        struct swn_pickle_value *root;
        memset(p, ops[i], N);
        memcpy(p, P, 2);
        assert_int_equal(swn_pickle_read(&bump, p, N, &opts, &root, why), -EINVAL);
        assert_true(bump.used_bytes <= 64u * N);
        swn_bump_alloc_free(&bump);
        bump.limit_bytes = 1000;
        assert_int_equal(swn_pickle_read(&bump, p, N, &opts, &root, why), -EINVAL);
        swn_bump_alloc_free(&bump);
    }
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_skipped),
        cmocka_unit_test(test_tensor_with_tensors_for_attributes_is_reported),
        cmocka_unit_test(test_skipped_of_wrong_arguments),
        cmocka_unit_test(test_bytearrays_and_devices),
        cmocka_unit_test(test_torchscript),
        cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
