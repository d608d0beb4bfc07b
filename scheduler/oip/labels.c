/* scheduler/oip/labels.c - see labels.h. */
#include "scheduler/oip/labels.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/json/utf8.h"
#include "scheduler/protocol/engine_wire.h"

struct output_labels {
    char output[SWN_WIRE_TENSOR_NAME];
    char *text;
    uint32_t *ends; /* of each line, and before the first of these 0: a line begins where the one before it ends */
    size_t count, longest, bytes; /* bytes: of all lines */
};

struct swn_labels {
    atomic_uint holders;
    unsigned count;
    size_t bytes; /* of memory for all of them */
    struct output_labels of[SWN_WIRE_TENSORS];
};

struct swn_labels *swn_labels_new(void)
{
    struct swn_labels *labels = calloc(1, sizeof *labels);

    if (labels)
        atomic_init(&labels->holders, 1);
    return labels;
}

/* Lines without their ends follow each other in `to`. */
static void take_lines(struct output_labels *to, const char *text, size_t bytes)
{
    const char *end = text + bytes;
    uint32_t used = 0;

    to->ends[0] = 0;
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *line_end = newline ? newline : end;
        size_t length = (size_t)(line_end - text);
        length -= length && text[length - 1] == '\r';
        memcpy(to->text + used, text, length);
        used += (uint32_t)length;
        to->ends[++to->count] = used;
        to->longest = length > to->longest ? length : to->longest;
        text = newline ? newline + 1 : end;
    }
    to->bytes = used;
}

int swn_labels_add(struct swn_labels *labels, const char *output, const char *text, size_t bytes)
{
    struct output_labels *to = &labels->of[labels->count];
    size_t lines = 1, length = 0, all;

    if (bytes > SWN_LABELS_BYTES)
        return -EFBIG;
    if (labels->count == SWN_WIRE_TENSORS)
        return -E2BIG;
    if (!swn_utf8_is_valid(text, bytes))
        return -EILSEQ;
    for (size_t i = 0; i < bytes; i++) {
        int is_end = text[i] == '\n' || (text[i] == '\r' && (i + 1 == bytes || text[i + 1] == '\n'));
        lines += text[i] == '\n';
        length = is_end ? 0 : length + 1;
        if (length > SWN_LABEL_BYTES)
            return -EFBIG;
    }
    all = bytes + (lines + 1) * sizeof *to->ends;
    if (all > SWN_LABELS_BYTES - labels->bytes)
        return -EFBIG;
    *to = (struct output_labels){.text = malloc(bytes + 1), .ends = calloc(lines + 1, sizeof *to->ends)};
    if (!to->text || !to->ends) {
        free(to->text);
        free(to->ends);
        return -ENOMEM;
    }
    snprintf(to->output, sizeof to->output, "%s", output);
    take_lines(to, text, bytes);
    labels->count++;
    labels->bytes += all;
    return 0;
}

struct swn_labels *swn_labels_hold(struct swn_labels *labels)
{
    if (labels)
        atomic_fetch_add(&labels->holders, 1);
    return labels;
}

void swn_labels_drop(struct swn_labels *labels)
{
    if (!labels || atomic_fetch_sub(&labels->holders, 1) != 1)
        return;
    for (unsigned i = 0; i < labels->count; i++) {
        free(labels->of[i].text);
        free(labels->of[i].ends);
    }
    free(labels);
}

static const struct output_labels *find(const struct swn_labels *labels, const char *output)
{
    for (unsigned i = 0; labels && i < labels->count; i++)
        if (strcmp(labels->of[i].output, output) == 0)
            return &labels->of[i];
    return NULL;
}

const char *swn_labels_get(const struct swn_labels *labels, const char *output, uint64_t class, size_t *bytes)
{
    const struct output_labels *of = find(labels, output);

    if (!of || class >= of->count)
        return NULL;
    *bytes = of->ends[class + 1] - of->ends[class];
    return of->text + of->ends[class];
}

size_t swn_labels_room(const struct swn_labels *labels, const char *output, size_t classes)
{
    const struct output_labels *of = find(labels, output);

    if (!of)
        return 0;
    return classes < of->count && classes * of->longest < of->bytes ? classes * of->longest : of->bytes;
}
