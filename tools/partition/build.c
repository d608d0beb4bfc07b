/* tools/partition/build.c - `swapnet-partition build`: from a checkpoint, or from a store in another order. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/partition/partition_tool.h"
#include "blocks/store/cache.h"
#include "base/backing.h"
#include "base/paths.h"
#include "base/size.h"
#include "base/file_io.h"
#include "base/errmsg.h"

enum { BAR = 30 };
/* On file systems with times in whole seconds, two seconds may pass before a new time is certain. */
#define SETTLE_MS 3000
/* A million layers with names of 64 letters. */
#define ORDER_MOST ((size_t)64 << 20)

/* ---- progress ---- */

struct bar {
    int shown; /* stderr is a terminal, and --quiet was not given */
    struct timespec begin, last;
    uint64_t before; /* bytes done at the last call */
};

static double seconds_since(const struct timespec *then)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - then->tv_sec) + (double)(now.tv_nsec - then->tv_nsec) / 1e9;
}

static int progress(void *user, uint64_t done, uint64_t total)
{
    struct bar *b = user;
    char a[32], c[32], line[BAR + 1];
    if (part_stopped())
        return 1;
    if (done < b->before) /* of the next file */
        clock_gettime(CLOCK_MONOTONIC, &b->begin);
    b->before = done;
    if (!b->shown || (done < total && seconds_since(&b->last) < 0.1))
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &b->last);
    int filled = (int)((double)BAR * (double)done / (double)total);
    memset(line, '#', (size_t)filled);
    memset(line + filled, '.', (size_t)(BAR - filled));
    line[BAR] = 0;
    fprintf(stderr, "\r[%s] %s of %s, %.0f MiB/s ", line, swn_format_mib(a, done), swn_format_mib(c, total),
            (double)done / seconds_since(&b->begin) / (1 << 20));
    if (done == total)
        fputc('\n', stderr);
    return 0;
}

/* ---- the order ---- */

struct order {
    char *text;         /* of the file; its lines are the names */
    const char **names; /* in `text` */
    size_t count;
};

/* The bytes behind fd, with a 0 behind them. A pipe has no size, and what another user has put beside a store no end.
 * Signals are not caught yet. */
static int read_text(int fd, char **text, size_t *length)
{
    size_t room = 0;
    ssize_t n = 1;
    for (*length = 0; n > 0; *length += n > 0 ? (size_t)n : 0) {
        if (*length + 1 >= room) {
            char *grown = realloc(*text, room = room ? 2 * room : 65536);
            if (!grown)
                return -ENOMEM;
            *text = grown;
        }
        n = read(fd, *text + *length, room - *length - 1);
        if (*length > ORDER_MOST)
            return -EFBIG;
    }
    int rc = n < 0 ? -errno : 0;
    (*text)[*length] = 0;
    return rc;
}

/* The lines of the text that are not empty. */
static int split(struct order *o, size_t length)
{
    size_t lines = 1;
    char *rest = o->text, *line;
    for (size_t i = 0; i < length; i++)
        lines += o->text[i] == '\n' || o->text[i] == '\r';
    o->names = calloc(lines, sizeof *o->names);
    while (o->names && (line = strtok_r(rest, "\r\n", &rest)))
        o->names[o->count++] = line;
    return o->names ? 0 : -ENOMEM;
}

/* is_learned: nobody has named the file, so only a regular one is opened. */
static int read_order(struct order *o, const char *path, int is_learned)
{
    size_t length = 0;
    int fd = is_learned ? swn_open_regular(&swn_io_sys, path, 0, NULL) : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    int rc = fd >= 0 ? read_text(fd, &o->text, &length) : is_learned ? fd : -errno;
    if (fd >= 0)
        close(fd);
    if (!rc)
        rc = split(o, length);
    if (rc)
        swn_cli_error("%s: %s", path,
                      rc == -EINVAL  ? "not a regular file"
                      : rc == -EFBIG ? "no order of layers is so long"
                                     : strerror(-rc));
    return rc;
}

static void free_order(struct order *o)
{
    free(o->names);
    free(o->text);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Without this an order of another model would be accepted silently. */
static void compare_order(const struct order *o, const struct swn_store *s)
{
    const char **layers = calloc(s->layer_count + 1, sizeof *layers);
    size_t known = 0;
    for (size_t k = 0; layers && k < s->layer_count; k++)
        layers[k] = s->layers[k].name;
    if (layers)
        qsort(layers, s->layer_count, sizeof *layers, by_name);
    for (size_t i = 0; layers && i < o->count; i++)
        known += bsearch(&o->names[i], layers, s->layer_count, sizeof *layers, by_name) != NULL;
    if (layers && known < o->count)
        swn_cli_error("warning: %zu of %zu names in the order are not layers of the model", o->count - known, o->count);
    free(layers);
}

/* ---- building ---- */

struct request {
    const char *checkpoint, *output, *from_store, *order_path, *cache;
    int misused;         /* the output is one of the inputs */
    int quiet, encoding; /* the value of --encoding, an enum swn_store_compressed; -1: not given */
    struct order order;
    struct bar bar;
    struct swn_store_opts opts;
};

static int finished(const struct request *r, const char *path)
{
    struct swn_store *s;
    char why[SWN_ERRMSG];
    if (swn_store_open(&s, &swn_io_sys, path, why) == 0) {
        if (r->order.count)
            compare_order(&r->order, s);
        part_say_skipped(s, s->source_count == 1 ? s->sources[0].path : "the checkpoint");
        swn_store_close(s, &swn_io_sys);
    }
    if (isatty(STDOUT_FILENO))
        swn_cli_print_name(stdout, path, 0);
    else
        fputs(path, stdout); /* a program that reads it opens it */
    putchar('\n');
    return 0;
}

/* The cache identifies a file by its times. */
static int open_settled(struct swn_checkpoint **c, const char *path, char why[SWN_ERRMSG])
{
    int fd = swn_open_regular(&swn_io_sys, path, 0, why);
    if (fd < 0)
        return fd;
    int rc = swn_checkpoint_open_settled(c, &swn_io_sys, fd, path, SETTLE_MS, why);
    swn_io_sys.close(NULL, fd);
    return rc;
}

/* A file of the checkpoint. */
struct shard {
    char store[PATH_MAX]; /* in the cache */
    uint64_t need_bytes;  /* of the store, without compressed extents */
    uint64_t there_bytes; /* size of the store that the cache already has; 0: none */
};

static int look_at_shard(struct shard *d, const struct request *r, const char *path, char why[SWN_ERRMSG])
{
    struct swn_checkpoint *c;
    struct swn_store *s;
    int rc = open_settled(&c, path, why);
    if (rc)
        return rc;
    swn_cache_path(r->cache, &c->files[0].identity, d->store, sizeof d->store);
    rc = swn_cache_need(c, &r->opts, &d->need_bytes, why);
    int anew = r->order.count || r->encoding >= 0;
    if (!rc && !anew && swn_cache_open(&s, &swn_io_sys, r->cache, c->files[0].fd, why) == 0) {
        d->there_bytes = s->total_bytes;
        swn_store_close(s, &swn_io_sys);
    }
    swn_checkpoint_close(c, &swn_io_sys);
    return rc;
}

/* A program needs the stores of all shards, so none may be evicted for another. Existing stores may have compressed
 * extents for which there is no room: then all stores are built anew. */
static int fit_shards(struct shard *d, size_t count, const char *dir, uint64_t cap, char why[SWN_ERRMSG])
{
    uint64_t need = 0, sum = 0;
    for (size_t i = 0; i < count; i++) {
        need += d[i].need_bytes;
        sum += d[i].there_bytes ? d[i].there_bytes : d[i].need_bytes;
    }
    if (!cap || sum <= cap || count == 1)
        return 0;
    for (size_t i = 0; i < count; i++)
        d[i].there_bytes = 0;
    return need <= cap
               ? 0
               : swn_errmsg(why, -EFBIG,
                            "the stores of the %zu shards need %" PRIu64 " bytes, more than the cache in %s may "
                            "take (%" PRIu64 "): raise it with 'swapnetctl cache cap'",
                            count, need, dir, cap);
}

static int build_shard(const struct request *r, const struct swn_cache_limits *limits, const char *path,
                       char why[SWN_ERRMSG])
{
    struct swn_checkpoint *c;
    struct swn_store *s;
    int rc = open_settled(&c, path, why);
    if (rc)
        return rc;
    rc = swn_cache_build(&s, &swn_io_sys, r->cache, limits, c, &r->opts, why);
    swn_checkpoint_close(c, &swn_io_sys);
    if (rc)
        return rc;
    rc = finished(r, s->path);
    swn_store_close(s, &swn_io_sys);
    return rc;
}

static int build_shards(const struct request *r, const struct swn_checkpoint *c, struct shard *d, const char **names,
                        char why[SWN_ERRMSG])
{
    struct swn_cache_limits limits = {.keep = names, .keep_count = c->file_count};
    int rc = swn_cache_cap(&swn_io_sys, r->cache, &limits.cache_limit_bytes, why);
    for (size_t i = 0; i < c->file_count && !rc; i++)
        rc = look_at_shard(&d[i], r, c->files[i].path, why);
    if (!rc)
        rc = fit_shards(d, c->file_count, r->cache, limits.cache_limit_bytes, why);
    for (size_t i = 0; i < c->file_count && !rc; i++) {
        limits.reserved_bytes = 0;
        for (size_t k = 0; k < c->file_count; k++) {
            int missing = k >= i && !d[k].there_bytes;
            limits.reserved_bytes += missing && k > i ? d[k].need_bytes : 0;
            names[k] = missing ? "" : strrchr(d[k].store, '/') + 1;
        }
        rc = d[i].there_bytes ? finished(r, d[i].store) : build_shard(r, &limits, c->files[i].path, why);
    }
    return rc;
}

/* Builds a store at a path of the user's choice. A change of the checkpoint during the copy shows in its times, once
 * these have settled; times that never settle (in memory, or in the future) are taken as they are. */
static int build_output(const struct request *r, struct swn_checkpoint **c, const char *path, char why[SWN_ERRMSG])
{
    size_t count = (*c)->file_count;
    struct swn_identity *ids = calloc(count + 1, sizeof *ids);
    int rc = ids ? 0 : swn_errmsg(why, -ENOMEM, "no memory");
    for (size_t i = 0; i < count && !rc; i++) {
        const struct swn_ckpt_file *f = &(*c)->files[i];
        int settled = swn_identity_settle(&swn_io_sys, f->fd, SETTLE_MS, &ids[i]);
        if (settled && settled != -ENOTSUP && settled != -ESTALE)
            rc = swn_errmsg(why, settled, "%s: %s", f->path, strerror(-settled));
        else if (settled == -ENOTSUP)
            ids[i] = f->identity;
    }
    if (!rc) { /* opens it anew: bytes read before the times settled may have been overwritten within the same tick */
        swn_checkpoint_close(*c, &swn_io_sys);
        *c = NULL;
        rc = swn_checkpoint_open(c, &swn_io_sys, path, why);
    }
    for (size_t i = 0; i < count && !rc; i++)
        if ((*c)->file_count != count || !swn_identity_same_file(&(*c)->files[i].identity, &ids[i]))
            rc = swn_errmsg(why, -ESTALE, "%s: changed while it was looked at; build again", (*c)->files[0].path);
    free(ids);
    if (!rc)
        rc = swn_store_build(*c, &swn_io_sys, r->output, &r->opts, why);
    return rc ? rc : finished(r, r->output);
}

/* Builds one store per file, unless it exists: the library sees a program open one shard, and looks for the store of
 * that shard. */
static int build_into_cache(const struct request *r, const struct swn_checkpoint *c, char why[SWN_ERRMSG])
{
    struct shard *d = calloc(c->file_count + 1, sizeof *d);
    const char **names = calloc(c->file_count + 1, sizeof *names);
    int rc = d && names ? build_shards(r, c, d, names, why) : swn_errmsg(why, -ENOMEM, "no memory");
    if (!rc && swn_is_memory_backed(&swn_io_sys, r->cache))
        swn_cli_error(
            "warning: the cache directory %s lies in memory (tmpfs, or an overlay over it): a store there saves "
            "none; give --store DIR on a disk",
            r->cache);
    free(d);
    free(names);
    return rc;
}

/* A relative path in a store would mean nothing in another directory. Links stay: the shards of an index lie beside the
 * link, not beside its target. */
static int absolute(const char *path, char out[PATH_MAX])
{
    char dir[PATH_MAX] = "";
    if (path[0] != '/' && !getcwd(dir, sizeof dir))
        return -errno;
    int n = snprintf(out, PATH_MAX, "%s%s%s", dir, dir[0] ? "/" : "", path);
    return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* The output must not replace a file that the store is made of. */
static int keep_input(struct request *r, const char *input, char why[SWN_ERRMSG])
{
    if (!r->output || !input || !part_same_file(r->output, input))
        return 0;
    r->misused = 1;
    return swn_errmsg(why, -EINVAL, "--output %s would replace what the store is made of, %s", r->output, input);
}

static int keep_inputs(struct request *r, const struct swn_checkpoint *c, char why[SWN_ERRMSG])
{
    int rc = keep_input(r, r->checkpoint, why);
    for (size_t i = 0; i < c->file_count && !rc; i++)
        rc = keep_input(r, c->files[i].path, why);
    return rc ? rc : keep_input(r, r->order_path, why);
}

static int build(struct request *r, char why[SWN_ERRMSG])
{
    struct swn_store *from;
    struct swn_checkpoint *c;
    char path[PATH_MAX];
    if (r->from_store) {
        int rc = swn_store_open(&from, &swn_io_sys, r->from_store, why);
        if (rc)
            return rc;
        const char *to = r->output ? r->output : r->from_store;
        rc = keep_input(r, r->order_path, why);
        if (!rc)
            rc = swn_store_recut(from, &swn_io_sys, to, &r->opts, why);
        swn_store_close(from, &swn_io_sys);
        return rc ? rc : finished(r, to);
    }
    int rc = absolute(r->checkpoint, path);
    if (rc) {
        snprintf(why, SWN_ERRMSG, "%s: %s", r->checkpoint, strerror(-rc));
        return rc;
    }
    rc = swn_checkpoint_open(&c, &swn_io_sys, path, why);
    if (rc)
        return rc;
    rc = keep_inputs(r, c, why);
    if (!rc && r->output)
        rc = build_output(r, &c, path, why);
    else if (!rc)
        rc = build_into_cache(r, c, why);
    if (c)
        swn_checkpoint_close(c, &swn_io_sys);
    return rc;
}

/* ---- options ---- */

static const struct option options[] = {
    {"output", required_argument, NULL, 'o'},
    {"order", required_argument, NULL, 'r'},
    {"from-store", required_argument, NULL, 'f'},
    {"encoding", required_argument, NULL, 'e'},
    {"store", required_argument, NULL, 's'},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* -EINVAL, after printing: no such encoding. */
static int take_encoding(const char *name)
{
    if (!strcmp(name, "raw"))
        return SWN_COPIES_NONE;
    if (!strcmp(name, "auto") || !strcmp(name, "narrow"))
        return SWN_COPIES_NARROW;
    swn_cli_error("'%s' is not an encoding: raw, narrow or auto", name);
    return -EINVAL;
}

/* 0; 1 when help was shown; -EINVAL. */
static int take_options(struct request *r, int argc, char **argv)
{
    int opt;
    while ((opt = getopt_long(argc, argv, ":o:s:qh", options, NULL)) != -1) {
        if (optarg && !*optarg) {
            swn_cli_error("the value of '%s' is empty", argv[optind - 1]);
            return -EINVAL;
        }
        switch (opt) {
        case 'h':
            swn_cli_help(argv[0]);
            return 1;
        case 'o':
            r->output = optarg;
            break;
        case 'r':
            r->order_path = optarg;
            break;
        case 'f':
            r->from_store = optarg;
            break;
        case 'e':
            if ((r->encoding = take_encoding(optarg)) < 0)
                return -EINVAL;
            break;
        case 's':
            r->cache = optarg;
            break;
        case 'q':
            r->quiet = 1;
            break;
        default:
            swn_cli_bad_option(argv, opt);
            return -EINVAL;
        }
    }
    r->checkpoint = optind < argc ? argv[optind] : NULL;
    if (argc - optind > 1 || !r->checkpoint == !r->from_store) {
        swn_cli_error("give one checkpoint, or --from-store; see 'swapnet-partition help build'");
        return -EINVAL;
    }
    return 0;
}

static int find_cache(struct request *r, char dir[PATH_MAX])
{
    if (r->cache || r->output || r->from_store)
        return 0;
    int rc = swn_store_dir(environ, dir, PATH_MAX);
    if (rc)
        swn_cli_error("%s: give --store DIR or --output STORE",
                      rc == -ENOTSUP ? "SWAPNET_STORE is off" : "no cache directory");
    r->cache = dir;
    return rc;
}

/* The order that the library has learned, if any. */
static const char *learned_order(const char *store, char path[PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "%s%s", store, SWN_ORDER_SUFFIX);
    return n > 0 && n < PATH_MAX && access(path, R_OK) == 0 ? path : NULL;
}

int part_build(int argc, char **argv)
{
    char dir[PATH_MAX], learned[PATH_MAX], why[SWN_ERRMSG] = "";
    struct request r = {.encoding = -1};
    int rc = take_options(&r, argc, argv);
    if (rc)
        return rc == 1 ? SWN_CLI_OK : SWN_CLI_USAGE;
    int is_learned = !r.order_path && r.from_store;
    if (is_learned)
        r.order_path = learned_order(r.from_store, learned);
    if (find_cache(&r, dir) || (r.order_path && read_order(&r.order, r.order_path, is_learned))) {
        free_order(&r.order);
        return SWN_CLI_FAILURE;
    }
    r.bar.shown = !r.quiet && isatty(STDERR_FILENO);
    clock_gettime(CLOCK_MONOTONIC, &r.bar.begin);
    r.opts =
        (struct swn_store_opts){.order = r.order.names,
                                .order_count = r.order.count,
                                .copies = r.encoding < 0 ? SWN_COPIES_NARROW : (enum swn_store_compressed)r.encoding,
                                .progress = progress,
                                .user = &r.bar};
    part_catch_signals();
    rc = build(&r, why);
    free_order(&r.order);
    if (rc && r.bar.shown)
        fputc('\n', stderr);
    if (rc == -ECANCELED && part_stopped())
        part_stop();
    if (rc)
        swn_cli_error("%s", why);
    return r.misused ? SWN_CLI_USAGE : part_exit_code(rc);
}
