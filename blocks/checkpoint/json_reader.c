/* blocks/checkpoint/json_reader.c - see blocks/checkpoint/json_reader.h. */
#include "blocks/checkpoint/json_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/errmsg.h"

void swn_json_begin(struct swn_json *j, const struct swn_ckpt_source *src, uint64_t off, uint64_t bytes, char *why)
{
    j->src = src;
    j->begin = j->next = off;
    j->end = off + bytes;
    j->at = j->have = 0;
    j->err = 0;
    j->why = why;
}

int swn_json_fail(struct swn_json *j, const char *format, ...)
{
    char text[SWN_ERRMSG / 2];
    va_list args;
    if (j->err)
        return j->err;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    j->err = swn_ckpt_fail(j->why, -EINVAL, "%.200s: JSON at byte %" PRIu64 ": %s", j->src->path,
                           j->next - j->begin - (j->have - j->at), text);
    return j->err;
}

/* Whether there is a byte at window[at]. Refills a used-up window. */
static int available(struct swn_json *j)
{
    if (j->err)
        return 0;
    if (j->at < j->have)
        return 1;
    if (j->next == j->end)
        return 0;
    size_t n = j->end - j->next < sizeof(j->window) ? (size_t)(j->end - j->next) : sizeof(j->window);
    j->err = swn_ckpt_read(j->src, j->window, n, j->next, j->why);
    if (j->err)
        return 0;
    j->next += n;
    j->at = 0;
    j->have = n;
    return 1;
}

static int next_byte(struct swn_json *j)
{
    return available(j) ? j->window[j->at++] : -1;
}

int swn_json_peek(struct swn_json *j)
{
    while (available(j)) {
        unsigned char c = j->window[j->at];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return c;
        j->at++;
    }
    return -1;
}

int swn_json_take(struct swn_json *j, char c)
{
    if (swn_json_peek(j) != (unsigned char)c)
        return swn_json_fail(j, "'%c' is missing", c);
    j->at++;
    return 0;
}

int swn_json_more(struct swn_json *j, char close)
{
    int c = swn_json_peek(j);
    if (c != ',' && c != (unsigned char)close)
        return swn_json_fail(j, "',' or '%c' is missing", close);
    j->at++;
    return c == ',';
}

/* Four hexadecimal digits, or -1. */
static int32_t hex4(struct swn_json *j)
{
    int32_t v = 0;
    for (int i = 0; i < 4; i++) {
        int c = next_byte(j);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        v = v * 16 + digit;
    }
    return v;
}

static size_t encode_utf8(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; --i > 0; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(lead[n] | c);
    return n;
}

/* Decodes the escape behind a backslash. Number of bytes in out, or an error. */
static int escape(struct swn_json *j, char out[4])
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = next_byte(j);
    const char *simple = c > 0 ? strchr(from, c) : NULL;
    if (simple) {
        out[0] = to[simple - from];
        return 1;
    }
    int32_t v = c == 'u' ? hex4(j) : -1;
    if (v >= 0xd800 && v < 0xdc00) {
        int32_t low = next_byte(j) == '\\' && next_byte(j) == 'u' ? hex4(j) : -1;
        v = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00) : -1;
    } else if (v >= 0xdc00 && v < 0xe000) {
        v = -1;
    }
    if (v < 0)
        return swn_json_fail(j, "an escape is not valid");
    return (int)encode_utf8((uint32_t)v, out);
}

/* The rest of the character that begins with `first`, at least 0x80. Number of bytes in out, or an error. */
static int character(struct swn_json *j, int first, char out[4])
{
    int n = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    out[0] = (char)first;
    for (int i = 1; i < n; i++) {
        int c = next_byte(j);
        if (c < 0)
            return swn_json_fail(j, "ends inside a text");
        out[i] = (char)c;
    }
    return swn_is_utf8(out, (size_t)n) ? n : swn_json_fail(j, "a text is not UTF-8");
}

int swn_json_text(struct swn_json *j, char *out, size_t room, size_t *len)
{
    int rc = swn_json_take(j, '"');
    size_t n = 0;
    while (!rc) {
        char piece[4];
        int c = next_byte(j), size = 1;
        if (c == '"')
            break;
        if (c < 0x20)
            return swn_json_fail(j, c < 0 ? "ends inside a text" : "a text has a control character");
        piece[0] = (char)c;
        if (c == '\\')
            size = escape(j, piece);
        else if (c >= 0x80)
            size = character(j, c, piece);
        if (size < 0)
            return size;
        if (out && (size_t)size > room - 1 - n)
            return swn_json_fail(j, "a text is longer than %zu bytes", room - 1);
        if (out)
            memcpy(out + n, piece, (size_t)size);
        n += (size_t)size;
    }
    if (rc)
        return rc;
    if (out)
        out[n] = 0;
    if (len)
        *len = n;
    return 0;
}

int swn_json_number(struct swn_json *j, uint64_t *out)
{
    uint64_t v = 0;
    int count = 0, first = swn_json_peek(j);
    while (available(j) && j->window[j->at] >= '0' && j->window[j->at] <= '9') {
        if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (unsigned)(j->window[j->at] - '0'), &v) ||
            v > INT64_MAX)
            return swn_json_fail(j, "a number is too large");
        j->at++;
        count++;
    }
    if (!count || (count > 1 && first == '0'))
        return swn_json_fail(j, "a whole number is missing");
    *out = v;
    return 0;
}

static const char *digits(const char *p)
{
    while (*p >= '0' && *p <= '9')
        p++;
    return p;
}

/* -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)? */
static int is_number(const char *p)
{
    p += *p == '-';
    const char *end = digits(p);
    if (end == p || (*p == '0' && end - p > 1))
        return 0;
    if (*end == '.') {
        p = end + 1;
        end = digits(p);
        if (end == p)
            return 0;
    }
    if (*end == 'e' || *end == 'E') {
        p = end + 1 + (end[1] == '+' || end[1] == '-');
        end = digits(p);
        if (end == p)
            return 0;
    }
    return !*end;
}

/* Skips a number of any kind, true, false or null. */
static int skip_word(struct swn_json *j)
{
    char word[40];
    size_t n = 0;
    while (available(j) && n < sizeof(word) - 1) {
        char c = (char)j->window[j->at];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == 'E' || c == '+' || c == '-' || c == '.'))
            break;
        word[n++] = c;
        j->at++;
    }
    word[n] = 0;
    if (!strcmp(word, "true") || !strcmp(word, "false") || !strcmp(word, "null") || is_number(word))
        return 0;
    return swn_json_fail(j, "a value is not valid");
}

static int skip_value(struct swn_json *j, int depth)
{
    int c = swn_json_peek(j), rc = 0, more = 1;
    if (c == '"')
        return swn_json_text(j, NULL, 0, NULL);
    if (c != '{' && c != '[')
        return skip_word(j);
    if (depth == SWN_JSON_MAX_DEPTH)
        return swn_json_fail(j, "values are nested more than %d deep", SWN_JSON_MAX_DEPTH);
    char close = c == '{' ? '}' : ']';
    j->at++;
    if (swn_json_peek(j) == close) {
        j->at++;
        return 0;
    }
    while (!rc && more) {
        if (c == '{') {
            rc = swn_json_text(j, NULL, 0, NULL);
            if (!rc)
                rc = swn_json_take(j, ':');
        }
        if (!rc)
            rc = skip_value(j, depth + 1);
        if (!rc)
            more = swn_json_more(j, close);
        if (more < 0)
            rc = more;
    }
    return rc;
}

int swn_json_skip(struct swn_json *j)
{
    return skip_value(j, 0);
}

int swn_json_finish(struct swn_json *j)
{
    if (swn_json_peek(j) >= 0)
        return swn_json_fail(j, "there is something behind the end");
    return j->err;
}
