/* scheduler/oip/oip_classes.c - see oip_classes.h. */
#define _GNU_SOURCE
#include "scheduler/oip/oip_classes.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 4
#define CLASS_TEXT 12         /* ":CLASS:" */
#define INTEGER_TEXT 20       /* digits and sign */
#define FLOAT_TEXT 48         /* %f of the largest FP32: 39 digits, the sign, the point and 6 more */
#define DOUBLE_TEXT 320       /* the same of FP64: 309 digits */
#define ELEMENTS_MOST 1000000 /* as in Triton: what a thread of the front computes for one answer is bounded */

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

/* An element whose number has been read: keys are in the order of numbers. */
struct candidate {
    uint64_t key;
    uint32_t class;
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
        return swn_oip_fail(error, 400, "'%s': class result not available for output due to unsupported type '%s'",
                            t->name, swn_element_name(t->element));
    if (swn_wire_tensor_bytes(t, &bytes) || swn_wire_tensor_elements(t, &elements) || bytes != t->bytes)
        return swn_oip_fail(error, 500, "output '%s' does not have the bytes of its shape", t->name);
    if (elements > ELEMENTS_MOST)
        return swn_oip_fail(error, 400, "'%s': classification output tensor too large: at most %d elements", t->name,
                            ELEMENTS_MOST);
    d = divide(t, count, has_batch);
    /* At most 10^6 texts and 1 MiB of labels for each of at most 10^6 samples: no overflow. */
    *room = elements ? d.samples * (d.classes * each + swn_labels_room(labels, t->name, d.classes)) : 0;
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

/* NaNs come behind all others, and both zeros are one number. */
static uint64_t float_key(double value)
{
    const uint64_t sign = 1ULL << 63;
    uint64_t bits;

    if (isnan(value))
        return 0;
    value += 0.0;
    memcpy(&bits, &value, sizeof bits);
    return bits & sign ? ~bits : bits | sign;
}

static struct candidate candidate(const struct sample *s, uint32_t class)
{
    struct candidate c = {.class = class};

    if (is_float(s->element))
        c.key = float_key(load_double(s, class));
    else if (is_signed(s->element))
        c.key = (uint64_t)load_signed(s, class) ^ 1ULL << 63;
    else
        c.key = load(s, class);
    return c;
}

static int comes_before(struct candidate a, struct candidate b)
{
    return a.key != b.key ? a.key > b.key : a.class < b.class;
}

/* Of a heap whose first candidate comes after all others. */
static void sift_down(struct candidate *heap, uint32_t count, uint32_t at)
{
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        struct candidate moved = heap[at];
        if (child + 1 < count && comes_before(heap[child], heap[child + 1]))
            child++;
        if (!comes_before(moved, heap[child]))
            return;
        heap[at] = heap[child];
        heap[child] = moved;
    }
}

/* The first `count` classes in their order. */
static void select_classes(const struct sample *s, uint32_t elements, struct candidate *to, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        to[i] = candidate(s, i);
    for (uint32_t i = count / 2; i-- > 0;)
        sift_down(to, count, i);
    for (uint32_t i = count; i < elements; i++) {
        struct candidate c = candidate(s, i);
        if (comes_before(c, to[0])) {
            to[0] = c;
            sift_down(to, count, 0);
        }
    }
    for (uint32_t left = count; left-- > 1;) {
        struct candidate last = to[0];
        to[0] = to[left];
        to[left] = last;
        sift_down(to, left, 0);
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

int swn_oip_classes_write(const struct swn_wire_tensor *t, const void *data, uint32_t count, int has_batch,
                          const struct swn_labels *labels, void *to, struct swn_wire_tensor *out)
{
    struct division d = divide(t, count, has_batch);
    struct sample s = {.element = t->element, .each = swn_element_bytes(t->element), .data = data};
    struct candidate *found = NULL; /* not in the buffer, where an engine could change it */
    uint64_t samples = d.classes ? d.samples : 0;
    char *at = to;

    if (samples && !(found = calloc(d.classes, sizeof *found)))
        return -ENOMEM;
    for (uint64_t i = 0; i < samples; i++, s.data += d.elements * s.each) {
        select_classes(&s, (uint32_t)d.elements, found, d.classes);
        for (uint32_t k = 0; k < d.classes; k++)
            at = put_class(&s, found[k].class, labels, t->name, at);
    }
    free(found);
    *out = (struct swn_wire_tensor){.element = SWN_ELEMENT_BYTES, .bytes = (uint64_t)(at - (char *)to)};
    memcpy(out->name, t->name, sizeof out->name);
    if (has_batch && t->rank > 0)
        out->shape[out->rank++] = t->shape[0];
    out->shape[out->rank++] = d.classes;
    return 0;
}
