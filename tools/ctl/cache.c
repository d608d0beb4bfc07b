/* tools/ctl/cache.c - `swapnetctl cache`: lists, removes and limits the cache of block stores. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/ctl/ctl.h"
#include "tools/ctl/output.h"
#include "blocks/store/cache.h"
#include "base/atomic_file.h"
#include "base/paths.h"
#include "base/size.h"

struct request {
    char dir[PATH_MAX];
    int format; /* enum swn_cli_format; -1: not given */
    int all;
    char **words; /* behind the verb */
    int word_count;
};

static int find_dir(struct request *r, const char *given)
{
    int rc = 0;
    if (given)
        rc = snprintf(r->dir, sizeof r->dir, "%s", given) < (int)sizeof r->dir ? 0 : -ENAMETOOLONG;
    else
        rc = swn_store_dir(environ, r->dir, sizeof r->dir);
    if (rc)
        swn_cli_error("%s: give --store DIR", rc == -ENOTSUP ? "SWAPNET_STORE is off" : "no cache directory");
    return rc;
}

/* ---- ls ---- */

static json_t *stores_json(const struct swn_cache_entry *list, size_t count)
{
    json_t *stores = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(stores, json_pack("{s:s s:I s:I s:o s:b}", "name", list[i].name, "bytes",
                                                (json_int_t)list[i].bytes, "used_ns", (json_int_t)list[i].used_ns,
                                                "source", swn_cli_json_text(list[i].source), "stale", list[i].stale));
    return stores;
}

static void print_json(const struct request *r, const struct swn_cache_entry *list, size_t count, uint64_t sum,
                       uint64_t cap)
{
    uint64_t living, dead;
    swn_atomic_file_look(&swn_io_sys, r->dir, &living, &dead);
    json_t *j =
        json_pack("{s:i s:o s:I s:I s:I s:o s:o}", "schema", 1, "directory", swn_cli_json_text(r->dir), "bytes",
                  (json_int_t)sum, "building_bytes", (json_int_t)living, "killed_bytes", (json_int_t)dead, "cap_bytes",
                  cap ? json_integer((json_int_t)cap) : json_null(), "stores", stores_json(list, count));
    ctl_print_json(j);
    json_decref(j);
}

static void print_csv(const struct swn_cache_entry *list, size_t count)
{
    static const char *const keys[] = {"name", "bytes", "used_ns", "source", "stale"};
    json_t *stores = stores_json(list, count);
    ctl_print_csv(keys, sizeof keys / sizeof *keys, stores);
    json_decref(stores);
}

static void print_table(const struct request *r, const struct swn_cache_entry *list, size_t count, uint64_t sum,
                        uint64_t cap)
{
    char size[32], limit[32], used[32];
    if (count)
        printf("%-41s  %12s  %-16s  %s\n", "NAME", "SIZE", "LAST USED", "CHECKPOINT");
    for (size_t i = 0; i < count; i++) {
        time_t seconds = (time_t)(list[i].used_ns / 1000000000);
        struct tm tm;
        strftime(used, sizeof used, "%Y-%m-%d %H:%M", localtime_r(&seconds, &tm));
        printf("%-41s  %12s  %-16s  ", list[i].name, swn_format_mib(size, list[i].bytes), used);
        swn_cli_print_name(stdout, list[i].source ? list[i].source : "(damaged)", 0);
        puts(list[i].stale ? " (gone or changed)" : "");
    }
    uint64_t living, dead;
    swn_atomic_file_look(&swn_io_sys, r->dir, &living, &dead);
    if (living)
        printf("%s of stores that are being built\n", swn_format_mib(size, living));
    if (dead)
        printf("%s of builds that were killed: the next one removes them, or 'swapnetctl cache rm --all'\n",
               swn_format_mib(size, dead));
    printf("%s in %zu stores of %s in ", swn_format_mib(size, sum), count,
           cap ? swn_format_mib(limit, cap) : "no limit");
    swn_cli_print_name(stdout, r->dir, 0);
    putchar('\n');
}

static int list(const struct request *r)
{
    struct swn_cache_entry *entries;
    size_t count;
    uint64_t sum = 0, cap = 0;
    char why[SWN_ERRMSG] = "";
    if (r->word_count) {
        swn_cli_error("unexpected argument '%s'", r->words[0]);
        return SWN_CLI_USAGE;
    }
    int rc = swn_cache_list(&entries, &count, &swn_io_sys, r->dir, 1, why);
    if (!rc && (rc = swn_cache_cap(&swn_io_sys, r->dir, &cap, why)))
        swn_cache_list_free(entries, count);
    if (rc) {
        swn_cli_error("%s", why);
        return SWN_CLI_FAILURE;
    }
    for (size_t i = 0; i < count; i++)
        sum += entries[i].bytes;
    if (r->format == SWN_CLI_CSV)
        print_csv(entries, count);
    else
        (r->format == SWN_CLI_JSON ? print_json : print_table)(r, entries, count, sum, cap);
    swn_cache_list_free(entries, count);
    return SWN_CLI_OK;
}

/* ---- rm ---- */

static int remove_all(const struct request *r)
{
    struct swn_cache_entry *entries;
    size_t count;
    char why[SWN_ERRMSG] = "";
    int failed = 0;
    if (swn_cache_list(&entries, &count, &swn_io_sys, r->dir, 0, why)) {
        swn_cli_error("%s", why);
        return SWN_CLI_FAILURE;
    }
    for (size_t i = 0; i < count; i++) {
        int rc = swn_cache_remove(&swn_io_sys, r->dir, entries[i].name, why);
        if (rc && rc != -ENOENT) { /* ENOENT: another process removed the store just now */
            swn_cli_error("%s", why);
            failed = 1;
        }
    }
    swn_cache_list_free(entries, count);
    swn_atomic_file_clean(&swn_io_sys, r->dir);
    return failed ? SWN_CLI_FAILURE : SWN_CLI_OK;
}

static int remove_some(const struct request *r)
{
    char why[SWN_ERRMSG] = "";
    int failed = 0;
    if (r->all == !!r->word_count) {
        swn_cli_error("give names of stores, or --all; see 'swapnetctl help cache'");
        return SWN_CLI_USAGE;
    }
    if (r->all)
        return remove_all(r);
    for (int i = 0; i < r->word_count; i++) {
        if (swn_cache_remove(&swn_io_sys, r->dir, r->words[i], why)) {
            swn_cli_error("%s", why);
            failed = 1;
        }
    }
    return failed ? SWN_CLI_FAILURE : SWN_CLI_OK;
}

/* ---- cap ---- */

static int set_cap(const struct request *r, const char *text)
{
    uint64_t cap = 0;
    char why[SWN_ERRMSG] = "";
    int wrong = strcmp(text, "none") ? swn_parse_size(text, &cap) : 0;
    if (wrong == -ERANGE || cap > SWN_MEMORY_MOST_BYTES) {
        swn_cli_error("cap '%s' is too large: it can be " SWN_MEMORY_MOST_TEXT " at most, or none", text);
        return SWN_CLI_USAGE;
    }
    if (wrong || (!cap && strcmp(text, "none") != 0)) {
        swn_cli_error("cap '%s' is not a size: use e.g. 20G, or none", text);
        return SWN_CLI_USAGE;
    }
    int rc = swn_cache_set_cap(&swn_io_sys, r->dir, cap, why);
    if (!rc && cap)
        rc = swn_cache_trim(&swn_io_sys, r->dir, &(struct swn_cache_limits){.cache_limit_bytes = cap}, 0, NULL, why);
    if (rc)
        swn_cli_error("%s", why);
    return rc ? SWN_CLI_FAILURE : SWN_CLI_OK;
}

static int cap(const struct request *r)
{
    uint64_t bytes;
    char why[SWN_ERRMSG] = "", mib[32];
    if (r->word_count > 1) {
        swn_cli_error("unexpected argument '%s'", r->words[1]);
        return SWN_CLI_USAGE;
    }
    if (r->word_count)
        return set_cap(r, r->words[0]);
    if (swn_cache_cap(&swn_io_sys, r->dir, &bytes, why)) {
        swn_cli_error("%s", why);
        return SWN_CLI_FAILURE;
    }
    if (bytes)
        printf("%" PRIu64 " bytes (%s)\n", bytes, swn_format_mib(mib, bytes));
    else
        puts("none");
    return SWN_CLI_OK;
}

/* ---- options ---- */

/* 0; 1 when help was shown; -EINVAL. */
static int take_options(struct request *r, int argc, char **argv)
{
    static const struct option options[] = {{"output", required_argument, NULL, 'o'},
                                            {"store", required_argument, NULL, 's'},
                                            {"all", no_argument, NULL, 'a'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *dir = NULL;
    int opt;
    while ((opt = getopt_long(argc, argv, ":o:s:h", options, NULL)) != -1) {
        if (opt == 'h') {
            swn_cli_help(argv[0]);
            return 1;
        } else if (opt == 's') {
            dir = optarg;
        } else if (opt == 'a') {
            r->all = 1;
        } else if (opt == 'o') {
            if ((r->format = swn_cli_format(optarg, SWN_CLI_CSV)) < 0)
                return -EINVAL;
        } else {
            swn_cli_bad_option(argv, opt);
            return -EINVAL;
        }
    }
    if (optind >= argc) {
        swn_cli_error("give one of ls, rm, cap; see 'swapnetctl help cache'");
        return -EINVAL;
    }
    r->words = argv + optind + 1;
    r->word_count = argc - optind - 1;
    return find_dir(r, dir) ? -EINVAL : 0;
}

int ctl_cache(int argc, char **argv)
{
    struct request r = {.format = -1};
    int rc = take_options(&r, argc, argv);
    if (rc)
        return rc == 1 ? SWN_CLI_OK : SWN_CLI_USAGE;
    const char *verb = argv[optind];
    if (strcmp(verb, "ls") == 0)
        return list(&r);
    if (r.format >= 0) {
        swn_cli_error("--output is for ls");
        return SWN_CLI_USAGE;
    }
    if (strcmp(verb, "rm") == 0)
        return remove_some(&r);
    if (strcmp(verb, "cap") == 0)
        return cap(&r);
    swn_cli_error("unknown word '%s': give one of ls, rm, cap", verb);
    return SWN_CLI_USAGE;
}
