/* scheduler/json/json_tensor.c - the "data" of a tensor in JSON: see json_tensor.h.
 *
 * One walk serves both: it finds the elements and knows the brackets, and a function takes each element. The compiler
 * makes one loop of each pair.
 */
#define _GNU_SOURCE
#include "scheduler/json/json_tensor.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "scheduler/json/json_number.h"

struct element {
    enum kind { NUMBER, WORD, BOOLEAN, STRING } kind;
    struct swn_json_number number;
    double word; /* NaN, an infinity */
    int truth;
    struct swn_json_span string;
    uint64_t string_bytes;
};

/* What takes elements: NULL, or why it does not. */
typedef const char *take_fn(void *ctx, const struct element *e);

struct walk {
    const char *at, *end;
    const char *why;
    unsigned depth, most;
};

static int take_word(struct walk *w, const char *word)
{
    size_t length = strlen(word);

    if ((size_t)(w->end - w->at) < length || memcmp(w->at, word, length) != 0)
        return 0;
    w->at += length;
    return 1;
}

/* An element that does not begin as a number does. 0, or -1 with w->why. */
static int scan_other(struct walk *w, struct element *e)
{
    const char *close, *where;

    if (*w->at == '"') {
        e->kind = STRING;
        close = swn_json_string(w->at + 1, w->end, &e->string_bytes, &w->why, &where);
        if (!close) {
            w->at = where;
            return -1;
        }
        e->string = (struct swn_json_span){w->at + 1, (size_t)(close - w->at - 1)};
        w->at = close + 1;
        return 0;
    }
    e->kind = BOOLEAN;
    e->truth = *w->at == 't';
    if (take_word(w, "true") || take_word(w, "false"))
        return 0;
    e->kind = WORD;
    e->word = *w->at == '-' ? -INFINITY : INFINITY;
    if (take_word(w, "Infinity") || take_word(w, "-Infinity"))
        return 0;
    e->word = NAN;
    if (take_word(w, "NaN"))
        return 0;
    w->why = "this is no element of a tensor";
    return -1;
}

static inline int scan_element(struct walk *w, struct element *e)
{
    unsigned length = swn_json_number_scan(w->at, w->end, &e->number);

    if (!length)
        return scan_other(w, e);
    e->kind = NUMBER;
    w->at += length;
    return 0;
}

/* Per level: how many values its array has so far. Compares an array that ends with the first one of its level. */
struct levels {
    uint64_t count[SWN_JSON_DEPTH];
    struct swn_json_array *array; /* NULL: nobody asks */
};

static void level_ended(struct levels *levels, unsigned level)
{
    struct swn_json_array *a = levels->array;

    if (!a)
        return;
    if (a->lengths[level] == UINT64_MAX)
        a->lengths[level] = levels->count[level];
    else if (a->lengths[level] != levels->count[level])
        a->is_ragged = 1;
}

/* Opens arrays at w->at until something else comes. 1: a value is next; 0: the last of them is empty; -1. */
static int open_arrays(struct walk *w, struct levels *levels)
{
    int opened = 0;

    while (w->at < w->end && *w->at == '[') {
        if (w->depth == w->most) {
            w->why = "the nesting is too deep";
            return -1;
        }
        levels->count[w->depth++] = 0;
        w->at = swn_json_space(w->at + 1, w->end);
        opened = 1;
    }
    return !(opened && w->at < w->end && *w->at == ']');
}

/* Closes arrays until a comma follows. 1: a value is next; 0: all are closed; -1. */
static int close_arrays(struct walk *w, struct levels *levels)
{
    for (;;) {
        w->at = swn_json_space(w->at, w->end);
        if (w->at == w->end) {
            w->why = "the text ends too early";
            return -1;
        }
        if (*w->at == ',') {
            w->at = swn_json_space(w->at + 1, w->end);
            return 1;
        }
        if (*w->at != ']') {
            w->why = "a comma is missing";
            return -1;
        }
        w->at++;
        level_ended(levels, --w->depth);
        if (w->depth == 0)
            return 0;
        levels->count[w->depth - 1]++;
    }
}

/* Elements are on one level only, unless the array is ragged. */
static void element_found(struct levels *levels, unsigned depth)
{
    struct swn_json_array *a = levels->array;

    levels->count[depth - 1]++;
    if (!a || a->depth == depth)
        return;
    if (a->depth)
        a->is_ragged = 1;
    a->depth = a->depth > depth ? a->depth : depth;
}

static inline __attribute__((always_inline)) int walk_array(struct walk *w, struct levels *levels, take_fn *take,
                                                            void *ctx)
{
    struct element e;

    for (;;) {
        int more = open_arrays(w, levels);
        if (more < 0)
            return -1;
        if (more) {
            const char *begin = w->at;
            if (w->at == w->end) {
                w->why = "the text ends too early";
                return -1;
            }
            if (scan_element(w, &e))
                return -1;
            w->why = take(ctx, &e);
            if (w->why) {
                w->at = begin;
                return -1;
            }
            element_found(levels, w->depth);
        }
        more = close_arrays(w, levels);
        if (more <= 0)
            return more;
    }
}

static inline const char *count_element(void *ctx, const struct element *e)
{
    struct swn_json_array *a = ctx;

    a->numbers += e->kind == NUMBER;
    a->words += e->kind == WORD;
    a->booleans += e->kind == BOOLEAN;
    if (e->kind == STRING) {
        a->strings++;
        a->string_bytes += e->string_bytes;
    }
    return NULL;
}

const char *swn_json_array_measure(const char *at, const char *end, unsigned most, struct swn_json_array *array,
                                   const char **why, const char **where)
{
    struct levels levels = {.array = array};
    struct walk w = {.at = at, .end = end, .most = most};

    *array = (struct swn_json_array){0};
    memset(array->lengths, 0xff, sizeof array->lengths);
    if (most > SWN_JSON_DEPTH)
        w.most = SWN_JSON_DEPTH;
    if (at == end || *at != '[')
        w.why = "this is no array";
    else if (walk_array(&w, &levels, count_element, array) == 0)
        return w.at;
    *why = w.why;
    *where = w.at;
    return NULL;
}

int swn_json_array_fits(const struct swn_json_array *array, const int64_t *shape, unsigned rank)
{
    uint64_t have = array->numbers + array->words + array->booleans + array->strings, want = 1;
    unsigned d = 0;

    for (unsigned i = 0; i < rank; i++)
        if (__builtin_mul_overflow(want, (uint64_t)shape[i], &want))
            return 0;
    if (have != want)
        return 0;
    if (array->depth <= 1 || want == 0)
        return 1;
    if (array->is_ragged)
        return 0;
    /* Each level is one dimension or several that follow each other. */
    for (unsigned level = 0; level < array->depth; level++) {
        uint64_t length = 1;
        while (length < array->lengths[level] && d < rank)
            length *= (uint64_t)shape[d++];
        if (length != array->lengths[level])
            return 0;
    }
    return 1;
}

struct writer {
    char *at, *end;
    enum swn_element element;
    size_t each;
};

static const char *changed = "the array has another number of elements than it had";

static const struct {
    int64_t least;
    uint64_t most;
} ranges[SWN_ELEMENTS] = {
    [SWN_ELEMENT_UINT8] = {0, UINT8_MAX},         [SWN_ELEMENT_UINT16] = {0, UINT16_MAX},
    [SWN_ELEMENT_UINT32] = {0, UINT32_MAX},       [SWN_ELEMENT_UINT64] = {0, UINT64_MAX},
    [SWN_ELEMENT_INT8] = {INT8_MIN, INT8_MAX},    [SWN_ELEMENT_INT16] = {INT16_MIN, INT16_MAX},
    [SWN_ELEMENT_INT32] = {INT32_MIN, INT32_MAX}, [SWN_ELEMENT_INT64] = {INT64_MIN, INT64_MAX},
};

/* The lowest `each` bytes of value, the least significant first. */
static inline void put(struct writer *w, uint64_t value, size_t each)
{
    value = htole64(value);
    memcpy(w->at, &value, each);
    w->at += each;
}

static const char *write_integer(struct writer *w, const struct element *e)
{
    uint64_t value;
    int64_t number = 0;
    int rc;

    if (e->kind != NUMBER)
        return "an integer is expected";
    if (ranges[w->element].least == 0) {
        rc = swn_json_number_unsigned(&e->number, ranges[w->element].most, &value);
    } else {
        rc = swn_json_number_signed(&e->number, ranges[w->element].least, (int64_t)ranges[w->element].most, &number);
        value = (uint64_t)number;
    }
    if (rc < 0)
        return rc == -ERANGE ? "this integer is out of the range of its type" : "an integer is expected";
    put(w, value, w->each);
    return NULL;
}

static inline const char *write_float(struct writer *w, const struct element *e)
{
    float value = (float)e->word;
    uint32_t bits;

    if (e->kind == NUMBER) {
        if (swn_json_number_float(&e->number, &value))
            return "this number is out of the range of FP32";
    } else if (e->kind != WORD) {
        return "a number is expected";
    }
    memcpy(&bits, &value, sizeof bits);
    put(w, bits, sizeof bits);
    return NULL;
}

static const char *write_double(struct writer *w, const struct element *e)
{
    double value = e->word;
    uint64_t bits;

    if (e->kind == NUMBER) {
        if (swn_json_number_double(&e->number, &value))
            return "this number is out of the range of FP64";
    } else if (e->kind != WORD) {
        return "a number is expected";
    }
    memcpy(&bits, &value, sizeof bits);
    put(w, bits, sizeof bits);
    return NULL;
}

static const char *write_string(struct writer *w, const struct element *e)
{
    if (e->kind != STRING)
        return "a string is expected";
    if (e->string_bytes > UINT32_MAX)
        return "this string is too long";
    if ((size_t)(w->end - w->at) - 4 < e->string_bytes)
        return changed;
    put(w, e->string_bytes, 4);
    /* What it decodes to by now may be longer, but no more than this is written. */
    swn_json_decode(e->string, w->at, e->string_bytes);
    w->at += e->string_bytes;
    return NULL;
}

static inline const char *write_element(void *ctx, const struct element *e)
{
    struct writer *w = ctx;

    if ((size_t)(w->end - w->at) < w->each)
        return changed;
    switch (w->element) {
    case SWN_ELEMENT_FP32:
        return write_float(w, e);
    case SWN_ELEMENT_FP64:
        return write_double(w, e);
    case SWN_ELEMENT_BYTES:
        return write_string(w, e);
    case SWN_ELEMENT_BOOL:
        if (e->kind != BOOLEAN)
            return "true or false is expected";
        *w->at++ = (char)e->truth;
        return NULL;
    default:
        return ranges[w->element].most ? write_integer(w, e) : "JSON has no elements of this type";
    }
}

int swn_json_array_write(const char *at, const char *end, enum swn_element element, void *to, size_t bytes,
                         const char **why, const char **where)
{
    struct levels levels = {.array = NULL};
    struct walk w = {.at = at, .end = end, .most = SWN_JSON_DEPTH};
    struct writer writer = {.at = to, .end = (char *)to + bytes, .element = element};

    writer.each = element == SWN_ELEMENT_BYTES ? 4 : swn_element_bytes(element);
    if (at == end || *at != '[' || element >= SWN_ELEMENTS)
        w.why = "this is no array";
    else if (walk_array(&w, &levels, write_element, &writer) == 0) {
        if (writer.at == writer.end)
            return 0;
        w.why = changed;
    }
    *why = w.why;
    *where = w.at;
    return -EINVAL;
}
