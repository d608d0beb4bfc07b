/* tools/ctl/verify.c - `swapnetctl verify`: runs a program without swapnet and with it, and compares the results of its
 * operators, bit for bit. If they differ it runs without swapnet once more: a program that does not repeat its own
 * results proves nothing. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/ctl/ctl.h"
#include "tools/ctl/output.h"
#include "tools/ctl/processes.h"
#include "base/paths.h"
#include "scheduler/protocol/verify_log.h"
#include "base/size.h"

enum { OPT_MEMORY = 256 };

/* Beyond those of tools/cli.h. */
enum { VERIFY_DIFFERENT = 4, VERIFY_UNDETERMINED = 5 };

enum { PLAIN, SWAPPED, AGAIN, RUNS };

struct run {
    int done, status;
    int counted; /* the library left its statistics */
    double seconds;
    uint64_t peak_bytes, streamed_bytes, over_bytes;
    struct swn_result_log results;
};

struct verify {
    char **command;
    int count, format;
    char dir[PATH_MAX + 32]; /* records, until the end */
    struct run runs[RUNS];
    uint64_t budget_bytes; /* for tensors, swapnet's budget at the end */
    enum swn_result_log_verdict verdict, again;
    struct swn_result_log_difference difference, own; /* between PLAIN and SWAPPED; between PLAIN and AGAIN */
};

/* --- settings --- */

/* 0; 1 when help was shown; -EINVAL. */
static int take_options(struct verify *v, int argc, char **argv)
{
    static const struct option options[] = {
        {"budget", required_argument, NULL, 'b'}, {"memory", required_argument, NULL, OPT_MEMORY},
        {"store", required_argument, NULL, 's'},  {"output", required_argument, NULL, 'o'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
    };
    int opt;
    while ((opt = getopt_long(argc, argv, "+:b:s:o:h", options, NULL)) != -1) {
        if (opt == 'h') {
            swn_cli_help(argv[0]);
            return 1;
        } else if (opt == 'o') {
            if ((v->format = swn_cli_format(optarg, SWN_CLI_CSV)) < 0)
                return -EINVAL;
        } else if (opt == 'b' || opt == 's' || opt == OPT_MEMORY) {
            const char *name = opt == 'b' ? "SWAPNET_BUDGET" : opt == 's' ? "SWAPNET_STORE" : "SWAPNET_MEMORY";
            if (!*optarg) {
                swn_cli_error("the value for %s is empty", name);
                return -EINVAL;
            }
            if (setenv(name, optarg, 1))
                return -EINVAL;
        } else {
            swn_cli_bad_option(argv, opt);
            return -EINVAL;
        }
    }
    v->command = argv + optind;
    v->count = argc - optind;
    if (!v->count) {
        swn_cli_error("no command to run; see 'swapnetctl help verify'");
        return -EINVAL;
    }
    return 0;
}

static int is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

/* A quarter of what the program's tensors took without swapnet, so that something has to be streamed. */
static int default_budget(const struct verify *v)
{
    char text[32];
    uint64_t bytes = v->runs[PLAIN].peak_bytes / 4;
    if (is_set("SWAPNET_BUDGET") || is_set("SWAPNET_MEMORY") || ctl_has_daemon())
        return 0;
    snprintf(text, sizeof text, "%llu",
             (unsigned long long)(bytes > SWN_BUDGET_UNASKED_BYTES ? bytes : SWN_BUDGET_UNASKED_BYTES));
    return setenv("SWAPNET_BUDGET", text, 1) ? -errno : 0;
}

/* --- the directory of the records --- */

static int make_dir(struct verify *v)
{
    char store[PATH_MAX];
    const char *set = getenv("SWAPNET_STORE");
    int own = set && *set && strcmp(set, "off");
    int rc = own && snprintf(store, sizeof store, "%s", set) >= (int)sizeof store ? -ENAMETOOLONG
             : own                                                                ? 0
                   : swn_default_store_dir(environ, store, sizeof store);
    if (!rc)
        rc = swn_make_dirs(store);
    char *whole = rc ? NULL : realpath(store, NULL); /* the program may change its directory */
    if (!rc && !whole)
        rc = -errno;
    if (!rc)
        snprintf(v->dir, sizeof v->dir, "%s/verify-XXXXXX", whole);
    if (!rc && !mkdtemp(v->dir))
        rc = -errno;
    if (rc) {
        v->dir[0] = 0;
        swn_cli_error("cannot make a directory for what is recorded: %s; set SWAPNET_STORE", strerror(-rc));
    }
    free(whole);
    return rc;
}

static void run_dir(const struct verify *v, int which, char *out, size_t size)
{
    snprintf(out, size, "%s/%d", v->dir, which);
}

static void remove_files(const char *path)
{
    char name[2 * PATH_MAX];
    struct dirent *entry;
    DIR *d = opendir(path);
    while (d && (entry = readdir(d))) {
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        unlink(name);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

static void remove_dir(const struct verify *v)
{
    char path[PATH_MAX + 64];
    for (int i = 0; v->dir[0] && i < RUNS; i++) {
        run_dir(v, i, path, sizeof path);
        remove_files(path);
    }
    if (v->dir[0])
        remove_files(v->dir);
}

/* --- a run --- */

static const struct verify *prepared; /* ctl_run_child takes no argument for prepare */
static int prepared_run;

/* Runs in the new process. Standard output is for the table, so the program's output goes to stderr. */
static void prepare(void)
{
    char path[PATH_MAX + 64];
    int null = open("/dev/null", O_RDONLY);
    run_dir(prepared, prepared_run, path, sizeof path);
    setenv("SWAPNET_VERIFY", path, 1);
    setenv("PYTHONHASHSEED", "0", 0);
    if (prepared_run == SWAPPED) {
        unsetenv("SWAPNET");
        snprintf(path, sizeof path, "%s/stats", prepared->dir);
        setenv("SWAPNET_STATS", path, 1);
    } else {
        setenv("SWAPNET", "0", 1);
        setenv("SWAPNET_BUDGET", "8M", 0); /* `run` needs a budget */
    }
    if (null >= 0)
        dup2(null, STDIN_FILENO), close(null);
    dup2(STDERR_FILENO, STDOUT_FILENO);
}

static void read_stats(struct verify *v, struct run *r)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/stats", v->dir);
    json_t *stats = json_load_file(path, 0, NULL);
    v->budget_bytes = r->results.budget_bytes;
    if (!stats) /* _exit writes no statistics */
        return;
    r->counted = 1;
    v->budget_bytes = (uint64_t)json_integer_value(json_object_get(stats, "budget_bytes"));
    r->peak_bytes = (uint64_t)json_integer_value(json_object_get(stats, "peak_resident_bytes"));
    r->over_bytes = (uint64_t)json_integer_value(json_object_get(stats, "over_budget_bytes"));
    r->streamed_bytes = (uint64_t)json_integer_value(json_object_get(stats, "streamed_bytes")) +
                        (uint64_t)json_integer_value(json_object_get(stats, "fallback_reads")) * 4096;
    json_decref(stats);
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* 0, or -1 after printing why there is nothing to compare. */
static int run(struct verify *v, int which)
{
    static const char *const names[] = {"without swapnet", "with swapnet", "without swapnet, once more"};
    struct run *r = &v->runs[which];
    char path[PATH_MAX + 64], why[SWN_ERRMSG];
    prepared = v;
    prepared_run = which;
    run_dir(v, which, path, sizeof path);
    if (mkdir(path, 0700)) {
        swn_cli_error("cannot make %s: %s", path, strerror(errno));
        return -1;
    }
    fprintf(stderr, "swapnetctl: running %s\n", names[which]);
    double begin = seconds_now();
    int rc = ctl_run_child(v->command, v->count, prepare);
    r->seconds = seconds_now() - begin;
    if (rc < 0) {
        swn_cli_error("cannot run it: %s", strerror(-rc));
        return -1;
    }
    r->status = rc;
    if (ctl_run_interrupted())
        return -1;
    if (swn_result_log_read(&r->results, path, why)) {
        swn_cli_error("%s", why);
        return -1;
    }
    r->done = 1;
    r->peak_bytes = r->results.peak_bytes;
    if (which == SWAPPED)
        read_stats(v, r);
    if (r->results.cut) {
        swn_cli_error("the disk was too full for all results; set SWAPNET_STORE to one with more room");
        return -1;
    }
    return 0;
}

/* --- the answer --- */

static void describe_place(const struct verify *v, int other, const struct swn_result_log_difference *d, char *buf,
                           size_t size)
{
    const struct swn_result_log *r = d->stream[0] >= 0 ? &v->runs[PLAIN].results : &v->runs[other].results;
    const struct swn_result_log_stream *s = &r->streams[d->stream[0] >= 0 ? d->stream[0] : d->stream[1]];
    snprintf(buf, size, "result %zu of thread %u in process %u", d->place + 1, s->thread, s->file);
}

static json_t *run_json(const struct run *r, int which)
{
    return json_pack("{s:b s:i s:f s:I s:I s:I s:I s:I s:I}", "swapnet", which == SWAPPED, "exit_status", r->status,
                     "seconds", r->seconds, "processes", (json_int_t)r->results.file_count, "results",
                     (json_int_t)r->results.total, "unseen", (json_int_t)r->results.unseen, "peak_bytes",
                     (json_int_t)r->peak_bytes, "streamed_bytes", (json_int_t)r->streamed_bytes, "over_budget_bytes",
                     (json_int_t)r->over_bytes);
}

/* The difference to report: of the swapped run, if it ran. */
static json_t *difference_json(const struct verify *v)
{
    char plain[512], swapped[512];
    const struct swn_result_log_difference *d = &v->difference;
    if (v->verdict != SWN_RESULTS_DIFFERENT)
        return json_null();
    const struct swn_result_log *a = &v->runs[PLAIN].results, *b = &v->runs[SWAPPED].results;
    const struct swn_result_log *r = d->stream[0] >= 0 ? a : b;
    const struct swn_result_log_stream *s = &r->streams[d->stream[0] >= 0 ? d->stream[0] : d->stream[1]];
    return json_pack("{s:I s:I s:i s:i s:I s:s s:s}", "missing", (json_int_t)d->missing, "added", (json_int_t)d->added,
                     "process", (int)s->file, "thread", (int)s->thread, "result", (json_int_t)d->place + 1, "without",
                     swn_result_log_describe(a, d->stream[0], d->place, plain, sizeof plain), "with",
                     swn_result_log_describe(b, d->stream[1], d->place, swapped, sizeof swapped));
}

static json_t *runs_json(const struct verify *v)
{
    json_t *runs = json_array();
    for (int i = 0; i < RUNS; i++)
        if (v->runs[i].done)
            json_array_append_new(runs, run_json(&v->runs[i], i));
    return runs;
}

static void print_json(const struct verify *v, const char *verdict)
{
    json_t *j = json_pack("{s:i s:s s:I s:o s:o}", "schema", 1, "verdict", verdict, "budget_bytes",
                          (json_int_t)v->budget_bytes, "runs", runs_json(v), "first_difference", difference_json(v));
    ctl_print_json(j);
    json_decref(j);
}

/* A line for each run. */
static void print_csv(const struct verify *v, const char *verdict)
{
    static const char *const keys[] = {"verdict",    "budget_bytes",   "swapnet",          "exit_status",
                                       "seconds",    "processes",      "results",          "unseen",
                                       "peak_bytes", "streamed_bytes", "over_budget_bytes"};
    json_t *runs = runs_json(v), *run;
    size_t i;
    json_array_foreach(runs, i, run)
    {
        json_object_set_new(run, "verdict", json_string(verdict));
        json_object_set_new(run, "budget_bytes", json_integer((json_int_t)v->budget_bytes));
    }
    ctl_print_csv(keys, sizeof keys / sizeof *keys, runs);
    json_decref(runs);
}

static void print_runs(const struct verify *v)
{
    static const char *const names[] = {"without swapnet", "with swapnet", "without, again"};
    char peak[32], streamed[32];
    printf("%-16s %9s %9s %9s %12s %12s %5s\n", "RUN", "PROCESSES", "RESULTS", "SECONDS", "MOST MEMORY", "READ",
           "EXIT");
    for (int i = 0; i < RUNS; i++) {
        const struct run *r = &v->runs[i];
        if (r->done)
            printf("%-16s %9zu %9zu %9.1f %12s %12s %5d\n", names[i], r->results.file_count, r->results.total,
                   r->seconds, swn_format_mib(peak, r->peak_bytes),
                   i == SWAPPED ? swn_format_mib(streamed, r->streamed_bytes) : "-", r->status);
    }
    putchar('\n');
}

static void print_difference(const struct verify *v, int other, const struct swn_result_log_difference *d)
{
    char place[96], text[512];
    const struct swn_result_log *a = &v->runs[PLAIN].results, *b = &v->runs[other].results;
    describe_place(v, other, d, place, sizeof place);
    printf("The first difference is %s:\n", place);
    printf("  without swapnet: %s\n", swn_result_log_describe(a, d->stream[0], d->place, text, sizeof text));
    printf("  %s: %s\n", other == SWAPPED ? "with swapnet" : "once more",
           swn_result_log_describe(b, d->stream[1], d->place, text, sizeof text));
    printf("%zu results of the first run are not in the other one, which has %zu that the first one has not.\n",
           d->missing, d->added);
}

static void print_remarks(const struct verify *v)
{
    const struct run *r = &v->runs[SWAPPED];
    char mib[32];
    if (v->runs[PLAIN].results.unseen)
        printf("%zu results were on a device, or of no type with bytes, and not compared.\n",
               v->runs[PLAIN].results.unseen);
    if (r->counted && !r->streamed_bytes)
        printf("Nothing was read from the disk: all fits a budget of %s. Give a smaller one with --budget.\n",
               swn_format_mib(mib, v->budget_bytes));
    if (r->over_bytes)
        printf("The tensors in use at once exceeded the budget by up to %s.\n", swn_format_mib(mib, r->over_bytes));
}

static int same_exit(const struct verify *v)
{
    return v->runs[PLAIN].status == v->runs[SWAPPED].status;
}

/* Whether the swapped run differs at an earlier place than another plain run: then the program's own variation does not
 * explain the difference. */
static int differs_earlier(const struct verify *v)
{
    return v->difference.streams_left == 1 && v->own.streams_left == 1 && v->difference.stream[0] == v->own.stream[0] &&
           v->difference.place < v->own.place;
}

static int answer(struct verify *v)
{
    int same = v->verdict != SWN_RESULTS_DIFFERENT && same_exit(v);
    int repeats = !v->runs[AGAIN].done ||
                  (v->again != SWN_RESULTS_DIFFERENT && v->runs[AGAIN].status == v->runs[PLAIN].status) ||
                  (v->verdict == SWN_RESULTS_DIFFERENT && v->again == SWN_RESULTS_DIFFERENT && differs_earlier(v));
    const char *verdict = same ? "same" : repeats ? "different" : "undetermined";
    if (v->format == SWN_CLI_JSON) {
        print_json(v, verdict);
    } else if (v->format == SWN_CLI_CSV) {
        print_csv(v, verdict);
    } else {
        print_runs(v);
        if (same)
            printf("The same bits in all %zu results%s.\n", v->runs[PLAIN].results.total,
                   v->verdict == SWN_RESULTS_OTHER_ORDER ? ", though not in the same order" : "");
        else if (repeats && v->verdict == SWN_RESULTS_DIFFERENT)
            printf("DIFFERENT: swapnet changed what the program computes.\n");
        else if (repeats)
            printf("DIFFERENT: with swapnet the program ended with exit status %d.\n", v->runs[SWAPPED].status);
        else
            printf("Not to be told: the program does not do the same twice without swapnet either.\n");
        if (!same && !repeats && v->again == SWN_RESULTS_DIFFERENT)
            print_difference(v, AGAIN, &v->own);
        else if (!same && v->verdict == SWN_RESULTS_DIFFERENT)
            print_difference(v, SWAPPED, &v->difference);
        print_remarks(v);
    }
    return same ? SWN_CLI_OK : repeats ? VERIFY_DIFFERENT : VERIFY_UNDETERMINED;
}

/* 0, -1 after printing why there is nothing to compare, or the status of a command that could not be run. */
static int run_plain(struct verify *v)
{
    const struct run *r = &v->runs[PLAIN];
    if (run(v, PLAIN))
        return -1;
    if (!r->results.total && (r->status == CTL_RUN_NOT_FOUND || r->status == CTL_RUN_NOT_EXECUTABLE))
        return r->status; /* the reason was printed */
    if (r->status)
        swn_cli_error("the program fails without swapnet as well: exit status %d%s", r->status,
                      r->status == 128 + 9 ? " (killed: is there enough memory for all of it?)" : "");
    else if (!r->results.total)
        swn_cli_error("no operator of PyTorch was seen: there is nothing to compare");
    return r->status || !r->results.total ? -1 : 0;
}

static int compare(const struct verify *v, int which, struct swn_result_log_difference *d,
                   enum swn_result_log_verdict *out)
{
    int rc = swn_result_log_compare(&v->runs[PLAIN].results, &v->runs[which].results, d);
    if (rc < 0) {
        swn_cli_error("cannot compare: %s", strerror(-rc));
        return rc;
    }
    *out = (enum swn_result_log_verdict)rc;
    return 0;
}

static int verify(struct verify *v)
{
    int rc = run_plain(v);
    if (rc)
        return rc > 0 ? rc : SWN_CLI_FAILURE;
    if (default_budget(v) || run(v, SWAPPED))
        return SWN_CLI_FAILURE;
    if (!v->budget_bytes && v->runs[SWAPPED].results.total) {
        swn_cli_error("swapnet was not at work in the second run; what it says of that is above");
        return SWN_CLI_FAILURE;
    }
    if (compare(v, SWAPPED, &v->difference, &v->verdict))
        return SWN_CLI_FAILURE;
    if ((v->verdict == SWN_RESULTS_DIFFERENT || !same_exit(v)) &&
        (run(v, AGAIN) || compare(v, AGAIN, &v->own, &v->again)))
        return SWN_CLI_FAILURE;
    return answer(v);
}

int ctl_verify(int argc, char **argv)
{
    static struct verify v;
    if (ctl_verifies_repository(argc, argv))
        return ctl_verify_repository(argc, argv);
    int rc = take_options(&v, argc, argv);
    if (rc == 1)
        return SWN_CLI_OK;
    if (rc)
        return SWN_CLI_USAGE;
    /* A mistake in the settings must not show after an hour. */
    if ((is_set("SWAPNET_BUDGET") || is_set("SWAPNET_MEMORY")) && ctl_run_check())
        return SWN_CLI_USAGE;
    if (make_dir(&v))
        return SWN_CLI_FAILURE;
    rc = verify(&v);
    for (int i = 0; i < RUNS; i++)
        swn_result_log_free(&v.runs[i].results);
    remove_dir(&v);
    return ctl_run_interrupted() ? 128 + ctl_run_interrupted() : rc;
}
