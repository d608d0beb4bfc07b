/* tests/unit/support/archive.c - see tests/unit/support/archive.h. */
#define _GNU_SOURCE /* memfd_create */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/support/archive.h"
#include "blocks/checkpoint/builder.h"
#include "base/errmsg.h"

#define FLAGS 0x808
#define CRC 0x12345678

void archive_begin(struct archive *a)
{
    memset(a, 0, sizeof(*a));
}

void archive_bytes(struct archive *a, const void *p, size_t n)
{
    if (a->n + n > a->room) {
        a->room = (a->n + n) * 2;
        a->p = realloc(a->p, a->room);
        assert_non_null(a->p);
    }
    if (n)
        memcpy(a->p + a->n, p, n);
    a->n += n;
}

void archive_number(struct archive *a, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++, value >>= 8)
        archive_bytes(a, &(unsigned char){(unsigned char)value}, 1);
}

void archive_set(struct archive *a, size_t at, uint64_t value, size_t bytes)
{
    assert_true(at + bytes <= a->n);
    for (size_t i = 0; i < bytes; i++, value >>= 8)
        a->p[at + i] = (unsigned char)value;
}

void archive_add(struct archive *a, const char *name, const void *data, size_t bytes)
{
    size_t len = strlen(name), i = a->count++, before = a->n + 30 + len + 4, pad = (64 - before % 64) % 64;
    assert_true(i < ARCHIVE_ENTRIES);
    a->e[i].name = name;
    a->e[i].bytes = (uint32_t)bytes;
    a->e[i].local = a->n;
    archive_number(a, 0x04034b50, 4);
    archive_number(a, 0, 2);
    archive_number(a, bytes ? FLAGS : 0x800, 2);
    archive_number(a, 0, 18);
    archive_number(a, len, 2);
    archive_number(a, pad + 4, 2);
    archive_bytes(a, name, len);
    archive_bytes(a, "FB", 2);
    archive_number(a, pad, 2);
    for (size_t k = 0; k < pad; k++)
        archive_bytes(a, "Z", 1);
    a->e[i].data = a->n;
    archive_bytes(a, data, bytes);
    a->e[i].descriptor = a->n;
    if (bytes) {
        archive_number(a, 0x08074b50, 4);
        archive_number(a, CRC, 4);
        archive_number(a, bytes, 4);
        archive_number(a, bytes, 4);
    }
}

static void directory(struct archive *a)
{
    a->directory = a->n;
    for (size_t i = 0; i < a->count; i++) {
        a->e[i].central = a->n;
        archive_number(a, 0x02014b50, 4);
        archive_number(a, 0, 4);
        archive_number(a, a->e[i].bytes ? FLAGS : 0x800, 2);
        archive_number(a, 0, 6);
        archive_number(a, a->e[i].bytes ? CRC : 0, 4);
        archive_number(a, a->e[i].bytes, 4);
        archive_number(a, a->e[i].bytes, 4);
        archive_number(a, strlen(a->e[i].name), 2);
        archive_number(a, 0, 12);
        archive_number(a, a->e[i].local, 4);
        archive_bytes(a, a->e[i].name, strlen(a->e[i].name));
    }
}

static void end_record(struct archive *a, size_t directory_bytes)
{
    a->end = a->n;
    archive_number(a, 0x06054b50, 4);
    archive_number(a, 0, 4);
    archive_number(a, a->count, 2);
    archive_number(a, a->count, 2);
    archive_number(a, directory_bytes, 4);
    archive_number(a, a->directory, 4);
    archive_number(a, 0, 2);
}

void archive_finish(struct archive *a)
{
    directory(a);
    end_record(a, a->n - a->directory);
}

void archive_finish64(struct archive *a)
{
    directory(a);
    size_t big = a->n;
    archive_number(a, 0x06064b50, 4);
    archive_number(a, 44, 8);
    archive_number(a, 0x2d031e, 4);
    archive_number(a, 0, 8);
    archive_number(a, a->count, 8);
    archive_number(a, a->count, 8);
    archive_number(a, big - a->directory, 8);
    archive_number(a, a->directory, 8);
    archive_number(a, 0x07064b50, 4);
    archive_number(a, 0, 4);
    archive_number(a, big, 8);
    archive_number(a, 1, 4);
    end_record(a, big - a->directory);
}

void archive_free(struct archive *a)
{
    free(a->p);
    a->p = NULL;
}

void archive_small(struct archive *a)
{
    static const char pickle[] = "\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\n"
                                 "FloatStorage\nX\x01\0\0\0"
                                 "0X\x03\0\0\0cpuK\x02tQK\0K\x02\x85K\x01\x85\x89"
                                 "ccollections\nOrderedDict\n)RtRs.";
    archive_begin(a);
    archive_add(a, "m/data.pkl", pickle, sizeof(pickle) - 1);
    archive_add(a, "m/data/0", "\0\0\x80\x3f\0\0\0\x40", 8);
    archive_add(a, "m/version", "3\n", 2);
}

static int hit(struct reading *r)
{
    r->calls++;
    return r->fail_at && (r->calls == r->fail_at || (r->for_ever && r->calls > r->fail_at));
}

static int open_bytes(void *ctx, const char *path, int flags, mode_t mode)
{
    struct reading *r = ctx;
    (void)path, (void)flags, (void)mode;
    if (hit(r))
        return r->err;
    r->open_files++;
    return 1000000;
}

static int close_bytes(void *ctx, int fd)
{
    assert_int_equal(fd, 1000000);
    ((struct reading *)ctx)->open_files--;
    return 0;
}

static ssize_t pread_bytes(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    struct reading *r = ctx;
    assert_int_equal(fd, 1000000);
    if (hit(r))
        return r->err;
    if (off >= r->n)
        return 0;
    if (len > r->n - off)
        len = r->n - off;
    if (r->short_reads && len > r->short_reads)
        len = r->short_reads;
    memcpy(buf, (const char *)r->bytes + off, len);
    return (ssize_t)len;
}

static int fstat_bytes(void *ctx, int fd, struct stat *st)
{
    struct reading *r = ctx;
    (void)fd;
    if (hit(r))
        return r->err;
    memset(st, 0, sizeof(*st));
    st->st_mode = S_IFREG;
    st->st_size = (off_t)r->n;
    return 0;
}

int read_bytes(struct reading *r, const void *p, size_t n, const char *path, struct swn_checkpoint **c,
               char why[SWN_ERRMSG])
{
    struct swn_checkpoint *own = NULL;
    r->bytes = p;
    r->n = n;
    r->calls = 0;
    r->open_files = 0;
    r->io = swn_io_sys;
    r->io.ctx = r;
    r->io.open = open_bytes;
    r->io.close = close_bytes;
    r->io.pread = pread_bytes;
    r->io.fstat = fstat_bytes;
    why[0] = 0;
    int rc = swn_checkpoint_open(&own, &r->io, path, why);
    if (c)
        *c = rc ? NULL : own;
    else if (!rc)
        swn_checkpoint_close(own, &r->io);
    if (rc || !c)
        assert_int_equal(r->open_files, 0);
    return rc;
}

int read_places(const void *p, size_t n, struct swn_checkpoint **c, char why[SWN_ERRMSG])
{
    int fd = memfd_create("archive", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, p, n), (ssize_t)n);
    why[0] = 0;
    int rc = swn_checkpoint_open_places(c, &swn_io_sys, fd, "x.pt", -1, why);
    close(fd);
    return rc;
}

void assert_refused(const void *p, size_t n, const char *path, int err, const char *words)
{
    struct reading r = {.n = 0};
    char why[SWN_ERRMSG];
    /* a copy of exactly this size, so that a sanitizer sees a read behind it */
    void *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    if (n)
        memcpy(copy, p, n);
    int rc = read_bytes(&r, copy, n, path, NULL, why);
    free(copy);
    if (rc != err || !strstr(why, words) || !swn_is_utf8(why, strlen(why)))
        fail_msg("wanted %d and '%s', got %d and '%s'", err, words, rc, why);
}
