/* blocks/checkpoint/pickle_globals.c - the fixed list of globals, and the results of calling them.
 *
 * The list is torch's own for weights_only loading. Tensors that cannot be described (nested tensors, wrapper
 * subclasses, other devices' tensors and the like) are skipped. Arguments are checked as strictly as PyTorch does, so
 * that this reader accepts nothing that torch.load would refuse.
 */
#include <errno.h>
#include <string.h>

#include "blocks/checkpoint/builder.h"
#include "blocks/checkpoint/pickle_globals.h"

enum meaning {
    M_ORDERED_DICT,
    M_COUNTER,
    M_SET,
    M_COMPLEX,
    M_BYTES,     /* _codecs.encode: bytes, written as a text */
    M_BYTEARRAY, /* likewise, but no dict's key */
    M_SIZE,
    M_DEVICE,
    M_LAYOUT,
    M_DTYPE,
    M_STORAGE, /* dtype: of its elements; NONE for quantized ones, whose size is `bytes` */
    M_NAME,    /* may be named, not called */
    M_TENSOR_CLASS,
    M_TENSOR_V1,
    M_TENSOR_V2,
    M_TENSOR_V3,
    M_PARAMETER,
    M_PARAMETER_STATE,
    M_FROM_TYPE,
    M_QTENSOR,
    M_SPARSE,
    M_NESTED,
    M_WRAPPER,
    M_DEVICE_TENSOR,
    M_META,
    M_JIT_LIST, /* torch.jit._pickle.build_intlist and its like: the list */
    M_JIT_TAG,  /* restore_type_tag: the value without its type */
    M_JIT_CLASS,
};

struct swn_pickle_global {
    const char *module, *name;
    uint8_t meaning, dtype, bytes;
};

#define DTYPE(text, d)                                                                                                 \
    {                                                                                                                  \
        "torch", text, M_DTYPE, d, 0                                                                                   \
    }
#define STORAGE(text, d)                                                                                               \
    {                                                                                                                  \
        "torch", text, M_STORAGE, d, 0                                                                                 \
    }
#define QSTORAGE(text, n)                                                                                              \
    {                                                                                                                  \
        "torch", text, M_STORAGE, SWN_DTYPE_NONE, n                                                                    \
    }
static const struct swn_pickle_global globals[] = {
    {"torch._utils", "_rebuild_tensor_v2", M_TENSOR_V2, 0, 0},
    {"collections", "OrderedDict", M_ORDERED_DICT, 0, 0},
    STORAGE("FloatStorage", SWN_F32),
    STORAGE("LongStorage", SWN_I64),
    STORAGE("HalfStorage", SWN_F16),
    STORAGE("BFloat16Storage", SWN_BF16),
    STORAGE("DoubleStorage", SWN_F64),
    STORAGE("IntStorage", SWN_I32),
    STORAGE("ShortStorage", SWN_I16),
    STORAGE("CharStorage", SWN_I8),
    STORAGE("ByteStorage", SWN_U8),
    STORAGE("BoolStorage", SWN_BOOL),
    STORAGE("ComplexFloatStorage", SWN_C64),
    STORAGE("ComplexDoubleStorage", SWN_C128),
    QSTORAGE("QInt8Storage", 1),
    QSTORAGE("QUInt8Storage", 1),
    QSTORAGE("QInt32Storage", 4),
    QSTORAGE("QUInt4x2Storage", 1),
    QSTORAGE("QUInt2x4Storage", 1),
    {"torch.storage", "UntypedStorage", M_STORAGE, SWN_U8, 0},
    {"torch._utils", "_rebuild_parameter", M_PARAMETER, 0, 0},
    {"torch._utils", "_rebuild_tensor_v3", M_TENSOR_V3, 0, 0},
    {"torch._utils", "_rebuild_tensor", M_TENSOR_V1, 0, 0},
    {"torch._utils", "_rebuild_parameter_with_state", M_PARAMETER_STATE, 0, 0},
    {"torch._tensor", "_rebuild_from_type_v2", M_FROM_TYPE, 0, 0},
    {"torch._utils", "_rebuild_qtensor", M_QTENSOR, 0, 0},
    {"torch._utils", "_rebuild_sparse_tensor", M_SPARSE, 0, 0},
    {"torch._utils", "_rebuild_nested_tensor", M_NESTED, 0, 0},
    {"torch._utils", "_rebuild_wrapper_subclass", M_WRAPPER, 0, 0},
    {"torch._utils", "_rebuild_device_tensor_from_cpu_tensor", M_DEVICE_TENSOR, 0, 0},
    {"torch._utils", "_rebuild_device_tensor_from_numpy", M_DEVICE_TENSOR, 0, 0},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", M_META, 0, 0},
    {"torch", "Tensor", M_TENSOR_CLASS, 0, 0},
    {"torch.nn.parameter", "Parameter", M_TENSOR_CLASS, 0, 0},
    {"torch", "Size", M_SIZE, 0, 0},
    {"torch", "device", M_DEVICE, 0, 0},
    {"torch.serialization", "_get_layout", M_LAYOUT, 0, 0},
    {"torch", "per_tensor_affine", M_NAME, 0, 0},
    {"torch", "per_tensor_symmetric", M_NAME, 0, 0},
    {"torch", "per_channel_affine", M_NAME, 0, 0},
    {"torch", "per_channel_symmetric", M_NAME, 0, 0},
    {"torch", "per_channel_affine_float_qparams", M_NAME, 0, 0},
    DTYPE("float64", SWN_F64),
    DTYPE("float32", SWN_F32),
    DTYPE("float16", SWN_F16),
    DTYPE("bfloat16", SWN_BF16),
    DTYPE("float8_e4m3fn", SWN_F8_E4M3FN),
    DTYPE("float8_e5m2", SWN_F8_E5M2),
    DTYPE("float8_e4m3fnuz", SWN_F8_E4M3FNUZ),
    DTYPE("float8_e5m2fnuz", SWN_F8_E5M2FNUZ),
    DTYPE("float8_e8m0fnu", SWN_F8_E8M0FNU),
    DTYPE("complex32", SWN_C32),
    DTYPE("complex64", SWN_C64),
    DTYPE("complex128", SWN_C128),
    DTYPE("uint8", SWN_U8),
    DTYPE("int8", SWN_I8),
    DTYPE("int16", SWN_I16),
    DTYPE("int32", SWN_I32),
    DTYPE("int64", SWN_I64),
    DTYPE("uint16", SWN_U16),
    DTYPE("uint32", SWN_U32),
    DTYPE("uint64", SWN_U64),
    DTYPE("bool", SWN_BOOL),
    DTYPE("float4_e2m1fn_x2", SWN_F4_E2M1FN_X2),
    DTYPE("bits8", SWN_BITS8),
    DTYPE("bits16", SWN_BITS16),
    DTYPE("bits1x8", SWN_BITS1X8),
    DTYPE("bits2x4", SWN_BITS2X4),
    DTYPE("bits4x2", SWN_BITS4X2),
    /* no tensor can be saved with these types, but a pickle may name them */
    DTYPE("uint1", SWN_DTYPE_NONE),
    DTYPE("uint2", SWN_DTYPE_NONE),
    DTYPE("uint3", SWN_DTYPE_NONE),
    DTYPE("uint4", SWN_DTYPE_NONE),
    DTYPE("uint5", SWN_DTYPE_NONE),
    DTYPE("uint6", SWN_DTYPE_NONE),
    DTYPE("uint7", SWN_DTYPE_NONE),
    DTYPE("int1", SWN_DTYPE_NONE),
    DTYPE("int2", SWN_DTYPE_NONE),
    DTYPE("int3", SWN_DTYPE_NONE),
    DTYPE("int4", SWN_DTYPE_NONE),
    DTYPE("int5", SWN_DTYPE_NONE),
    DTYPE("int6", SWN_DTYPE_NONE),
    DTYPE("int7", SWN_DTYPE_NONE),
    DTYPE("qint8", SWN_DTYPE_NONE),
    DTYPE("quint8", SWN_DTYPE_NONE),
    DTYPE("qint32", SWN_DTYPE_NONE),
    DTYPE("quint4x2", SWN_DTYPE_NONE),
    DTYPE("quint2x4", SWN_DTYPE_NONE),
    {"collections", "Counter", M_COUNTER, 0, 0},
    {"__builtin__", "set", M_SET, 0, 0},
    {"__builtin__", "complex", M_COMPLEX, 0, 0},
    {"__builtin__", "bytearray", M_BYTEARRAY, 0, 0},
    {"_codecs", "encode", M_BYTES, 0, 0},
};

static const struct swn_pickle_global torchscript_globals[] = {
    {"torch.jit._pickle", "build_intlist", M_JIT_LIST, 0, 0},
    {"torch.jit._pickle", "build_tensorlist", M_JIT_LIST, 0, 0},
    {"torch.jit._pickle", "build_doublelist", M_JIT_LIST, 0, 0},
    {"torch.jit._pickle", "build_boollist", M_JIT_LIST, 0, 0},
    {"torch.jit._pickle", "restore_type_tag", M_JIT_TAG, 0, 0},
};
static const struct swn_pickle_global torchscript_class = {"__torch__", "", M_JIT_CLASS, 0, 0};

/* A tensor's attributes that are properties in some PyTorch: setting them fails there, or changes the tensor. */
static const char *const properties[] = {
    "H",
    "T",
    "_backward_hooks",
    "_base",
    "_cdata",
    "_grad",
    "_grad_fn",
    "_has_symbolic_sizes_strides",
    "_post_accumulate_grad_hooks",
    "_python_dispatch",
    "_version",
    "data",
    "device",
    "dtype",
    "grad",
    "grad_dtype",
    "grad_fn",
    "imag",
    "is_cpu",
    "is_cuda",
    "is_ipu",
    "is_leaf",
    "is_maia",
    "is_meta",
    "is_mkldnn",
    "is_mps",
    "is_mtia",
    "is_nested",
    "is_ort",
    "is_quantized",
    "is_sparse",
    "is_sparse_csr",
    "is_vulkan",
    "is_xla",
    "is_xpu",
    "itemsize",
    "layout",
    "mH",
    "mT",
    "name",
    "names",
    "nbytes",
    "ndim",
    "output_nr",
    "real",
    "requires_grad",
    "retains_grad",
    "shape",
    "volatile",
};

static int equals(const char *text, size_t len, const char *want)
{
    return len == strlen(want) && !memcmp(text, want, len);
}

static int is_text(const struct swn_pickle_value *v, const char *want)
{
    return v->kind == SWN_PV_TEXT && equals(v->text, v->count, want);
}

static int is_global(const struct swn_pickle_value *v, enum meaning meaning)
{
    return v->kind == SWN_PV_GLOBAL && v->global->meaning == meaning;
}

static const struct swn_pickle_global *find(const struct swn_pickle_global *list, size_t n, const char *module,
                                            size_t module_len, const char *name, size_t name_len)
{
    for (size_t i = 0; i < n; i++)
        if (equals(name, name_len, list[i].name) && equals(module, module_len, list[i].module))
            return &list[i];
    return NULL;
}

/* Modules that define the parts of tensors, as opposed to modules with classes of models. */
static int is_own_module(const char *module, size_t len)
{
    static const char *const own[] = {"torch", "torch._utils", "torch._tensor", "torch.storage", "torch.serialization"};
    for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
        if (equals(module, len, own[i]))
            return 1;
    return 0;
}

int swn_pickle_global(struct swn_pickle_machine *m, const char *module, size_t module_len, const char *name,
                      size_t name_len, struct swn_pickle_value **out)
{
    static const char scripted[] = "__torch__";
    const size_t prefix = sizeof(scripted) - 1;
    const struct swn_pickle_global *g =
        find(globals, sizeof(globals) / sizeof(*globals), module, module_len, name, name_len);
    if (!g && m->opts->torchscript) {
        g = find(torchscript_globals, sizeof(torchscript_globals) / sizeof(*torchscript_globals), module, module_len,
                 name, name_len);
        if (!g && module_len >= prefix && !memcmp(module, scripted, prefix) &&
            (module_len == prefix || module[prefix] == '.'))
            g = &torchscript_class;
    }
    if (!g && is_own_module(module, module_len) && !memchr(name, '.', name_len))
        return swn_pickle_fail(m, "refers to %.*s.%.*s, a part of PyTorch that this version of swapnet does not know",
                               (int)module_len, module, (int)(name_len < 80 ? name_len : 80), name);
    if (!g)
        return swn_pickle_fail(m,
                               "refers to %.*s.%.*s, which is code and is not run; save the weights alone: "
                               "torch.save(model.state_dict(), PATH)",
                               (int)(module_len < 80 ? module_len : 80), module, (int)(name_len < 80 ? name_len : 80),
                               name);
    int rc = swn_pickle_make(m, SWN_PV_GLOBAL, out);
    if (!rc)
        (*out)->global = g;
    return rc;
}

static int bad_arguments(struct swn_pickle_machine *m, const struct swn_pickle_global *g)
{
    return swn_pickle_fail(m, "%s.%s is called with the wrong arguments", g->module, g->name);
}

static int is_empty_dict(const struct swn_pickle_value *v)
{
    return v->kind == SWN_PV_NONE || (v->kind == SWN_PV_DICT && v->count == 0);
}

/* A tuple of integers becomes an array; *ndim must match it unless it is UINT32_MAX, when it is set. */
static int int_array(struct swn_pickle_machine *m, const struct swn_pickle_value *v, uint32_t *ndim,
                     const int64_t **out)
{
    if (v->kind != SWN_PV_TUPLE || v->count > SWN_CKPT_MAX_DIMS || (*ndim != UINT32_MAX && *ndim != v->count))
        return swn_pickle_fail(m, "a tensor's size and stride are not tuples of the same length, at most %d",
                               SWN_CKPT_MAX_DIMS);
    void *array;
    int rc = swn_bump_alloc_take(m->bump, (v->count + 1) * sizeof(int64_t), &array);
    if (rc)
        return swn_ckpt_fail_memory(m->why, m->opts->name, rc);
    int64_t *ints = array;
    for (uint32_t i = 0; i < v->count; i++) {
        if (v->items[i]->kind != SWN_PV_INT || v->items[i]->i < 0)
            return swn_pickle_fail(m, "a tensor's size or stride is negative or not an integer");
        ints[i] = v->items[i]->i;
    }
    *ndim = v->count;
    *out = ints;
    return 0;
}

static int make_tensor(struct swn_pickle_machine *m, const struct swn_pickle_tensor *t, struct swn_pickle_value **out)
{
    void *copy;
    int rc = swn_bump_alloc_take(m->bump, sizeof(*t), &copy);
    if (rc)
        return swn_ckpt_fail_memory(m->why, m->opts->name, rc);
    memcpy(copy, t, sizeof(*t));
    rc = swn_pickle_make(m, SWN_PV_TENSOR, out);
    if (!rc)
        (*out)->tensor = copy;
    return rc;
}

static int make_skipped(struct swn_pickle_machine *m, const char *what, struct swn_pickle_value **out)
{
    return make_tensor(m, &(struct swn_pickle_tensor){.skip = what}, out);
}

static int is_complex_dtype(enum swn_dtype d)
{
    return d == SWN_C32 || d == SWN_C64 || d == SWN_C128;
}

/* {"conj": bool, "neg": bool}: bits that change what the bytes mean. */
static int metadata(struct swn_pickle_machine *m, const struct swn_pickle_value *v, struct swn_pickle_tensor *t)
{
    if (is_empty_dict(v))
        return 0;
    if (v->kind != SWN_PV_DICT)
        return swn_pickle_fail(m, "a tensor's metadata is not a dict");
    if (v->count > 4)
        return swn_pickle_fail(m, "a tensor has metadata other than conj and neg");
    for (uint32_t i = 0; i < v->count; i += 2) {
        if ((!is_text(v->items[i], "conj") && !is_text(v->items[i], "neg")) || v->items[i + 1]->kind != SWN_PV_BOOL)
            return swn_pickle_fail(m, "a tensor has metadata other than conj and neg");
        if (is_text(v->items[i], "conj") && !is_complex_dtype(t->dtype))
            return swn_pickle_fail(m, "a tensor without complex numbers says whether it is conjugated");
        if (v->items[i + 1]->i)
            t->skip = "a view with a pending conjugation or negation";
    }
    return 0;
}

static int may_require_grad(enum swn_dtype d)
{
    switch (d) {
    case SWN_U8:
    case SWN_I8:
    case SWN_I16:
    case SWN_I32:
    case SWN_I64:
    case SWN_U16:
    case SWN_U32:
    case SWN_U64:
    case SWN_BOOL:
    case SWN_BITS8:
    case SWN_BITS16:
    case SWN_BITS1X8:
    case SWN_BITS2X4:
    case SWN_BITS4X2:
        return 0;
    default:
        return 1;
    }
}

/* _rebuild_tensor(storage, offset, size, stride), v2 (..., requires_grad, hooks, metadata=None) and v3 (...,
 * requires_grad, hooks, dtype, metadata=None). */
static int rebuild_tensor(struct swn_pickle_machine *m, const struct swn_pickle_global *g,
                          const struct swn_pickle_value *args, struct swn_pickle_value **out)
{
    uint32_t least = g->meaning == M_TENSOR_V1 ? 4 : g->meaning == M_TENSOR_V2 ? 6 : 7;
    struct swn_pickle_value **a = args->items;
    if (args->count < least || args->count > least + (least > 4 ? 1 : 0))
        return bad_arguments(m, g);
    if (a[0]->kind != SWN_PV_STORAGE || a[1]->kind != SWN_PV_INT || a[1]->i < 0)
        return bad_arguments(m, g);
    struct swn_pickle_tensor t = {.storage = a[0]->storage, .dtype = a[0]->dtype, .ndim = UINT32_MAX};
    int rc = int_array(m, a[2], &t.ndim, &t.shape);
    if (!rc)
        rc = int_array(m, a[3], &t.ndim, &t.stride);
    if (rc)
        return rc;
    if (least > 4 && (a[4]->kind != SWN_PV_BOOL || !is_empty_dict(a[5])))
        return bad_arguments(m, g);
    if (g->meaning == M_TENSOR_V3) {
        if (!is_global(a[6], M_DTYPE))
            return bad_arguments(m, g);
        if (a[4]->i) /* torch makes it, and then may not put the storage into it */
            return swn_pickle_fail(m, "a tensor of a type without a storage class requires a gradient, as which "
                                      "PyTorch does not load it");
        t.dtype = a[6]->global->dtype;
    }
    if (t.dtype == SWN_DTYPE_NONE || (least > 4 && a[4]->i && !may_require_grad(t.dtype)))
        return bad_arguments(m, g);
    uint64_t end;
    if (__builtin_mul_overflow((uint64_t)a[1]->i, swn_dtype_size(t.dtype), &t.off))
        return swn_pickle_fail(m, "a tensor's offset overflows");
    rc = swn_ckpt_view_end(t.shape, t.stride, t.ndim, swn_dtype_size(t.dtype), t.off, &end);
    if (rc)
        return swn_pickle_fail(m, "a tensor's sizes overflow");
    if (end > a[0]->storage_bytes)
        return swn_pickle_fail(m, "a tensor reaches beyond the end of its storage");
    if (args->count > least && (rc = metadata(m, a[least], &t)))
        return rc;
    return make_tensor(m, &t, out);
}

/* How deep an attribute is looked into, and how many values of it are: lists within lists can be without end. */
#define STATE_DEPTH 16
#define HOLDS_TENSOR "a tensor with tensors for attributes"
#define STATE_VALUES 4096
/* In all states together, for each byte of the pickle: one container may be the state of thousands of tensors. */
#define STATE_VALUES_A_BYTE 4

/* Whether a tensor or storage may be in it: yes also of what is too much to look through. */
static int may_hold_tensor(const struct swn_pickle_value *v, int depth, unsigned *left)
{
    if (v->kind == SWN_PV_TENSOR || v->kind == SWN_PV_STORAGE)
        return 1;
    if (v->kind != SWN_PV_TUPLE && v->kind != SWN_PV_LIST && v->kind != SWN_PV_DICT && v->kind != SWN_PV_OBJECT)
        return 0;
    if (!depth)
        return 1;
    for (uint32_t i = 0; i < v->count; i++)
        if (!*left || !--*left || may_hold_tensor(v->items[i], depth - 1, left))
            return 1;
    return 0;
}

/* Attributes of a tensor are not read, but must not be able to change it. *holds_tensor: whether some are
 * tensors, or have them, which would be lost without a word. */
static int check_state(struct swn_pickle_machine *m, struct swn_pickle_value *state, int *holds_tensor)
{
    size_t unseen = m->len * STATE_VALUES_A_BYTE - m->state_values;
    unsigned most = unseen < STATE_VALUES ? (unsigned)unseen : STATE_VALUES, left = most;
    *holds_tensor = may_hold_tensor(state, STATE_DEPTH, &left);
    m->state_values += most - left;
    struct swn_pickle_value *parts[2] = {state, NULL};
    if (state->kind == SWN_PV_TUPLE && state->count == 2) {
        parts[0] = state->items[0];
        parts[1] = state->items[1];
    }
    for (int part = 0; part < 2 && parts[part]; part++) {
        struct swn_pickle_value *v = parts[part];
        if (v->kind == SWN_PV_NONE)
            continue;
        if (v->kind != SWN_PV_DICT)
            return swn_pickle_fail(m, "a tensor's state is not a dict");
        for (; v->checked < v->count; v->checked += 2) {
            const struct swn_pickle_value *key = v->items[v->checked];
            int refused = key->kind != SWN_PV_TEXT || (key->count >= 2 && !memcmp(key->text, "__", 2));
            for (size_t k = 0; !refused && k < sizeof(properties) / sizeof(*properties); k++)
                refused = is_text(key, properties[k]);
            if (refused)
                return swn_pickle_fail(m, "a tensor's state sets more than attributes");
        }
    }
    return 0;
}

/* _rebuild_parameter(tensor, requires_grad, hooks), or with a state behind. */
static int rebuild_parameter(struct swn_pickle_machine *m, const struct swn_pickle_global *g,
                             const struct swn_pickle_value *args, struct swn_pickle_value **out)
{
    struct swn_pickle_value **a = args->items;
    uint32_t want = g->meaning == M_PARAMETER ? 3 : 4;
    if (args->count != want || a[0]->kind != SWN_PV_TENSOR || a[1]->kind != SWN_PV_BOOL || !is_empty_dict(a[2]))
        return bad_arguments(m, g);
    if (a[1]->i && !a[0]->tensor->skip && !may_require_grad(a[0]->tensor->dtype))
        return bad_arguments(m, g);
    *out = a[0];
    int holds_tensor = 0, rc = want == 4 ? check_state(m, a[3], &holds_tensor) : 0;
    return rc || !holds_tensor ? rc : make_skipped(m, HOLDS_TENSOR, out);
}

/* _rebuild_from_type_v2(function, class, args, state): a tensor with attributes. */
static int rebuild_from_type(struct swn_pickle_machine *m, const struct swn_pickle_global *g,
                             const struct swn_pickle_value *args, struct swn_pickle_value **out)
{
    struct swn_pickle_value **a = args->items;
    if (args->count != 4 || a[0]->kind != SWN_PV_GLOBAL || a[1]->kind != SWN_PV_GLOBAL || a[2]->kind != SWN_PV_TUPLE)
        return bad_arguments(m, g);
    uint8_t inner = a[0]->global->meaning;
    /* never a nested call: this is the machine's only recursion, and it is one deep */
    if (a[1]->global->meaning != M_TENSOR_CLASS || inner < M_TENSOR_V1 || inner == M_FROM_TYPE || inner > M_META)
        return bad_arguments(m, g);
    int holds_tensor, rc = check_state(m, a[3], &holds_tensor);
    if (!rc)
        rc = swn_pickle_reduce(m, a[0], a[2], out);
    return rc || !holds_tensor ? rc : make_skipped(m, HOLDS_TENSOR, out);
}

/* Whether the text has only characters up to U+00FF, as protocol 2 writes bytes. */
static int is_latin1(const struct swn_pickle_value *v)
{
    return v->kind == SWN_PV_TEXT && !v->odd;
}

static int is_device(const struct swn_pickle_value *args)
{
    /* of any PyTorch; what it does not know itself, it refuses */
    static const char *const types[] = {
        "cpu",  "cuda", "mps", "xpu",    "meta", "xla",    "hpu",   "mtia",   "hip",    "ipu",   "ve",
        "fpga", "maia", "ort", "vulkan", "lazy", "mkldnn", "msnpu", "opengl", "opencl", "ideep", "privateuseone"};
    if (args->count < 1 || args->count > 2)
        return 0;
    if (args->count == 2 && (args->items[1]->kind != SWN_PV_INT || args->items[1]->i < 0 || args->items[1]->i > 127))
        return 0;
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (is_text(args->items[0], types[i]))
            return 1;
    return 0;
}

static int is_layout(const struct swn_pickle_value *args)
{
    static const char *const layouts[] = {"torch.strided",    "torch.sparse_coo", "torch.sparse_csr",
                                          "torch.sparse_csc", "torch.sparse_bsr", "torch.sparse_bsc"};
    if (args->count != 1)
        return 0;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
        if (is_text(args->items[0], layouts[i]))
            return 1;
    return 0;
}

static int is_number(const struct swn_pickle_value *v)
{
    return v->kind == SWN_PV_INT || v->kind == SWN_PV_OPAQUE;
}

static int is_complex(const struct swn_pickle_value *args)
{
    return args->count == 2 && is_number(args->items[0]) && is_number(args->items[1]);
}

static int is_bytes(const struct swn_pickle_value *args)
{
    return args->count == 2 && is_latin1(args->items[0]) &&
           (is_text(args->items[1], "latin1") || is_text(args->items[1], "latin-1"));
}

/* bytearray(bytes), as torch.save writes it, or of a text, as the pickle module does. */
static int is_bytearray(const struct swn_pickle_value *args)
{
    return is_bytes(args) || !args->count ||
           (args->count == 1 && args->items[0]->kind == SWN_PV_OPAQUE && args->items[0]->bytes);
}

static int is_shape(const struct swn_pickle_value *v)
{
    if (v->kind != SWN_PV_TUPLE)
        return 0;
    for (uint32_t i = 0; i < v->count; i++)
        if (v->items[i]->kind != SWN_PV_INT || v->items[i]->i < 0)
            return 0;
    return 1;
}

/* (storage, offset, size, stride, (scheme, ...), requires_grad, hooks) */
static int is_qtensor(const struct swn_pickle_value *args)
{
    struct swn_pickle_value **a = args->items;
    if (args->count != 7 || a[0]->kind != SWN_PV_STORAGE || a[0]->dtype != SWN_DTYPE_NONE || a[1]->kind != SWN_PV_INT ||
        a[1]->i < 0 || !is_shape(a[2]) || !is_shape(a[3]) || a[4]->kind != SWN_PV_TUPLE)
        return 0;
    int scheme = (a[4]->count == 3 || a[4]->count == 4) && is_global(a[4]->items[0], M_NAME);
    return scheme && a[5]->kind == SWN_PV_BOOL && is_empty_dict(a[6]);
}

/* (layout, (indices, values, size)), with or without whether it is coalesced; or (layout, (indices, indices, values,
 * size)). */
static int is_sparse_tensor(const struct swn_pickle_value *args)
{
    if (args->count != 2 || args->items[0]->kind != SWN_PV_OPAQUE || args->items[1]->kind != SWN_PV_TUPLE)
        return 0;
    struct swn_pickle_value **a = args->items[1]->items;
    uint32_t n = args->items[1]->count;
    if (n < 3 || n > 4 || a[0]->kind != SWN_PV_TENSOR || a[1]->kind != SWN_PV_TENSOR)
        return 0;
    if (a[2]->kind == SWN_PV_TENSOR)
        return n == 4 && is_shape(a[3]);
    return is_shape(a[2]) && (n == 3 || a[3]->kind == SWN_PV_BOOL || a[3]->kind == SWN_PV_NONE);
}

static int is_nested_tensor(const struct swn_pickle_value *args)
{
    if (args->count != 4)
        return 0;
    for (uint32_t i = 0; i < args->count; i++)
        if (args->items[i]->kind != SWN_PV_TENSOR)
            return 0;
    return 1;
}

static int is_wrapper(const struct swn_pickle_value *args)
{
    struct swn_pickle_value **a = args->items;
    if (args->count != 8 || !is_global(a[0], M_TENSOR_CLASS) || !is_global(a[1], M_DTYPE) || !is_shape(a[2]) ||
        !is_shape(a[3]) || a[7]->kind != SWN_PV_BOOL)
        return 0;
    return (a[4]->kind == SWN_PV_INT || a[4]->kind == SWN_PV_NONE) &&
           (a[5]->kind == SWN_PV_OPAQUE || a[5]->kind == SWN_PV_NONE);
}

static int is_device_tensor(const struct swn_pickle_value *args)
{
    return args->count == 4 && is_global(args->items[1], M_DTYPE) && args->items[3]->kind == SWN_PV_BOOL;
}

static int is_meta_tensor(const struct swn_pickle_value *args)
{
    struct swn_pickle_value **a = args->items;
    return args->count == 4 && is_global(a[0], M_DTYPE) && is_shape(a[1]) && is_shape(a[2]) &&
           a[3]->kind == SWN_PV_BOOL;
}

static int is_jit_list(const struct swn_pickle_value *args)
{
    return args->count == 1 && args->items[0]->kind == SWN_PV_LIST;
}

static int is_jit_tag(const struct swn_pickle_value *args)
{
    return args->count == 2 && args->items[1]->kind == SWN_PV_TEXT;
}

/* set([...]): without tensors, as tensors in a set have neither names nor an order. */
static int is_set(const struct swn_pickle_value *args)
{
    return args->count == 1 && args->items[0]->kind == SWN_PV_LIST && !args->items[0]->odd;
}

static int is_size(const struct swn_pickle_value *args)
{
    return args->count == 1 && args->items[0]->kind == SWN_PV_TUPLE && !args->items[0]->odd;
}

/* An OrderedDict or Counter: empty, or for a Counter a copy of a dict. */
static int make_dict(struct swn_pickle_machine *m, const struct swn_pickle_global *g,
                     const struct swn_pickle_value *args, struct swn_pickle_value **out)
{
    int copy = g->meaning == M_COUNTER && args->count == 1 && args->items[0]->kind == SWN_PV_DICT;
    if (args->count && !copy)
        return bad_arguments(m, g);
    int rc = swn_pickle_make(m, SWN_PV_DICT, out);
    if (rc)
        return rc;
    (*out)->ordered = g->meaning == M_ORDERED_DICT;
    if (copy) { /* no spare room in either: the one that grows takes a new array */
        (*out)->items = args->items[0]->items;
        (*out)->count = (*out)->room = args->items[0]->room = args->items[0]->count;
    }
    return 0;
}

static int make_opaque(struct swn_pickle_machine *m, int hashable, struct swn_pickle_value **out)
{
    int rc = swn_pickle_make(m, SWN_PV_OPAQUE, out);
    if (!rc)
        (*out)->hashable = (uint8_t)(hashable & 1);
    return rc;
}

/* How to call a global: `make` checks the arguments itself; without it, arguments that fit give a fixed result. */
struct callable {
    int (*make)(struct swn_pickle_machine *m, const struct swn_pickle_global *g, const struct swn_pickle_value *args,
                struct swn_pickle_value **out);
    int (*fits)(const struct swn_pickle_value *args);
    enum { OPAQUE, OPAQUE_KEY, OPAQUE_BYTES, FIRST_ARGUMENT, SKIPPED } result;
    const char *skip; /* of a skipped tensor */
};

/* By meaning. A meaning that is not listed cannot be called. */
static const struct callable callables[M_JIT_CLASS + 1] = {
    [M_ORDERED_DICT] = {.make = make_dict},
    [M_COUNTER] = {.make = make_dict},
    [M_SET] = {.fits = is_set, .result = OPAQUE},
    [M_COMPLEX] = {.fits = is_complex, .result = OPAQUE_KEY},
    [M_BYTES] = {.fits = is_bytes, .result = OPAQUE_BYTES},
    [M_BYTEARRAY] = {.fits = is_bytearray, .result = OPAQUE},
    [M_SIZE] = {.fits = is_size, .result = FIRST_ARGUMENT},
    [M_DEVICE] = {.fits = is_device, .result = OPAQUE_KEY},
    [M_LAYOUT] = {.fits = is_layout, .result = OPAQUE_KEY},
    [M_TENSOR_V1] = {.make = rebuild_tensor},
    [M_TENSOR_V2] = {.make = rebuild_tensor},
    [M_TENSOR_V3] = {.make = rebuild_tensor},
    [M_PARAMETER] = {.make = rebuild_parameter},
    [M_PARAMETER_STATE] = {.make = rebuild_parameter},
    [M_FROM_TYPE] = {.make = rebuild_from_type},
    [M_QTENSOR] = {.fits = is_qtensor, .result = SKIPPED, .skip = "a quantized tensor"},
    [M_SPARSE] = {.fits = is_sparse_tensor, .result = SKIPPED, .skip = "a sparse tensor"},
    [M_NESTED] = {.fits = is_nested_tensor, .result = SKIPPED, .skip = "a nested tensor"},
    [M_WRAPPER] = {.fits = is_wrapper, .result = SKIPPED, .skip = "a tensor of a class that wraps others"},
    [M_DEVICE_TENSOR] = {.fits = is_device_tensor, .result = SKIPPED, .skip = "a tensor to be made on a device"},
    [M_META] = {.fits = is_meta_tensor, .result = SKIPPED, .skip = "a meta tensor, which has no bytes"},
    [M_JIT_LIST] = {.fits = is_jit_list, .result = FIRST_ARGUMENT},
    [M_JIT_TAG] = {.fits = is_jit_tag, .result = FIRST_ARGUMENT},
};

int swn_pickle_reduce(struct swn_pickle_machine *m, struct swn_pickle_value *function, struct swn_pickle_value *args,
                      struct swn_pickle_value **out)
{
    const struct swn_pickle_global *g = function->global;
    const struct callable *c = &callables[g->meaning];
    if (c->make)
        return c->make(m, g, args, out);
    if (!c->fits)
        return swn_pickle_fail(m, "calls %s.%s, which is not a function", g->module, g->name);
    if (!c->fits(args))
        return bad_arguments(m, g);
    switch (c->result) {
    case FIRST_ARGUMENT:
        *out = args->items[0];
        return 0;
    case SKIPPED:
        return make_skipped(m, c->skip, out);
    default: {
        int rc = make_opaque(m, c->result != OPAQUE, out);
        if (!rc)
            (*out)->bytes = c->result == OPAQUE_BYTES;
        return rc;
    }
    }
}

int swn_pickle_new(struct swn_pickle_machine *m, struct swn_pickle_value *class, struct swn_pickle_value *args,
                   struct swn_pickle_value **out)
{
    const struct swn_pickle_global *g = class->global;
    if (g->meaning != M_JIT_CLASS || args->count)
        return swn_pickle_fail(m, "makes an object of %s.%s, which only TorchScript's own classes may be", g->module,
                               g->name);
    return swn_pickle_make(m, SWN_PV_OBJECT, out);
}

int swn_pickle_build(struct swn_pickle_machine *m, struct swn_pickle_value *object, struct swn_pickle_value *state)
{
    /* attributes of an OrderedDict, such as a state_dict's _metadata: not its items, so nothing to keep */
    if (object->kind == SWN_PV_DICT && object->ordered && state->kind == SWN_PV_DICT)
        return 0;
    if (object->kind != SWN_PV_OBJECT || object->count)
        return swn_pickle_fail(m, "sets the state of something that has none (a tensor's is never set)");
    void *items;
    int rc = swn_bump_alloc_take(m->bump, sizeof(*object->items), &items);
    if (rc)
        return swn_ckpt_fail_memory(m->why, m->opts->name, rc);
    object->items = items;
    object->items[0] = state;
    object->count = object->room = 1;
    return 0;
}

/* ('storage', class, key, location, number of elements) */
int swn_pickle_persistent(struct swn_pickle_machine *m, struct swn_pickle_value *id, struct swn_pickle_value **out)
{
    struct swn_pickle_value **a = id->items;
    if (id->kind != SWN_PV_TUPLE || id->count != 5 || !is_text(a[0], "storage") || !is_global(a[1], M_STORAGE) ||
        a[2]->kind != SWN_PV_TEXT || a[3]->kind != SWN_PV_TEXT || a[4]->kind != SWN_PV_INT || a[4]->i < 0)
        return swn_pickle_fail(m, "a persistent id is not a storage's");
    const struct swn_pickle_global *g = a[1]->global;
    uint64_t bytes;
    if (__builtin_mul_overflow((uint64_t)a[4]->i, g->bytes ? g->bytes : swn_dtype_size(g->dtype), &bytes) ||
        bytes > INT64_MAX)
        return swn_pickle_fail(m, "a storage's size overflows");
    uint32_t number;
    int rc = m->opts->storage(m->opts->ctx, a[2]->text, a[2]->count, g->dtype, bytes, &number, m->why);
    if (!rc)
        rc = swn_pickle_make(m, SWN_PV_STORAGE, out);
    if (rc)
        return rc;
    (*out)->storage = number;
    (*out)->storage_bytes = bytes;
    (*out)->dtype = g->dtype;
    return 0;
}
