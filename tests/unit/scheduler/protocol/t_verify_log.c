/* Records of two runs: what is the same, what only changed places, and where the first difference is. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "scheduler/protocol/verify_log.h"

static char dirs[2][64];

static int make_dirs(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        strcpy(dirs[i], "/tmp/t_verify_log-XXXXXX");
        assert_non_null(mkdtemp(dirs[i]));
    }
    return 0;
}

static int remove_dirs(void **state)
{
    (void)state;
    char path[256];
    for (int i = 0; i < 2; i++) {
        for (int file = 0; file < 4; file++) {
            snprintf(path, sizeof path, "%s/%d", dirs[i], file);
            unlink(path);
        }
        rmdir(dirs[i]);
    }
    return 0;
}

/* "0a 0b 1c": thread 0 computed a, then b, thread 1 computed c. */
static void process(int run, int file, const char *results)
{
    char path[256], head[SWN_RESULTS_HEAD + 1];
    snprintf(path, sizeof path, "%s/%d", dirs[run], file);
    snprintf(head, sizeof head, "%-*s", SWN_RESULTS_HEAD - 1,
             SWN_RESULTS_MAGIC " peak 00000000000000004096 cut 0 budget 8192 pid 1");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%s\n", head);
    for (; *results; results += results[2] ? 3 : 2)
        fprintf(f, "%c %016x aten::%c float[1,%d]\n", results[0], results[1], results[1], results[1]);
    fwrite("\0\0\0", 1, 3, f); /* the end of the last chunk */
    fclose(f);
}

static void read_both(struct swn_result_log r[2])
{
    char why[SWN_ERRMSG];
    for (int i = 0; i < 2; i++)
        assert_int_equal(swn_result_log_read(&r[i], dirs[i], why), 0);
}

/* Compares; *d and the results at the difference, "A/B". */
static int compare(struct swn_result_log_difference *d, char text[128])
{
    struct swn_result_log r[2];
    char a[64], b[64];
    read_both(r);
    int rc = swn_result_log_compare(&r[0], &r[1], d);
    snprintf(text, 128, "%s/%s", swn_result_log_describe(&r[0], d->stream[0], d->place, a, sizeof a),
             swn_result_log_describe(&r[1], d->stream[1], d->place, b, sizeof b));
    swn_result_log_free(&r[0]);
    swn_result_log_free(&r[1]);
    return rc;
}

static void what_is_read(void **state)
{
    (void)state;
    struct swn_result_log r[2];
    process(0, 0, "0a 1b 0c");
    process(0, 1, "0d");
    read_both(r);
    assert_int_equal(r[0].file_count, 2);
    assert_int_equal(r[0].stream_count, 3);
    assert_int_equal(r[0].total, 4);
    assert_int_equal(r[0].streams[0].count, 2);
    assert_int_equal(r[0].peak_bytes, 4096);
    assert_int_equal(r[0].budget_bytes, 8192);
    assert_int_equal(r[1].total, 0); /* a run without any */
    swn_result_log_free(&r[0]);
    swn_result_log_free(&r[1]);
}

static void the_same(void **state)
{
    (void)state;
    struct swn_result_log_difference d;
    char text[128];
    process(0, 0, "0a 0b 1c 1d");
    process(0, 1, "0e");
    /* other numbers of threads, and another order of processes */
    process(1, 0, "0e");
    process(1, 1, "0c 0d 3a 3b");
    assert_int_equal(compare(&d, text), SWN_RESULTS_SAME);
}

static void other_order(void **state)
{
    (void)state;
    struct swn_result_log_difference d;
    char text[128];
    process(0, 0, "0a 0b 1c 1d");
    process(1, 0, "0a 1b 1d 0c");
    assert_int_equal(compare(&d, text), SWN_RESULTS_OTHER_ORDER);
    assert_int_equal(d.missing + d.added, 0);
}

static void how_often_counts(void **state)
{
    (void)state;
    struct swn_result_log_difference d;
    char text[128];
    process(0, 0, "0a 0a 0b");
    process(1, 0, "0a 0b 0b");
    assert_int_equal(compare(&d, text), SWN_RESULTS_DIFFERENT);
    assert_int_equal(d.missing, 1);
    assert_int_equal(d.added, 1);
    assert_int_equal(d.place, 1);
}

static void first_difference(void **state)
{
    (void)state;
    struct swn_result_log_difference d;
    char text[128];
    /* Thread 0's are the same in another order; thread 1's second one is not. */
    process(0, 0, "0a 0b 1c 1d 1e");
    process(1, 0, "0b 0a 1c 1x 1e");
    assert_int_equal(compare(&d, text), SWN_RESULTS_DIFFERENT);
    assert_int_equal(d.place, 1);
    assert_string_equal(text, "aten::d float[1,100]/aten::x float[1,120]");
    assert_int_equal(d.streams_left, 2);
}

static void more_and_less(void **state)
{
    (void)state;
    struct swn_result_log_difference d;
    char text[128];
    process(0, 0, "0a 0b");
    process(1, 0, "0a");
    assert_int_equal(compare(&d, text), SWN_RESULTS_DIFFERENT);
    assert_string_equal(text, "aten::b float[1,98]/nothing");
    process(1, 0, "0a 0b");
    process(1, 1, "0c");
    assert_int_equal(compare(&d, text), SWN_RESULTS_DIFFERENT);
    assert_string_equal(text, "nothing/aten::c float[1,99]");
}

static void no_record(void **state)
{
    (void)state;
    struct swn_result_log r;
    char why[SWN_ERRMSG], path[256];
    snprintf(path, sizeof path, "%s/0", dirs[0]);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%-400s", "something else");
    fclose(f);
    assert_int_equal(swn_result_log_read(&r, dirs[0], why), -EINVAL);
    assert_non_null(strstr(why, path));
    assert_int_equal(swn_result_log_read(&r, "/nonexistent", why), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_read, make_dirs, remove_dirs),
        cmocka_unit_test_setup_teardown(the_same, make_dirs, remove_dirs),
        cmocka_unit_test_setup_teardown(other_order, make_dirs, remove_dirs),
        cmocka_unit_test_setup_teardown(how_often_counts, make_dirs, remove_dirs),
        cmocka_unit_test_setup_teardown(first_difference, make_dirs, remove_dirs),
        cmocka_unit_test_setup_teardown(more_and_less, make_dirs, remove_dirs),
        cmocka_unit_test_setup_teardown(no_record, make_dirs, remove_dirs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
