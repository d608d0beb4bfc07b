/* fuzz_exported - any bytes as the three texts of a torch.export file, which zero bytes part. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "skeleton/tape/exported.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Numbers of values are those of values. */
static void check(const struct swn_exported *e, const struct swn_exported_argument *a)
{
    size_t i;

    if (a->kind == SWN_EXPORTED_VALUE && (a->number < 0 || (size_t)a->number >= e->value_count))
        abort();
    for (i = 0; i < a->count; i++)
        check(e, &a->items[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text[3] = {"", "{\"config\":{}}", "{\"config\":{}}"}, *at = (const char *)data;
    size_t bytes[3] = {0, 13, 13}, i, k;
    struct swn_exported *e;
    char why[SWN_EXPORTED_WHY];

    for (i = 0; i < 3 && at; i++) {
        const char *end = memchr(at, 0, size - (size_t)(at - (const char *)data));

        text[i] = at;
        bytes[i] = end ? (size_t)(end - at) : size - (size_t)(at - (const char *)data);
        at = end ? end + 1 : NULL;
    }
    if (swn_exported_read(&e, text[0], bytes[0], text[1], bytes[1], text[2], bytes[2], why))
        return why[0] ? 0 : (abort(), 0);
    for (i = 0; i < e->node_count; i++) {
        for (k = 0; k < e->nodes[i].input_count; k++)
            check(e, &e->nodes[i].inputs[k]);
        for (k = 0; k < e->nodes[i].output_count; k++)
            check(e, &e->nodes[i].outputs[k]);
    }
    for (i = 0; i < e->output_count; i++) {
        check(e, &e->outputs[i].what);
        if (!e->outputs[i].name)
            abort();
    }
    for (i = 0; i < e->input_count; i++)
        if (e->inputs[i].source != SWN_EXPORTED_CONSTANT && !e->inputs[i].name)
            abort();
    swn_exported_free(e);
    return 0;
}
