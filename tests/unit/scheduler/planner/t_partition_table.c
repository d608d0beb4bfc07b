/* Description: looking a budget up gives the partition that a search over all of them gives; damaged tables are
 * refused.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "scheduler/planner/partition_table.h"
#include "tests/unit/support/random.h"

#define MOST 14

static void random_model(struct swn_part_model *m, size_t n)
{
    struct swn_layer *layers = calloc(n, sizeof *layers);
    struct swn_coefficients c = {1e-9, 5e-5, 2e-11, rnd_below(2) ? 0 : 1e-4};
    for (size_t i = 0; i < n; i++)
        layers[i] = (struct swn_layer){(1 + rnd_below(20)) * 100000, rnd_below(7), (1 + rnd_below(100)) * 1000000, -1};
    assert_int_equal(swn_partition_model(m, layers, n, &c), 0);
    free(layers);
}

static void test_lookup(void **state)
{
    (void)state;
    for (int run = 0; run < 25; run++) {
        struct swn_part_model m;
        struct swn_table *t;
        size_t n = 1 + rnd_below(MOST), blocks, found, first[MOST], wanted[MOST];
        random_model(&m, n);
        assert_int_equal(swn_table_make(&t, &m, 0), 0);
        assert_int_equal(t->lists, n);
        for (int i = 0; i < 60; i++) {
            uint64_t budget = 1 + rnd_below(m.bytes[n] * 5 / 2);
            double delta = i % 2 ? 0.036 : 0;
            struct swn_part part, best;
            int rc = swn_table_for_budget(t, &m, budget, delta, &found, first, &part);
            int want = swn_partition_for_budget(&m, budget, delta, &blocks, wanted, &best);
            if (rc == -ENODATA && want == -ENOSPC)
                continue; /* too little for any number of blocks */
            assert_int_equal(rc, want);
            assert_int_equal(found, blocks);
            assert_true(part.exact && best.exact && part.memory_bytes <= swn_partition_memory(budget, delta));
            assert_true(part.latency_s < best.latency_s * (1 + 1e-9) && part.latency_s > best.latency_s * (1 - 1e-9));
        }
        assert_null(swn_table_find(t, n + 1, UINT64_MAX));
        assert_null(swn_table_find(t, 0, UINT64_MAX));
        swn_table_free(t);
        swn_partition_model_free(&m);
    }
}

static void compare(const struct swn_table *a, const struct swn_table *b)
{
    assert_int_equal(a->lists, b->lists);
    for (uint32_t i = 0; i < a->lists; i++) {
        assert_int_equal(a->list[i].rows, b->list[i].rows);
        assert_int_equal(a->list[i].complete, b->list[i].complete);
        for (uint32_t k = 0; k < a->list[i].rows; k++)
            assert_memory_equal(a->list[i].row[k].points, b->list[i].row[k].points,
                                (a->list[i].blocks - 1) * sizeof(uint32_t));
    }
}

static void test_file(void **state)
{
    (void)state;
    struct swn_part_model m, other;
    struct swn_table *t, *back;
    char path[] = "/tmp/swn-table-XXXXXX";
    close(mkstemp(path));
    random_model(&m, 12);
    random_model(&other, 12);
    assert_int_equal(swn_table_make(&t, &m, 0), 0);
    assert_int_equal(swn_table_save(t, &m, path), 0);
    assert_int_equal(swn_table_load(&back, &m, path), 0);
    compare(t, back);
    swn_table_free(back);
    assert_int_equal(swn_table_load(&back, &other, path), -ESTALE);
    unlink(path);
    assert_int_equal(swn_table_load(&back, &m, path), -ENOENT);
    swn_table_free(t);
    swn_partition_model_free(&m);
    swn_partition_model_free(&other);
}

/* What is no table stays, however large it is; a table is made where there is none. */
static void test_beside_a_store(void **state)
{
    (void)state;
    struct swn_part_model m;
    char dir[] = "/tmp/swn-table-XXXXXX", store[64], path[80];
    size_t blocks, first[12];
    struct swn_part part;
    struct stat st;
    int from_table;
    assert_non_null(mkdtemp(dir));
    snprintf(store, sizeof store, "%s/m.store", dir);
    assert_true(swn_table_path(store, path, sizeof path));
    random_model(&m, 12);
    for (off_t size = 0; size < 3000000; size += 1500000) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        assert_int_equal(ftruncate(fileno(f), size), 0);
        fclose(f);
        assert_int_equal(swn_table_plan(store, &m, m.bytes[12], 0, &blocks, first, &part, &from_table), 0);
        assert_false(from_table);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size, size);
    }
    unlink(path);
    assert_int_equal(swn_table_plan(store, &m, m.bytes[12], 0, &blocks, first, &part, &from_table), 0);
    assert_true(from_table);
    assert_int_equal(unlink(path), 0);
    rmdir(dir);
    swn_partition_model_free(&m);
}

/* Equal layers tie everywhere, and what rounding makes of that: the table can be read again. */
static void test_ties(void **state)
{
    (void)state;
    struct swn_part_model m;
    struct swn_table *t, *back;
    struct swn_layer layers[20];
    struct swn_coefficients c = {1e-9, 1e-5, 0, 1e-6};
    unsigned char *bytes;
    size_t len;
    for (size_t unit = 4096; unit <= 4096 << 8; unit *= 2) {
        for (size_t i = 0; i < 20; i++)
            layers[i] = (struct swn_layer){unit * (1 + i * 7 % 5), 1, 0, 1e-5 * (double)(1 + i % 3)};
        assert_int_equal(swn_partition_model(&m, layers, 20, &c), 0);
        assert_int_equal(swn_table_make(&t, &m, 0), 0);
        assert_int_equal(swn_table_write(t, &m, &bytes, &len), 0);
        assert_int_equal(swn_table_read(&back, &m, bytes, len), 0);
        compare(t, back);
        swn_table_free(back);
        swn_table_free(t);
        free(bytes);
        swn_partition_model_free(&m);
    }
}

static void refresh(unsigned char *bytes, size_t len)
{
    uint64_t sum = XXH3_64bits(bytes + 16, len - 16);
    memcpy(bytes + 8, &sum, sizeof sum);
}

/* Every cut, every changed bit; also with the checksum made right again: then it is the same table, or none. */
static void test_damaged(void **state)
{
    (void)state;
    struct swn_part_model m;
    struct swn_table *t, *back;
    unsigned char *bytes;
    size_t len;
    random_model(&m, 9);
    assert_int_equal(swn_table_make(&t, &m, 0), 0);
    assert_int_equal(swn_table_write(t, &m, &bytes, &len), 0);
    for (size_t i = 0; i < len; i++)
        assert_true(swn_table_read(&back, &m, bytes, i) < 0);
    for (size_t i = 0; i < len; i++) {
        unsigned char before = bytes[i];
        bytes[i] ^= (unsigned char)(1 << i % 8);
        assert_true(swn_table_read(&back, &m, bytes, len) < 0);
        if (i >= 16) {
            refresh(bytes, len);
            if (swn_table_read(&back, &m, bytes, len) == 0)
                swn_table_free(back); /* a bit of most_memory or of `complete`: a table all the same */
            bytes[i] = before;
            refresh(bytes, len);
        }
        bytes[i] = before;
    }
    assert_int_equal(swn_table_read(&back, &m, bytes, len), 0);
    compare(t, back);
    swn_table_free(back);
    free(bytes);
    swn_table_free(t);
    swn_partition_model_free(&m);
}

/* A deep model's table, which has not all rows, stays below its limit and answers nearly as well as the search does. */
static void test_deep(void **state)
{
    (void)state;
    struct swn_part_model m;
    struct swn_table *t;
    unsigned char *bytes;
    size_t len, blocks, first[400];
    struct swn_part part, best;
    random_model(&m, 300);
    assert_int_equal(swn_table_make(&t, &m, 0), 0);
    assert_int_equal(swn_table_write(t, &m, &bytes, &len), 0);
    assert_true(len < 1000000 && t->lists >= 16);
    unsigned answers = 0, incomplete = 0, bounded = 0;
    for (int share = 20; share <= 120; share++) {
        uint64_t budget = m.bytes[300] * 10 / (unsigned)share;
        if (swn_table_for_budget(t, &m, budget, 0.036, &blocks, first, &part))
            continue;
        answers++;
        incomplete += !part.exact;
        assert_int_equal(swn_partition_best(&m, blocks, swn_partition_memory(budget, 0.036), first, &best), 0);
        assert_true(part.latency_s <= best.latency_s * (part.exact ? 1 + 1e-9 : 1 + SWN_TABLE_NEAR));
        /* It would not, if there might be one that is faster by more. */
        struct swn_table_list *l = &t->list[blocks - 1];
        const struct swn_table_row *row = swn_table_find(t, blocks, swn_partition_memory(budget, 0.036));
        if (part.exact || row == &l->row[l->rows - 1])
            continue;
        struct swn_part *next = &l->row[row - l->row + 1].part, was = *next;
        next->latency_s = part.latency_s / 1.02;
        assert_int_equal(swn_table_for_budget(t, &m, budget, 0.036, &blocks, first, &part), -ENODATA);
        *next = was;
        bounded++;
    }
    assert_true(answers >= 25 && incomplete >= 25 && bounded >= 20);
    free(bytes);
    swn_table_free(t);
    swn_partition_model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookup), cmocka_unit_test(test_file),    cmocka_unit_test(test_beside_a_store),
        cmocka_unit_test(test_ties),   cmocka_unit_test(test_damaged), cmocka_unit_test(test_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
