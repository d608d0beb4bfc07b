/* Description: the statistics document, and how it replaces a file. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scheduler/protocol/stats_json.h"

static const char *const numbers[] = {
    "pid",
    "budget_bytes",
    "minimum_bytes",
    "demand_bytes",
    "resident_bytes",
    "peak_resident_bytes",
    "pool_bytes",
    "kept_bytes",
    "small_bytes",
    "streamed_bytes",
    "encoded_bytes",
    "decoded_bytes",
    "spilled_bytes",
    "deferred_bytes",
    "swap_ins",
    "window_hits",
    "window_misses",
    "stalls",
    "stall_ns",
    "filled_bytes",
    "dropped_bytes",
    "placed_bytes",
    "slices",
    "rows",
    "fallback_reads",
    "over_budget_bytes",
    "untracked_bytes",
    "untracked_weight_bytes",
    "passes",
    "read_errors",
    "plans",
    "plan_reviews",
    "plan_budget_bytes",
    "plan_since_ns",
    "budget_since_ns",
    "bound_ns",
    "in_flight_ns",
    "unified_elided_bytes",
    "unified_copied_bytes",
    "device_budget_bytes",
    "device_resident_bytes",
    "device_peak_bytes",
    "device_kept_bytes",
    "device_swap_ins",
    "device_pinned_bytes",
    "device_swapped_bytes",
    "device_stall_ns",
};
#define NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

/* The numbers are the first fields of the struct, in the order of the table above. */
static struct swn_stats sample(void)
{
    struct swn_stats s;
    uint64_t values[NUMBERS];
    memset(&s, 0, sizeof(s));
    for (size_t i = 0; i < NUMBERS; i++)
        values[i] = 1000 + i;
    assert_int_equal(offsetof(struct swn_stats, urgency), sizeof(values));
    memcpy(&s, values, sizeof(values));
    s.urgency = 2.5;
    s.fetch_path = "pread+O_DIRECT";
    s.state = "running";
    s.name = "python3 \"x\"";
    s.unified = "managed";
    s.daemon_socket = "/run/swapnet/swapnetd.sock";
    return s;
}

static void check(json_t *root)
{
    assert_non_null(root);
    assert_int_equal(json_object_size(root), NUMBERS + 8);
    assert_int_equal(json_integer_value(json_object_get(root, "schema")), 1);
    for (size_t i = 0; i < NUMBERS; i++) {
        assert_true(json_is_integer(json_object_get(root, numbers[i])));
        assert_int_equal(json_integer_value(json_object_get(root, numbers[i])), 1000 + i);
    }
    assert_true(json_real_value(json_object_get(root, "urgency")) > 2.49);
    assert_string_equal(json_string_value(json_object_get(root, "fetch_path")), "pread+O_DIRECT");
    assert_string_equal(json_string_value(json_object_get(root, "state")), "running");
    assert_string_equal(json_string_value(json_object_get(root, "name")), "python3 \"x\"");
    assert_string_equal(json_string_value(json_object_get(root, "unified")), "managed");
    assert_string_equal(json_string_value(json_object_get(root, "daemon_socket")), "/run/swapnet/swapnetd.sock");
    assert_true(json_is_null(json_object_get(root, "torch_version")));
    json_decref(root);
}

static void document(void **state)
{
    struct swn_stats s = sample();
    char *text = swn_stats_to_json(&s);
    (void)state;
    assert_non_null(text);
    assert_null(strchr(text, '\n'));
    assert_int_equal(strncmp(text, "{\"schema\":1,", 12), 0);
    check(json_loads(text, JSON_REJECT_DUPLICATES, NULL));
    free(text);
}

static void extremes(void **state)
{
    struct swn_stats s = sample();
    (void)state;
    s.streamed_bytes = UINT64_MAX;
    s.name = "caf\xe9 \xff";
    char *text = swn_stats_to_json(&s);
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    assert_true(json_integer_value(json_object_get(root, "streamed_bytes")) == INT64_MAX);
    assert_string_equal(json_string_value(json_object_get(root, "name")), "caf? ?");
    json_decref(root);
    free(text);
}

static unsigned count_files(const char *dir)
{
    unsigned n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void files(void **state)
{
    struct swn_stats s = sample();
    char dir[] = "/tmp/t_stats.XXXXXX", path[64], link[64], gone[64];
    struct stat before, after;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/stats.json", dir);
    snprintf(link, sizeof(link), "%s/link", dir);
    snprintf(gone, sizeof(gone), "%s/no/stats.json", dir);

    assert_int_equal(swn_stats_write_file(&s, path), 0);
    check(json_load_file(path, 0, NULL));
    assert_int_equal(stat(path, &before), 0);
    int old = open(path, O_RDONLY);
    assert_int_equal(swn_stats_write_file(&s, path), 0);
    assert_int_equal(stat(path, &after), 0);
    assert_int_not_equal(before.st_ino, after.st_ino); /* replaced as a whole: `old` still reads its document */
    check(json_loadfd(old, 0, NULL));
    close(old);
    assert_int_equal(count_files(dir), 1);

    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(after.st_mode & 0777, 0600);
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(swn_stats_write_file(&s, link), -ELOOP); /* whoever made it may have chosen another user's file */
    assert_int_equal(lstat(link, &after), 0);
    assert_true(S_ISLNK(after.st_mode));
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    check(json_load_file(path, 0, NULL));

    assert_int_equal(swn_stats_write_file(&s, gone), -ENOENT);
    assert_int_equal(swn_stats_write_file(&s, dir), -EISDIR);
    assert_int_equal(swn_stats_write_file(&s, "/dev/full"), -ENOSPC);
    assert_int_equal(swn_stats_write_file(&s, "/dev/null"), 0);
    assert_int_equal(stat("/dev/null", &after), 0);
    assert_true(S_ISCHR(after.st_mode));
    assert_int_equal(count_files(dir), 2);

    unlink(link);
    unlink(path);
    rmdir(dir);
}

/* A FIFO nobody reads must not hang the end of the program. */
static void fifo(void **state)
{
    struct swn_stats s = sample();
    char dir[] = "/tmp/t_stats.XXXXXX", path[64];
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(swn_stats_write_file(&s, path), -ENXIO);
    unlink(path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(document),
        cmocka_unit_test(extremes),
        cmocka_unit_test(files),
        cmocka_unit_test(fifo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
