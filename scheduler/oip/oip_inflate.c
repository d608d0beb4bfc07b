/* scheduler/oip/oip_inflate.c - compressed bodies: see oip_inflate.h. */
#include "scheduler/oip/oip_inflate.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#define GZIP_BITS (16 + MAX_WBITS)
#define ZLIB_BITS MAX_WBITS
#define BARE_BITS (-MAX_WBITS)

struct swn_inflate {
    z_stream stream;
    enum swn_coding coding;
    unsigned char first; /* of a deflate stream, whose two bytes tell its form */
    uint8_t has_first, is_open, has_ended, has_failed;
};

static const struct {
    const char *name;
    enum swn_coding coding;
} codings[] = {
    {"", SWN_CODING_IDENTITY},   {"identity", SWN_CODING_IDENTITY}, {"gzip", SWN_CODING_GZIP},
    {"x-gzip", SWN_CODING_GZIP}, {"deflate", SWN_CODING_DEFLATE},
};

static enum swn_coding coding_of(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof codings / sizeof *codings; i++)
        if (strlen(codings[i].name) == length && strncasecmp(codings[i].name, name, length) == 0)
            return codings[i].coding;
    return SWN_CODING_UNKNOWN;
}

enum swn_coding swn_coding_named(const char *name)
{
    size_t length;

    if (!name)
        return SWN_CODING_IDENTITY;
    name += strspn(name, " \t");
    length = strlen(name);
    while (length && (name[length - 1] == ' ' || name[length - 1] == '\t'))
        length--;
    return coding_of(name, length);
}

const char *swn_coding_name(enum swn_coding coding)
{
    return coding == SWN_CODING_GZIP ? "gzip" : coding == SWN_CODING_DEFLATE ? "deflate" : "identity";
}

/* The q of "gzip;q=0.5" in thousandths; 1000 where it has none, 0 where it is malformed. */
static int quality(const char *parameters, const char *end)
{
    int value, scale = 100;

    while (parameters < end && strchr(" \t;", *parameters))
        parameters++;
    if (parameters == end)
        return 1000;
    if (end - parameters < 3 || (*parameters != 'q' && *parameters != 'Q') || parameters[1] != '=' ||
        (parameters[2] != '0' && parameters[2] != '1'))
        return 0;
    value = (parameters[2] - '0') * 1000;
    parameters += 3;
    if (parameters < end && *parameters == '.')
        for (parameters++; parameters < end && *parameters >= '0' && *parameters <= '9' && scale; parameters++) {
            value += (*parameters - '0') * scale;
            scale /= 10;
        }
    return value > 1000 ? 0 : value;
}

enum swn_coding swn_coding_accepted(const char *accept)
{
    enum swn_coding best = SWN_CODING_IDENTITY;
    int best_quality = 0;

    while (accept && *accept) {
        const char *end = accept + strcspn(accept, ","), *name;
        enum swn_coding coding;
        accept += strspn(accept, " \t");
        name = accept;
        while (accept < end && !strchr(" \t;", *accept))
            accept++;
        coding = coding_of(name, (size_t)(accept - name));
        if (coding == SWN_CODING_GZIP || coding == SWN_CODING_DEFLATE) {
            int q = quality(accept, end);
            if (q > best_quality || (q && q == best_quality && coding == SWN_CODING_GZIP)) {
                best = coding;
                best_quality = q;
            }
        }
        accept = *end ? end + 1 : end;
    }
    return best;
}

struct swn_inflate *swn_inflate_new(enum swn_coding coding)
{
    struct swn_inflate *z;

    if (coding != SWN_CODING_GZIP && coding != SWN_CODING_DEFLATE)
        return NULL;
    z = calloc(1, sizeof *z);
    if (!z)
        return NULL;
    z->coding = coding;
    if (coding == SWN_CODING_GZIP) {
        if (inflateInit2(&z->stream, GZIP_BITS) != Z_OK) {
            free(z);
            return NULL;
        }
        z->is_open = 1;
    }
    return z;
}

void swn_inflate_free(struct swn_inflate *z)
{
    if (z && z->is_open)
        inflateEnd(&z->stream);
    free(z);
}

static int failed(struct swn_inflate *z, int rc)
{
    z->has_failed = 1;
    return rc;
}

/* One call of zlib. *more: there may be output that had no room yet. */
static int step(struct swn_inflate *z, const unsigned char **from, size_t *bytes, char *to, size_t room, size_t *used,
                int *more)
{
    size_t left = room - *used, in = *bytes < UINT_MAX ? *bytes : UINT_MAX, out = left < UINT_MAX ? left : UINT_MAX;
    unsigned char beyond; /* with no room left, a byte more shows that the text goes on */
    int rc;

    z->stream.next_in = (unsigned char *)(uintptr_t)*from; /* zlib reads it only */
    z->stream.avail_in = (uInt)in;
    z->stream.next_out = left ? (unsigned char *)to + *used : &beyond;
    z->stream.avail_out = left ? (uInt)out : 1;
    rc = inflate(&z->stream, Z_NO_FLUSH);
    *more = z->stream.avail_out == 0;
    if (!left && *more)
        return -EMSGSIZE;
    if (left)
        *used += out - z->stream.avail_out;
    *from += in - z->stream.avail_in;
    *bytes -= in - z->stream.avail_in;
    z->has_ended = rc == Z_STREAM_END;
    if (rc == Z_MEM_ERROR)
        return -ENOMEM;
    return rc == Z_OK || rc == Z_BUF_ERROR || rc == Z_STREAM_END ? 0 : -EBADMSG;
}

/* Feeds the stream until its input is used up, and all that it stands for has come. */
static int feed(struct swn_inflate *z, const unsigned char *from, size_t bytes, char *to, size_t room, size_t *used)
{
    int more = 0;

    while (z->has_ended ? bytes && z->coding == SWN_CODING_GZIP : bytes || more) {
        if (z->has_ended && inflateReset(&z->stream) != Z_OK) /* another member follows: RFC 1952, 2.2 */
            return failed(z, -EBADMSG);
        int rc = step(z, &from, &bytes, to, room, used, &more);
        if (rc < 0)
            return failed(z, rc);
    }
    return bytes ? failed(z, -EBADMSG) : 0;
}

/* Does a deflate body begin with zlib's header, as the specification has it? */
static int has_zlib_header(unsigned char first, unsigned char second)
{
    return (first & 0x0f) == 8 && (first >> 4) <= 7 && ((unsigned)first << 8 | second) % 31 == 0;
}

int swn_inflate_add(struct swn_inflate *z, const void *from, size_t bytes, void *to, size_t room, size_t *used)
{
    const unsigned char *at = from;

    if (z->has_failed)
        return -EBADMSG;
    if (bytes == 0)
        return 0;
    if (!z->is_open) {
        int rc;
        if (!z->has_first) {
            z->first = *at++;
            z->has_first = 1;
            if (--bytes == 0)
                return 0;
        }
        if (inflateInit2(&z->stream, has_zlib_header(z->first, *at) ? ZLIB_BITS : BARE_BITS) != Z_OK)
            return failed(z, -ENOMEM);
        z->is_open = 1;
        rc = feed(z, &z->first, 1, to, room, used);
        if (rc < 0)
            return rc;
    }
    return feed(z, at, bytes, to, room, used);
}

int swn_inflate_end(const struct swn_inflate *z)
{
    return z->has_ended && !z->has_failed ? 0 : -EBADMSG;
}

size_t swn_deflate_parts(enum swn_coding coding, const struct swn_coding_part *parts, unsigned count, void *to,
                         size_t room)
{
    z_stream stream = {0};
    size_t used = 0;
    int rc = Z_OK;

    if (coding != SWN_CODING_GZIP && coding != SWN_CODING_DEFLATE)
        return 0;
    if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, coding == SWN_CODING_GZIP ? GZIP_BITS : ZLIB_BITS, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK)
        return 0;
    for (unsigned i = 0; i <= count && rc != Z_STREAM_END; i++) {
        const unsigned char *at = i < count ? parts[i].at : NULL;
        size_t bytes = i < count ? parts[i].bytes : 0;
        do {
            size_t in = bytes < UINT_MAX ? bytes : UINT_MAX, left = room - used,
                   out = left < UINT_MAX ? left : UINT_MAX;
            stream.next_in = (unsigned char *)(uintptr_t)at;
            stream.avail_in = (uInt)in;
            stream.next_out = (unsigned char *)to + used;
            stream.avail_out = (uInt)out;
            rc = out ? deflate(&stream, i < count ? Z_NO_FLUSH : Z_FINISH) : Z_MEM_ERROR;
            at = at ? at + (in - stream.avail_in) : NULL;
            bytes -= in - stream.avail_in;
            used += out - stream.avail_out;
        } while ((bytes || i == count) && rc == Z_OK);
        if (rc != Z_OK && rc != Z_STREAM_END && !(rc == Z_BUF_ERROR && i < count && !bytes))
            break;
    }
    deflateEnd(&stream);
    return rc == Z_STREAM_END && used < room ? used : 0;
}
