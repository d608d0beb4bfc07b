/* scheduler/oip/oip_classes.c - see oip_classes.h. */
#define _GNU_SOURCE
#include "scheduler/oip/oip_classes.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LENGTH_BYTES 4
#define CLASS_TEXT 12   /* ":CLASS:" */
#define INTEGER_TEXT 20 /* digits and sign */
#define FLOAT_TEXT 48   /* %f of the largest FP32: 39 digits, the sign, the point and 6 more */
#define DOUBLE_TEXT 320 /* the same of FP64: 309 digits */
#define CLASSES_MOST UINT32_MAX

struct sample {
    enum swn_element element;
    size_t each;
    const char *data;
};

/* Of a tensor, in samples. */
struct division {
    uint64_t samples, elements; /* of a sample */
    uint32_t classes;           /* of a sample */
};

static int has_order(enum swn_element element)
{
    switch (element) {
    case SWN_ELEMENT_NONE:
    case SWN_ELEMENT_BOOL:
    case SWN_ELEMENT_FP16:
    case SWN_ELEMENT_BF16:
    case SWN_ELEMENT_BYTES:
        return 0;
    default:
        return swn_element_bytes(element) > 0;
    }
}

static struct division divide(const struct swn_wire_tensor *t, uint32_t count, int has_batch)
{
    unsigned is_batch = has_batch && t->rank > 0;
    struct division d = {.samples = is_batch ? (uint64_t)t->shape[0] : 1, .elements = 1};

    for (unsigned i = is_batch; i < t->rank; i++)
        d.elements *= (uint64_t)t->shape[i]; /* bounded: swn_wire_tensor_elements is */
    d.classes = d.elements < count ? (uint32_t)d.elements : count;
    return d;
}

static uint64_t text_most(enum swn_element element)
{
    return element == SWN_ELEMENT_FP64 ? DOUBLE_TEXT : element == SWN_ELEMENT_FP32 ? FLOAT_TEXT : INTEGER_TEXT;
}

int swn_oip_classes_room(const struct swn_wire_tensor *t, uint32_t count, int has_batch,
                         const struct swn_labels *labels, uint64_t *room, struct swn_oip_error *error)
{
    uint64_t bytes, elements, each = LENGTH_BYTES + text_most(t->element) + CLASS_TEXT;
    struct division d;

    if (!has_order(t->element))
        return swn_oip_fail(error, 400, "class result not available for output '%s' due to unsupported type '%s'",
                            t->name, swn_element_name(t->element));
    if (swn_wire_tensor_bytes(t, &bytes) || swn_wire_tensor_elements(t, &elements) || bytes != t->bytes)
        return swn_oip_fail(error, 500, "output '%s' does not have the bytes of its shape", t->name);
    if (elements > CLASSES_MOST)
        return swn_oip_fail(error, 400, "output '%s' has too many elements for classes", t->name);
    d = divide(t, count, has_batch);
    each += swn_labels_longest(labels, t->name);
    /* Below 2^32 texts of at most 4 MiB and some: no overflow. */
    *room = elements ? d.samples * d.classes * each + (d.classes + 1) * sizeof(uint32_t) : 0;
    return 0;
}

static uint64_t load(const struct sample *s, uint32_t i)
{
    uint64_t value = 0;

    memcpy(&value, s->data + (size_t)i * s->each, s->each);
    return le64toh(value);
}

static double load_double(const struct sample *s, uint32_t i)
{
    uint64_t bits = load(s, i);
    uint32_t low = (uint32_t)bits;
    float single;
    double value;

    memcpy(&single, &low, sizeof single);
    memcpy(&value, &bits, sizeof value);
    return s->element == SWN_ELEMENT_FP32 ? (double)single : value;
}

static int64_t load_signed(const struct sample *s, uint32_t i)
{
    unsigned above = 64 - 8 * (unsigned)s->each;

    return (int64_t)(load(s, i) << above) >> above;
}

static int is_float(enum swn_element element)
{
    return element == SWN_ELEMENT_FP32 || element == SWN_ELEMENT_FP64;
}

static int is_signed(enum swn_element element)
{
    return element == SWN_ELEMENT_INT8 || element == SWN_ELEMENT_INT16 || element == SWN_ELEMENT_INT32 ||
           element == SWN_ELEMENT_INT64;
}

/* Whether class a comes before class b. */
static int comes_before(const struct sample *s, uint32_t a, uint32_t b)
{
    if (is_float(s->element)) {
        double x = load_double(s, a), y = load_double(s, b);
        if (isnan(x) || isnan(y))
            return isnan(x) && isnan(y) ? a < b : isnan(y);
        return x != y ? x > y : a < b;
    }
    if (is_signed(s->element)) {
        int64_t x = load_signed(s, a), y = load_signed(s, b);
        return x != y ? x > y : a < b;
    }
    uint64_t x = load(s, a), y = load(s, b);
    return x != y ? x > y : a < b;
}

/* Of a heap whose first class comes after all others. */
static void sift_down(const struct sample *s, uint32_t *heap, uint32_t count, uint32_t at)
{
    for (uint64_t child; (child = 2 * (uint64_t)at + 1) < count; at = (uint32_t)child) {
        uint32_t moved = heap[at];
        if (child + 1 < count && comes_before(s, heap[child], heap[child + 1]))
            child++;
        if (!comes_before(s, moved, heap[child]))
            return;
        heap[at] = heap[child];
        heap[child] = moved;
    }
}

/* The first `count` classes in their order. */
static void select_classes(const struct sample *s, uint64_t elements, uint32_t *to, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        to[i] = i;
    for (uint32_t i = count / 2; i-- > 0;)
        sift_down(s, to, count, i);
    for (uint64_t i = count; i < elements; i++)
        if (comes_before(s, (uint32_t)i, to[0])) {
            to[0] = (uint32_t)i;
            sift_down(s, to, count, 0);
        }
    for (uint32_t left = count; left-- > 1;) {
        uint32_t last = to[0];
        to[0] = to[left];
        to[left] = last;
        sift_down(s, to, left, 0);
    }
}

/* Returns where the text ends. */
static char *put_class(const struct sample *s, uint32_t class, const struct swn_labels *labels, const char *output,
                       char *to)
{
    char text[DOUBLE_TEXT + CLASS_TEXT];
    size_t label_bytes = 0;
    const char *label = swn_labels_get(labels, output, class, &label_bytes);
    uint32_t bytes;
    int n;

    if (is_float(s->element))
        n = snprintf(text, sizeof text, "%f", load_double(s, class));
    else if (is_signed(s->element))
        n = snprintf(text, sizeof text, "%" PRId64, load_signed(s, class));
    else
        n = snprintf(text, sizeof text, "%" PRIu64, load(s, class));
    n += snprintf(text + n, sizeof text - (size_t)n, ":%" PRIu32 "%s", class, label ? ":" : "");
    bytes = htole32((uint32_t)n + (uint32_t)label_bytes);
    memcpy(to, &bytes, LENGTH_BYTES);
    memcpy(to + LENGTH_BYTES, text, (size_t)n);
    if (label)
        memcpy(to + LENGTH_BYTES + n, label, label_bytes);
    return to + LENGTH_BYTES + n + label_bytes;
}

void swn_oip_classes_write(const struct swn_wire_tensor *t, const void *data, uint32_t count, int has_batch,
                           const struct swn_labels *labels, void *to, uint64_t room, struct swn_wire_tensor *out)
{
    struct division d = divide(t, count, has_batch);
    struct sample s = {.element = t->element, .each = swn_element_bytes(t->element), .data = data};
    char *at = to;
    /* What is found lies behind the texts. */
    uint32_t *found = room ? (uint32_t *)((char *)to + (room / sizeof *found - d.classes) * sizeof *found) : NULL;

    for (uint64_t i = 0; room && i < d.samples; i++, s.data += d.elements * s.each) {
        select_classes(&s, d.elements, found, d.classes);
        for (uint32_t k = 0; k < d.classes; k++)
            at = put_class(&s, found[k], labels, t->name, at);
    }
    *out = (struct swn_wire_tensor){.element = SWN_ELEMENT_BYTES, .bytes = (uint64_t)(at - (char *)to)};
    memcpy(out->name, t->name, sizeof out->name);
    if (has_batch && t->rank > 0)
        out->shape[out->rank++] = t->shape[0];
    out->shape[out->rank++] = d.classes;
}
