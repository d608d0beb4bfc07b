/* scheduler/planner/partition_table.h - lookup tables: the partitions of a model that can ever be the best for some
 * budget (SwapNet table 3).
 *
 * The paper stores every partition into n blocks and discards at run time those that do not fit. Only the fastest that
 * fits a budget is used, so a partition is never used if another one is as fast with less memory. The table holds the
 * others for each n: ascending in memory, descending in latency. It is computed once per model and set of coefficients
 * and stored beside the block store; looking up a budget is a binary search.
 *
 * The file, little-endian: 8 bytes "SWNTABL1"; u64 XXH3-64 of all that follows; u64 key of the model (its layers' bytes
 * and delays); u32 layers; u32 number of lists; per list u32 blocks, u32 rows, u32 complete, u32 zero; u64 most memory
 * it covers; then the rows in order: u64 memory, f64 latency; then the points in order: u32 first layer of each block
 * but the first. A file that is not exactly that, or whose rows are not what the model gives, is refused.
 */
#ifndef SWN_SCHEDULER_PLANNER_PARTITION_TABLE_H
#define SWN_SCHEDULER_PLANNER_PARTITION_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "scheduler/planner/partition.h"

#define SWN_TABLE_BYTES ((size_t)1000000) /* no file is larger */
#define SWN_TABLE_BLOCKS 32
#define SWN_TABLE_ROWS 96 /* per number of blocks */
#define SWN_TABLE_NEAR 0.01

struct swn_table_row {
    struct swn_part part;
    const uint32_t *points; /* blocks - 1 */
};

/* All partitions into `blocks` blocks. */
struct swn_table_list {
    uint32_t blocks, rows;
    int complete; /* 0: there were too many rows, and some are left out; each costs less than half a percent of memory
                   */
    uint64_t most_memory; /* with more memory fewer blocks are used, and nothing was computed */
    struct swn_table_row *row;
};

struct swn_table {
    uint32_t layers, lists;
    struct swn_table_list *list; /* ascending in blocks */
    void *memory;
};

/* Makes the table for 1 to SWN_TABLE_BLOCKS blocks, as far as the size of the file and `most_s` of processor time allow
 * (0: any time); large budgets come first. 0 or -ENOMEM. */
int swn_table_make(struct swn_table **out, const struct swn_part_model *m, double most_s);
void swn_table_free(struct swn_table *t);

/* The fastest row that fits the memory, in the list for `blocks` blocks. NULL: there is none, or no such list. */
const struct swn_table_row *swn_table_find(const struct swn_table *t, size_t blocks, uint64_t memory_bytes);

/* As swn_partition_for_budget, from the table. out->exact is 0 where rows are left out; then the result takes at most
 * SWN_TABLE_NEAR longer than the best, unless the search itself gave up when the table was made. -ENODATA: the table
 * has no answer; the caller asks swn_partition_for_budget. */
int swn_table_for_budget(const struct swn_table *t, const struct swn_part_model *m, uint64_t budget_bytes, double delta,
                         size_t *blocks, size_t *first, struct swn_part *out);

/* The bytes of the file, malloc'd. 0, -ENOMEM. */
int swn_table_write(const struct swn_table *t, const struct swn_part_model *m, unsigned char **bytes, size_t *len);
/* 0; -EINVAL: not a table; -EILSEQ: damaged; -ESTALE: of another model or other coefficients; -ENOMEM. */
int swn_table_read(struct swn_table **out, const struct swn_part_model *m, const unsigned char *bytes, size_t len);

/* The same, to and from a file. 0, one of the above, or -errno of the file. */
int swn_table_save(const struct swn_table *t, const struct swn_part_model *m, const char *path);
int swn_table_load(struct swn_table **out, const struct swn_part_model *m, const char *path);

/* As swn_partition_for_budget, for a store, or for another model (NULL). Looks up the table beside the store. If there
 * is none for this model, makes as much of it as takes little time, and saves it where possible; without a table,
 * searches. A foreign file under that name stays. */
int swn_table_plan(const char *store_path, const struct swn_part_model *m, uint64_t budget_bytes, double delta,
                   size_t *blocks, size_t *first, struct swn_part *out, int *from_table);

/* The path of a store's table; 0 when that is too long, or store_path is NULL. */
int swn_table_path(const char *store_path, char *out, size_t size);

#endif
