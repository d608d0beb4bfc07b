/* Description: trace files parse as JSON, rows are named, spans on one row never cross, an early end loses no event. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scheduler/protocol/trace.h"

static char path[64];

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/t_trace.XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static char *slurp(const char *tail)
{
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    size_t len = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(len + strlen(tail) + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, len, f), len);
    strcpy(text + len, tail);
    fclose(f);
    return text;
}

/* The file plus `tail` as JSON. */
static json_t *load(const char *tail)
{
    json_error_t err;
    char *text = slurp(tail);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &err);
    if (!root)
        print_error("line %d: %s\n", err.line, err.text);
    assert_true(json_is_array(root));
    free(text);
    return root;
}

static const char *text_of(json_t *e, const char *key)
{
    const char *s = json_string_value(json_object_get(e, key));
    return s ? s : "";
}

static json_t *span_named(json_t *root, const char *name)
{
    size_t i;
    json_t *e;
    json_array_foreach(root, i,
                       e) if (strcmp(text_of(e, "ph"), "X") == 0 && strcmp(text_of(e, "name"), name) == 0) return e;
    return NULL;
}

static json_int_t row_named(json_t *root, const char *name)
{
    size_t i;
    json_t *e;
    json_array_foreach(root, i, e) if (strcmp(text_of(e, "name"), "thread_name") == 0 &&
                                       strcmp(text_of(json_object_get(e, "args"), "name"), name) ==
                                           0) return json_integer_value(json_object_get(e, "tid"));
    return -1;
}

static json_int_t row_of(json_t *span)
{
    return json_integer_value(json_object_get(span, "tid"));
}

static size_t count_spans(json_t *root)
{
    size_t i, n = 0;
    json_t *e;
    json_array_foreach(root, i, e) n += strcmp(text_of(e, "ph"), "X") == 0;
    return n;
}

static void rows_and_times(void **state)
{
    struct swn_trace *t;
    (void)state;
    assert_int_equal(swn_trace_open(&t, path), 0);
    swn_trace_span(t, SWN_TRACK_COMPUTE, 0, "aten::conv2d", 1234567, 2345678, 0);
    swn_trace_span(t, SWN_TRACK_COMPUTE, 1, "other \"thread\" \\ \n\x80", 5, 4, 0);
    swn_trace_span(t, SWN_TRACK_DISK, 9, "block 1", 1000, 5000, 1048576);
    swn_trace_span(t, SWN_TRACK_DISK, 9, "block 2", 2000, 4000, 1048576);
    swn_trace_span(t, SWN_TRACK_DISK, 9, "block 3", 5000, 6000, 1048576);
    swn_trace_span(t, SWN_TRACK_STALL, 0, "0123456789012345678901234567890123456789012345678901234567890", 7, 8, 0);
    swn_trace_span(t, SWN_TRACK_COMPUTE, 4000000000u, "far", 7, 8, 0);
    assert_int_equal(swn_trace_close(t), 0);

    json_t *root = load("");
    assert_int_equal(count_spans(root), 7);
    json_t *conv = span_named(root, "aten::conv2d");
    assert_int_equal(row_of(conv), row_named(root, "compute"));
    assert_true(json_real_value(json_object_get(conv, "ts")) == 1234.567);
    assert_true(json_real_value(json_object_get(conv, "dur")) == 1111.111);
    assert_int_equal(json_integer_value(json_object_get(conv, "pid")), getpid());
    assert_null(json_object_get(conv, "args"));
    json_t *other = span_named(root, "other \"thread\" \\ ??");
    assert_int_equal(row_of(other), row_named(root, "compute 2"));
    assert_true(json_real_value(json_object_get(other, "dur")) == 0.0);
    json_t *one = span_named(root, "block 1");
    assert_int_equal(row_of(one), row_named(root, "disk"));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(one, "args"), "bytes")), 1048576);
    assert_int_equal(row_of(span_named(root, "block 2")), row_named(root, "disk 2"));
    assert_int_equal(row_of(span_named(root, "block 3")), row_named(root, "disk"));
    json_t *stall = span_named(root, "01234567890123456789012345678901234567890123456");
    assert_int_equal(row_of(stall), row_named(root, "waiting"));
    assert_int_equal(row_of(span_named(root, "far")), INT64_C(16000000001));
    json_decref(root);
}

static json_t *event_of(json_t *root, const char *phase, json_int_t id)
{
    size_t i;
    json_t *e;
    json_array_foreach(root, i, e) if (strcmp(text_of(e, "ph"), phase) == 0 &&
                                       json_integer_value(json_object_get(e, "id")) == id) return e;
    return NULL;
}

static void requests_overlap(void **state)
{
    struct swn_trace *t;
    (void)state;
    assert_int_equal(swn_trace_open(&t, path), 0);
    for (unsigned i = 1; i <= 200; i++)
        swn_trace_span(t, SWN_TRACK_REQUEST, i, "a \"model\"", 1000 * i, 1000000 + i, 0);
    assert_int_equal(swn_trace_close(t), 0);
    json_t *root = load("");
    for (unsigned i = 1; i <= 200; i++) {
        json_t *begin = event_of(root, "b", i), *end = event_of(root, "e", i);
        assert_string_equal(text_of(begin, "name"), "a \"model\"");
        assert_string_equal(text_of(begin, "cat"), text_of(end, "cat"));
        assert_true(json_number_value(json_object_get(begin, "ts")) == i);
        assert_true(json_number_value(json_object_get(end, "ts")) == 1000 + i / 1000.0);
    }
    assert_int_equal(count_spans(root), 0);
    json_decref(root);
}

static void empty_and_null(void **state)
{
    struct swn_trace *t;
    (void)state;
    assert_int_equal(swn_trace_open(&t, path), 0);
    assert_int_equal(swn_trace_close(t), 0);
    json_t *root = load("");
    assert_true(row_named(root, "compute") > 0 && row_named(root, "disk") > 0 && row_named(root, "waiting") > 0);
    json_decref(root);
    swn_trace_span(NULL, SWN_TRACK_DISK, 0, "x", 0, 1, 0);
    assert_int_equal(swn_trace_flush(NULL), 0);
    assert_int_equal(swn_trace_close(NULL), 0);
    swn_trace_abandon(NULL);
    assert_int_equal(swn_trace_open(&t, "/nonexistent/trace"), -ENOENT);
    assert_int_equal(swn_trace_open(&t, "/dev/full"), -ENOSPC);
}

/* 100 reads in flight at a time, more than there are rows. */
static void disk_rows_are_sequences(void **state)
{
    struct swn_trace *t;
    double end[128] = {0};
    (void)state;
    assert_int_equal(swn_trace_open(&t, path), 0);
    for (unsigned i = 0; i < 5000; i++)
        swn_trace_span(t, SWN_TRACK_DISK, 0, "read", i * 1000, i * 1000 + 100000 + (i * 7919) % 3000, 1);
    assert_int_equal(swn_trace_close(t), 0);
    json_t *root = load(""), *e;
    size_t i;
    assert_int_equal(count_spans(root), 5000);
    json_array_foreach(root, i, e)
    {
        if (strcmp(text_of(e, "ph"), "X") != 0)
            continue;
        double start = json_real_value(json_object_get(e, "ts"));
        json_int_t row = row_of(e);
        assert_true(row < 128);
        assert_true(start >= end[row] - 1e-6);
        end[row] = start + json_real_value(json_object_get(e, "dur"));
    }
    json_decref(root);
}

static void *spans_of_thread(void *arg)
{
    struct swn_trace *t = arg;
    static _Atomic unsigned next;
    unsigned me = next++;
    for (unsigned i = 0; i < 3000; i++)
        swn_trace_span(t, i % 2 ? SWN_TRACK_COMPUTE : SWN_TRACK_STALL, me, "op", i * 10, i * 10 + 9, 0);
    return NULL;
}

static void threads(void **state)
{
    struct swn_trace *t;
    pthread_t ids[4];
    (void)state;
    assert_int_equal(swn_trace_open(&t, path), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, spans_of_thread, t), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(ids[i], NULL);
    assert_int_equal(swn_trace_close(t), 0);
    json_t *root = load("");
    assert_int_equal(count_spans(root), 4 * 3000);
    json_decref(root);
}

/* Killed without a close: complete events only, so that "]" makes it JSON. */
static void dies_early(void **state)
{
    int status;
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        struct swn_trace *t;
        if (swn_trace_open(&t, path) != 0)
            _exit(1);
        for (unsigned i = 0; i < 1500; i++)
            swn_trace_span(t, SWN_TRACK_COMPUTE, 0, "op", i, i + 1, 0);
        swn_trace_flush(t);
        swn_trace_span(t, SWN_TRACK_COMPUTE, 0, "lost", 1, 2, 0);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    json_t *root = load("]");
    assert_int_equal(count_spans(root), 1500);
    json_decref(root);
}

static void abandoned_by_child(void **state)
{
    struct swn_trace *t;
    int status;
    (void)state;
    assert_int_equal(swn_trace_open(&t, path), 0);
    swn_trace_span(t, SWN_TRACK_COMPUTE, 0, "parent", 1, 2, 0);
    pid_t pid = fork();
    if (pid == 0) {
        swn_trace_abandon(t);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(swn_trace_close(t), 0);
    json_t *root = load("");
    assert_int_equal(count_spans(root), 1);
    json_decref(root);
}

/* The file may not grow any more in the middle of a write: what is there must still be complete events. */
static void full_disk(void **state)
{
    int status;
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        struct swn_trace *t;
        struct rlimit limit = {.rlim_cur = 50000, .rlim_max = 50000};
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || swn_trace_open(&t, path) != 0)
            _exit(1);
        for (unsigned i = 0; i < 3000; i++)
            swn_trace_span(t, SWN_TRACK_COMPUTE, 0, "op", i, i + 1, 0);
        if (swn_trace_flush(t) != -EFBIG)
            _exit(2);
        _exit(swn_trace_close(t) == -EFBIG ? 0 : 3);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    json_t *root = load("");
    assert_true(count_spans(root) > 100);
    json_decref(root);
}

/* The file is named in a variable that children inherit, and may lie where others can write. */
static void whose_file_it_is(void **state)
{
    struct swn_trace *t, *other;
    struct stat st;
    char beside[80];
    (void)state;
    assert_int_equal(unlink(path), 0);
    assert_int_equal(swn_trace_open(&t, path), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    off_t written = st.st_size;
    assert_true(written > 0);
    assert_int_equal(swn_trace_open(&other, path), -EBUSY); /* as a child does, with a description of its own */
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, written);
    assert_int_equal(swn_trace_close(t), 0);
    assert_int_equal(stat(path, &st), 0);
    written = st.st_size;

    snprintf(beside, sizeof beside, "%s.link", path);
    assert_int_equal(symlink(path, beside), 0);
    assert_int_equal(swn_trace_open(&t, beside), -ELOOP);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, written);
    assert_int_equal(unlink(beside), 0);
    assert_int_equal(mkfifo(beside, 0600), 0);
    assert_int_equal(swn_trace_open(&t, beside), -ENXIO); /* and does not wait for a reader */
    assert_int_equal(unlink(beside), 0);
    assert_int_equal(swn_trace_open(&t, path), 0);
    assert_int_equal(swn_trace_close(t), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_path, remove_path)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rows_and_times),          TEST(requests_overlap), TEST(empty_and_null),
        TEST(disk_rows_are_sequences), TEST(threads),          TEST(dies_early),
        TEST(abandoned_by_child),      TEST(full_disk),        TEST(whose_file_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
