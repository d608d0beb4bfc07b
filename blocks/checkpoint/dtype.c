/* blocks/checkpoint/dtype.c - sizes and names of element types, in one table. */
#include "blocks/checkpoint/checkpoint.h"

static const struct {
    const char *name, *safetensors;
    size_t bytes;
} dtypes[SWN_DTYPE_COUNT] = {
    [SWN_DTYPE_NONE] = {"none", NULL, 0},
    [SWN_U8] = {"uint8", "U8", 1},
    [SWN_I8] = {"int8", "I8", 1},
    [SWN_I16] = {"int16", "I16", 2},
    [SWN_I32] = {"int32", "I32", 4},
    [SWN_I64] = {"int64", "I64", 8},
    [SWN_F16] = {"float16", "F16", 2},
    [SWN_F32] = {"float32", "F32", 4},
    [SWN_F64] = {"float64", "F64", 8},
    [SWN_BF16] = {"bfloat16", "BF16", 2},
    [SWN_BOOL] = {"bool", "BOOL", 1},
    [SWN_C32] = {"complex32", NULL, 4},
    [SWN_C64] = {"complex64", "C64", 8},
    [SWN_C128] = {"complex128", NULL, 16},
    [SWN_F8_E4M3FN] = {"float8_e4m3fn", "F8_E4M3", 1},
    [SWN_F8_E5M2] = {"float8_e5m2", "F8_E5M2", 1},
    [SWN_F8_E4M3FNUZ] = {"float8_e4m3fnuz", "F8_E4M3FNUZ", 1},
    [SWN_F8_E5M2FNUZ] = {"float8_e5m2fnuz", "F8_E5M2FNUZ", 1},
    [SWN_F8_E8M0FNU] = {"float8_e8m0fnu", "F8_E8M0", 1},
    [SWN_U16] = {"uint16", "U16", 2},
    [SWN_U32] = {"uint32", "U32", 4},
    [SWN_U64] = {"uint64", "U64", 8},
    [SWN_F4_E2M1FN_X2] = {"float4_e2m1fn_x2", "F4", 1}, /* see swn_dtype_safetensors_elements */
    [SWN_BITS8] = {"bits8", NULL, 1},
    [SWN_BITS16] = {"bits16", NULL, 2},
    [SWN_BITS1X8] = {"bits1x8", NULL, 1},
    [SWN_BITS2X4] = {"bits2x4", NULL, 1},
    [SWN_BITS4X2] = {"bits4x2", NULL, 1},
};

static int known(enum swn_dtype d)
{
    return d > SWN_DTYPE_NONE && d < SWN_DTYPE_COUNT;
}

size_t swn_dtype_size(enum swn_dtype d)
{
    return known(d) ? dtypes[d].bytes : 0;
}

const char *swn_dtype_name(enum swn_dtype d)
{
    return known(d) ? dtypes[d].name : "none";
}

const char *swn_dtype_safetensors(enum swn_dtype d)
{
    return known(d) ? dtypes[d].safetensors : NULL;
}

unsigned swn_dtype_safetensors_elements(enum swn_dtype d)
{
    return d == SWN_F4_E2M1FN_X2 ? 2 : 1;
}
