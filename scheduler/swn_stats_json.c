/* swn_stats_json.c - the statistics document. A table maps every field to the key of its name. */
#define _GNU_SOURCE
#include "swn_stats_json.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCHEMA 1

enum kind { TEXT, NUMBER, REAL };

#define FIELD(kind, name)                                                                                              \
    {                                                                                                                  \
#name, offsetof(struct swn_stats, name), kind                                                                  \
    }

static const struct field {
    const char *key;
    size_t offset;
    enum kind kind;
} fields[] = {
    FIELD(NUMBER, pid),
    FIELD(TEXT, name),
    FIELD(TEXT, state),
    FIELD(NUMBER, budget_bytes),
    FIELD(NUMBER, minimum_bytes),
    FIELD(NUMBER, demand_bytes),
    FIELD(NUMBER, resident_bytes),
    FIELD(NUMBER, peak_resident_bytes),
    FIELD(NUMBER, pool_bytes),
    FIELD(NUMBER, kept_bytes),
    FIELD(NUMBER, small_bytes),
    FIELD(NUMBER, streamed_bytes),
    FIELD(NUMBER, spilled_bytes),
    FIELD(NUMBER, deferred_bytes),
    FIELD(NUMBER, swap_ins),
    FIELD(NUMBER, window_hits),
    FIELD(NUMBER, window_misses),
    FIELD(NUMBER, stall_ns),
    FIELD(NUMBER, stray_reads),
    FIELD(NUMBER, over_budget_bytes),
    FIELD(NUMBER, untracked_bytes),
    FIELD(NUMBER, passes),
    FIELD(NUMBER, read_errors),
    FIELD(NUMBER, plans),
    FIELD(REAL, urgency),
    FIELD(TEXT, fetch_path),
    FIELD(TEXT, torch_version),
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static json_t *text_value(const char *text)
{
    if (!text)
        return json_null();
    json_t *value = json_string(text);
    if (value)
        return value;
    char *ascii = strdup(text); /* a program's name is any bytes */
    if (!ascii)
        return NULL;
    for (char *p = ascii; *p; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    value = json_string(ascii);
    free(ascii);
    return value;
}

static json_t *field_value(const struct swn_stats *stats, const struct field *f)
{
    const char *at = (const char *)stats + f->offset;
    if (f->kind == TEXT) {
        const char *text;
        memcpy(&text, at, sizeof(text));
        return text_value(text);
    }
    if (f->kind == REAL) {
        double real;
        memcpy(&real, at, sizeof(real));
        return json_real(real);
    }
    uint64_t number;
    memcpy(&number, at, sizeof(number));
    return json_integer(number > LLONG_MAX ? LLONG_MAX : (json_int_t)number);
}

static char *dump(const struct swn_stats *stats, size_t flags)
{
    char *text = NULL;
    json_t *root = json_pack("{s:i}", "schema", SCHEMA);
    size_t i = 0;
    while (root && i < FIELDS && json_object_set_new(root, fields[i].key, field_value(stats, &fields[i])) == 0)
        i++;
    if (i == FIELDS)
        text = json_dumps(root, flags);
    json_decref(root);
    return text;
}

char *swn_stats_to_json(const struct swn_stats *stats)
{
    return dump(stats, JSON_COMPACT);
}

static int write_all(int fd, const char *text, size_t len)
{
    while (len) {
        ssize_t n = write(fd, text, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        text += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Creates or opens `path` with `flags`, writes, closes. */
static int write_text(const char *path, int flags, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | flags, 0644);
    if (fd < 0)
        return -errno;
    int rc = write_all(fd, text, strlen(text));
    if (rc == 0)
        rc = write_all(fd, "\n", 1);
    if (close(fd) != 0 && rc == 0)
        rc = -errno;
    return rc;
}

static int replace_file(const char *path, const char *text)
{
    char temporary[PATH_MAX];
    int n = snprintf(temporary, sizeof(temporary), "%s.%ld.tmp", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof(temporary))
        return -ENAMETOOLONG;
    (void)unlink(temporary); /* left by a killed process that had our number */
    int rc = write_text(temporary, O_CREAT | O_EXCL | O_NOFOLLOW, text);
    if (rc == 0 && rename(temporary, path) != 0)
        rc = -errno;
    if (rc != 0 && rc != -EEXIST)
        (void)unlink(temporary);
    return rc;
}

int swn_stats_write_file(const struct swn_stats *stats, const char *path)
{
    char *text = dump(stats, JSON_INDENT(2));
    if (!text)
        return -ENOMEM;
    struct stat st;
    int rc;
    /* rename would put a file in the place of a device or of a link such as /dev/stdout; a fifo nobody reads must not
     * hold up the end of the program, hence O_NONBLOCK */
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
        rc = write_text(path, O_CREAT | O_TRUNC | O_NONBLOCK, text);
    else
        rc = replace_file(path, text);
    free(text);
    return rc;
}
