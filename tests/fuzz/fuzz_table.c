/* fuzz_table - any bytes as a lookup table of a small model.
 *
 * Checksum and key are made right first, so that mutations get to the lists and rows. Whatever is read must be what the
 * model gives, and survive being written again.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "scheduler/planner/partition_table.h"

#define LAYERS 12

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int holds)
{
    if (!holds)
        abort();
}

static void make_model(struct swn_part_model *m)
{
    struct swn_layer layers[LAYERS];
    struct swn_coefficients c = {1e-9, 5e-5, 2e-11, 1e-6};
    for (unsigned i = 0; i < LAYERS; i++)
        layers[i] = (struct swn_layer){100000 * (1 + i * 7 % 5), 1 + i % 3, 1000000 * (1 + i % 4), -1};
    expect(swn_partition_model(m, layers, LAYERS, &c) == 0);
}

/* The bytes with magic, checksum and key of the model's own table. */
static unsigned char *make_right(const struct swn_part_model *m, const uint8_t *data, size_t size)
{
    struct swn_table none = {.layers = LAYERS};
    unsigned char *head = NULL, *bytes = malloc(size);
    size_t len = 0;
    expect(bytes && swn_table_write(&none, m, &head, &len) == 0 && len == 32);
    memcpy(bytes, data, size);
    memcpy(bytes, head, 8);
    memcpy(bytes + 16, head + 16, 8);
    uint64_t sum = XXH3_64bits(bytes + 16, size - 16);
    memcpy(bytes + 8, &sum, sizeof sum);
    free(head);
    return bytes;
}

static void check(const struct swn_table *t, const struct swn_part_model *m)
{
    unsigned char *bytes;
    size_t len, blocks, first[LAYERS];
    struct swn_part part;
    for (uint32_t i = 0; i < t->lists; i++)
        for (uint32_t k = 0; k < t->list[i].rows; k++) {
            const struct swn_table_row *row = swn_table_find(t, t->list[i].blocks, t->list[i].row[k].part.memory_bytes);
            expect(row == &t->list[i].row[k]);
        }
    for (uint64_t budget = 1; budget < 3 * m->bytes[LAYERS]; budget += 100000)
        if (swn_table_for_budget(t, m, budget, 0.036, &blocks, first, &part) == 0)
            expect(blocks >= 1 && blocks <= LAYERS && part.memory_bytes <= swn_partition_memory(budget, 0.036));
    expect(swn_table_write(t, m, &bytes, &len) == 0);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct swn_part_model m;
    struct swn_table *t;
    if (size < 32 || size > SWN_TABLE_BYTES)
        return 0;
    make_model(&m);
    unsigned char *bytes = make_right(&m, data, size);
    if (swn_table_read(&t, &m, bytes, size) == 0) {
        check(t, &m);
        swn_table_free(t);
    }
    free(bytes);
    swn_partition_model_free(&m);
    return 0;
}
