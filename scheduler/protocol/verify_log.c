/* scheduler/protocol/verify_log.c - see verify_log.h. */
#define _GNU_SOURCE
#include "scheduler/protocol/verify_log.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

/* --- reading --- */

static struct swn_result_log_stream *stream_of(struct swn_result_log *r, unsigned file, unsigned thread)
{
    for (size_t i = r->stream_count; i-- > 0 && r->streams[i].file == file;)
        if (r->streams[i].thread == thread)
            return &r->streams[i];
    struct swn_result_log_stream *grown = reallocarray(r->streams, r->stream_count + 1, sizeof *grown);
    if (!grown)
        return NULL;
    r->streams = grown;
    grown[r->stream_count] = (struct swn_result_log_stream){.file = file, .thread = thread};
    return &grown[r->stream_count++];
}

static int add_key(struct swn_result_log_stream *s, uint64_t key)
{
    if (s->count == s->room) {
        size_t room = s->room ? s->room * 2 : 256;
        uint64_t *grown = reallocarray(s->keys, room, sizeof *grown);
        if (!grown)
            return -ENOMEM;
        s->keys = grown;
        s->room = room;
    }
    s->keys[s->count++] = key;
    return 0;
}

/* The thread of a line and the text behind it; NULL: the zeros at the end, or a line that was cut off. */
static char *split_line(char *line, unsigned *thread)
{
    char *rest, *end = strchr(line, '\n');
    unsigned long number = strtoul(line, &rest, 10);
    if (!end || rest == line || *rest != ' ' || number > INT32_MAX)
        return NULL;
    *end = 0;
    *thread = (unsigned)number;
    return rest + 1;
}

/* The values of a file's head. */
struct head {
    long long peak, budget;
    int cut;
};

static FILE *open_file(const char *path, struct head *out)
{
    char head[SWN_RESULTS_HEAD + 1] = "";
    FILE *f = fopen(path, "re");
    if (f &&
        (fread(head, 1, SWN_RESULTS_HEAD, f) != SWN_RESULTS_HEAD ||
         sscanf(head, SWN_RESULTS_MAGIC " peak %lld cut %d budget %lld", &out->peak, &out->cut, &out->budget) != 3)) {
        fclose(f);
        f = NULL;
        errno = EINVAL;
    }
    return f;
}

static int read_file(struct swn_result_log *r, unsigned file)
{
    struct head head;
    int rc = 0;
    FILE *f = open_file(r->files[file], &head);
    if (!f)
        return -errno;
    r->peak_bytes = (uint64_t)head.peak > r->peak_bytes ? (uint64_t)head.peak : r->peak_bytes;
    r->budget_bytes = (uint64_t)head.budget > r->budget_bytes ? (uint64_t)head.budget : r->budget_bytes;
    r->cut |= head.cut;
    char *line = NULL, *result;
    size_t room = 0;
    unsigned thread;
    while (!rc && getline(&line, &room, f) > 0 && (result = split_line(line, &thread))) {
        struct swn_result_log_stream *s = stream_of(r, file, thread);
        rc = s ? add_key(s, XXH3_64bits(result, strlen(result))) : -ENOMEM;
        r->total++;
        r->unseen += !strncmp(result, SWN_RESULTS_UNSEEN, sizeof SWN_RESULTS_UNSEEN - 1);
    }
    free(line);
    fclose(f);
    return rc;
}

static int by_place(const void *a, const void *b)
{
    const struct swn_result_log_stream *x = a, *y = b;
    return x->file != y->file ? (x->file > y->file) - (x->file < y->file)
                              : (x->thread > y->thread) - (x->thread < y->thread);
}

static int is_record(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int list_files(struct swn_result_log *r, const char *dir)
{
    struct dirent **entries;
    int n = scandir(dir, &entries, is_record, alphasort), rc = n < 0 ? -errno : 0;
    if (n < 0)
        return rc;
    r->files = calloc((size_t)n + 1, sizeof *r->files);
    for (int i = 0; i < n; i++) {
        if (!r->files || asprintf(&r->files[r->file_count], "%s/%s", dir, entries[i]->d_name) < 0)
            rc = -ENOMEM;
        else
            r->file_count++;
        free(entries[i]);
    }
    free(entries);
    return r->files ? rc : -ENOMEM;
}

int swn_result_log_read(struct swn_result_log *out, const char *dir, char why[SWN_ERRMSG])
{
    *out = (struct swn_result_log){0};
    const char *at = dir;
    int rc = list_files(out, dir);
    for (unsigned i = 0; !rc && i < out->file_count; i++)
        rc = read_file(out, i), at = out->files[i];
    if (rc) {
        rc =
            swn_errmsg(why, rc, "cannot read %s: %s", at, rc == -EINVAL ? "it is no record of results" : strerror(-rc));
        swn_result_log_free(out);
        return rc;
    }
    if (out->stream_count)
        qsort(out->streams, out->stream_count, sizeof *out->streams, by_place);
    return 0;
}

void swn_result_log_free(struct swn_result_log *r)
{
    for (size_t i = 0; i < r->stream_count; i++)
        free(r->streams[i].keys);
    for (size_t i = 0; i < r->file_count; i++)
        free(r->files[i]);
    free(r->streams);
    free(r->files);
    *r = (struct swn_result_log){0};
}

/* --- comparing --- */

struct digest {
    uint64_t value;
    size_t stream;
};

/* Streams, or results, of one run that the other run lacks. */
struct side {
    const struct swn_result_log *r;
    struct digest *streams;
    size_t stream_count;
    uint64_t *keys; /* of these streams, sorted; then those without a partner */
    size_t key_count;
};

static int by_value(const void *a, const void *b)
{
    const struct digest *x = a, *y = b;
    return x->value != y->value ? (x->value > y->value) - (x->value < y->value)
                                : (x->stream > y->stream) - (x->stream < y->stream);
}

static int by_stream(const void *a, const void *b)
{
    const struct digest *x = a, *y = b;
    return (x->stream > y->stream) - (x->stream < y->stream);
}

static int by_key(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int list_streams(struct side *s)
{
    s->streams = calloc(s->r->stream_count + 1, sizeof *s->streams);
    if (!s->streams)
        return -ENOMEM;
    for (size_t i = 0; i < s->r->stream_count; i++)
        s->streams[s->stream_count++] =
            (struct digest){XXH3_64bits(s->r->streams[i].keys, s->r->streams[i].count * sizeof(uint64_t)), i};
    qsort(s->streams, s->stream_count, sizeof *s->streams, by_value);
    return 0;
}

static void drop_equal_streams(struct side *a, struct side *b)
{
    size_t i = 0, j = 0, m = 0, n = 0;
    while (i < a->stream_count || j < b->stream_count) {
        int left = j == b->stream_count || (i < a->stream_count && a->streams[i].value < b->streams[j].value);
        int right = i == a->stream_count || (j < b->stream_count && b->streams[j].value < a->streams[i].value);
        if (left)
            a->streams[m++] = a->streams[i++];
        else if (right)
            b->streams[n++] = b->streams[j++];
        else
            i++, j++;
    }
    a->stream_count = m;
    b->stream_count = n;
    qsort(a->streams, m, sizeof *a->streams, by_stream);
    qsort(b->streams, n, sizeof *b->streams, by_stream);
}

static int list_keys(struct side *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->stream_count; i++)
        n += s->r->streams[s->streams[i].stream].count;
    s->keys = calloc(n + 1, sizeof *s->keys);
    if (!s->keys)
        return -ENOMEM;
    for (size_t i = 0; i < s->stream_count; i++) {
        const struct swn_result_log_stream *stream = &s->r->streams[s->streams[i].stream];
        memcpy(&s->keys[s->key_count], stream->keys, stream->count * sizeof *s->keys);
        s->key_count += stream->count;
    }
    qsort(s->keys, s->key_count, sizeof *s->keys, by_key);
    return 0;
}

static void drop_equal_keys(struct side *a, struct side *b)
{
    size_t i = 0, j = 0, m = 0, n = 0;
    while (i < a->key_count || j < b->key_count) {
        if (j == b->key_count || (i < a->key_count && a->keys[i] < b->keys[j]))
            a->keys[m++] = a->keys[i++];
        else if (i == a->key_count || b->keys[j] < a->keys[i])
            b->keys[n++] = b->keys[j++];
        else
            i++, j++;
    }
    a->key_count = m;
    b->key_count = n;
}

/* The n-th stream without a partner, or NULL. */
static const struct swn_result_log_stream *left(const struct side *s, size_t n)
{
    return n < s->stream_count ? &s->r->streams[s->streams[n].stream] : NULL;
}

/* Whether the result at `place`, if any, has no partner in the other run. */
static int alone(const struct side *s, const struct swn_result_log_stream *stream, size_t place)
{
    return stream && place < stream->count &&
           bsearch(&stream->keys[place], s->keys, s->key_count, sizeof *s->keys, by_key);
}

/* Streams without partners are paired in their order. Results that only changed places are passed over. */
static void find_first(const struct side *a, const struct side *b, struct swn_result_log_difference *d)
{
    for (size_t n = 0; n < a->stream_count || n < b->stream_count; n++) {
        const struct swn_result_log_stream *x = left(a, n), *y = left(b, n);
        d->stream[0] = x ? (long)a->streams[n].stream : -1;
        d->stream[1] = y ? (long)b->streams[n].stream : -1;
        size_t most = x && (!y || x->count > y->count) ? x->count : y->count;
        for (d->place = 0; d->place < most; d->place++)
            if ((!x || !y || d->place >= x->count || d->place >= y->count || x->keys[d->place] != y->keys[d->place]) &&
                (alone(a, x, d->place) || alone(b, y, d->place)))
                return;
    }
}

int swn_result_log_compare(const struct swn_result_log *a, const struct swn_result_log *b,
                           struct swn_result_log_difference *d)
{
    struct side x = {.r = a}, y = {.r = b};
    int rc = list_streams(&x) || list_streams(&y) ? -ENOMEM : SWN_RESULTS_SAME;
    *d = (struct swn_result_log_difference){.stream = {-1, -1}};
    if (!rc)
        drop_equal_streams(&x, &y);
    if (!rc && x.stream_count + y.stream_count) {
        rc = list_keys(&x) || list_keys(&y) ? -ENOMEM : SWN_RESULTS_OTHER_ORDER;
        d->streams_left = x.stream_count;
    }
    if (rc == SWN_RESULTS_OTHER_ORDER) {
        drop_equal_keys(&x, &y);
        d->missing = x.key_count;
        d->added = y.key_count;
        if (d->missing + d->added) {
            rc = SWN_RESULTS_DIFFERENT;
            find_first(&x, &y, d);
        }
    }
    free(x.streams);
    free(y.streams);
    free(x.keys);
    free(y.keys);
    return rc;
}

char *swn_result_log_describe(const struct swn_result_log *r, long stream, size_t place, char *buf, size_t size)
{
    snprintf(buf, size, "nothing");
    if (stream < 0 || place >= r->streams[stream].count)
        return buf;
    const struct swn_result_log_stream *s = &r->streams[stream];
    struct head head;
    FILE *f = open_file(r->files[s->file], &head);
    char *line = NULL, *result;
    size_t room = 0;
    unsigned thread;
    while (f && getline(&line, &room, f) > 0 && (result = split_line(line, &thread)))
        if (thread == s->thread && !place--) {
            size_t hash = strcspn(result, " ");
            snprintf(buf, size, "%s", result[hash] ? result + hash + 1 : result);
            swn_one_line(buf);
            break;
        }
    free(line);
    if (f)
        fclose(f);
    return buf;
}
