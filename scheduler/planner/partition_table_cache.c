/* scheduler/planner/partition_table_cache.c - the table beside a store, made when it is first needed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "blocks/store/store.h"
#include "scheduler/planner/partition_table.h"

/* The user did not ask for the table; where it ends, later plans are searched in milliseconds. */
#define MOST_SECONDS 1.0

int swn_table_path(const char *store_path, char *out, size_t size)
{
    int n = store_path ? snprintf(out, size, "%s%s", store_path, SWN_TABLE_SUFFIX) : -1;
    return n > 0 && (size_t)n < size;
}

/* Whether a file can be made there: else each plan would spend the time again. */
static int can_make(const char *path)
{
    char directory[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int n = slash ? snprintf(directory, sizeof directory, "%.*s/", (int)(slash - path), path)
                  : snprintf(directory, sizeof directory, ".");
    return n > 0 && (size_t)n < sizeof directory && faccessat(AT_FDCWD, directory, W_OK | X_OK, AT_EACCESS) == 0;
}

static int open_table(struct swn_table **out, const char *path, const struct swn_part_model *m)
{
    int rc = swn_table_load(out, m, path);
    if ((rc != -ENOENT && rc != -ESTALE && rc != -EILSEQ) || !can_make(path)) /* a larger file is foreign: -EFBIG */
        return rc;
    rc = swn_table_make(out, m, MOST_SECONDS);
    if (!rc)
        (void)swn_table_save(*out, m, path); /* if this fails the next plan makes the table again */
    return rc;
}

int swn_table_plan(const char *store_path, const struct swn_part_model *m, uint64_t budget_bytes, double delta,
                   size_t *blocks, size_t *first, struct swn_part *out, int *from_table)
{
    struct swn_table *table;
    char path[PATH_MAX];
    int rc = -ENODATA;
    if (swn_table_path(store_path, path, sizeof path) && open_table(&table, path, m) == 0) {
        rc = swn_table_for_budget(table, m, budget_bytes, delta, blocks, first, out);
        swn_table_free(table);
    }
    *from_table = !rc;
    return rc == -ENODATA ? swn_partition_for_budget(m, budget_bytes, delta, blocks, first, out) : rc;
}
