/* scheduler/config/pbtxt.c - the words of protobuf's text form: see pbtxt.h. */
#include "scheduler/config/pbtxt.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/json/utf8.h"

void swn_pbtxt_init(struct swn_pbtxt *p, const char *text, size_t bytes, char ignored[SWN_ERRMSG], char why[SWN_ERRMSG])
{
    *p = (struct swn_pbtxt){
        .begin = text,
        .at = text,
        .end = text + bytes,
        .token = text,
        .ignored = ignored,
        .why = why,
    };
    ignored[0] = '\0';
}

int swn_pbtxt_fail(struct swn_pbtxt *p, const char *format, ...)
{
    char what[SWN_ERRMSG];
    unsigned line = 1, column = 1;
    va_list args;

    for (const char *c = p->begin; c < p->token; c++) {
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n';
    }
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return swn_errmsg(p->why, -EINVAL, "line %u, column %u: %.400s", line, column, what);
}

static int is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static int is_one_of(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Leaves out space and comments: p->token is where the next token begins. */
static void begin_token(struct swn_pbtxt *p)
{
    while (p->at < p->end) {
        if (*p->at == '#') {
            const char *newline = memchr(p->at, '\n', (size_t)(p->end - p->at));
            p->at = newline ? newline : p->end;
        } else if (is_space(*p->at)) {
            p->at++;
        } else {
            break;
        }
    }
    p->token = p->at;
}

int swn_pbtxt_is_at_end(struct swn_pbtxt *p)
{
    begin_token(p);
    return p->at == p->end;
}

int swn_pbtxt_take(struct swn_pbtxt *p, char c)
{
    begin_token(p);
    if (p->at == p->end || *p->at != c)
        return 0;
    p->at++;
    return 1;
}

int swn_pbtxt_open(struct swn_pbtxt *p, char *close)
{
    *close = '}';
    if (!swn_pbtxt_take(p, '{')) {
        *close = '>';
        if (!swn_pbtxt_take(p, '<'))
            return swn_pbtxt_fail(p, "'{' is missing");
    }
    if (p->depth == SWN_PBTXT_DEPTH)
        return swn_pbtxt_fail(p, "the nesting is too deep");
    p->depth++;
    return 0;
}

void swn_pbtxt_close(struct swn_pbtxt *p)
{
    p->depth--;
}

int swn_pbtxt_name(struct swn_pbtxt *p, char *to, size_t room)
{
    size_t length = 0;

    begin_token(p);
    while (p->at < p->end && (is_letter(*p->at) || (length && is_digit(*p->at)))) {
        if (length + 1 == room)
            return swn_pbtxt_fail(p, "a name is too long");
        to[length++] = *p->at++;
    }
    to[length] = '\0';
    if (length)
        return 0;
    return swn_pbtxt_fail(p, p->at == p->end ? "the file ends too early" : "a name is expected");
}

/* Digits in base 8 or 16, at most `most` of them. -1 where there is none. */
static int escaped_code(struct swn_pbtxt *p, unsigned base, unsigned most)
{
    int code = -1;

    for (; most && p->at < p->end; most--, p->at++) {
        int digit = is_digit(*p->at) ? *p->at - '0' : (*p->at | 0x20) - 'a' + 10;
        if (digit < 0 || digit >= (int)base || (!is_digit(*p->at) && !is_letter(*p->at)))
            break;
        code = (code < 0 ? 0 : code) * (int)base + digit;
    }
    return code;
}

/* Behind a backslash: the byte that is meant, or -1. */
static int escape(struct swn_pbtxt *p)
{
    static const char letters[] = "abfnrtv?\\'\"", means[] = "\a\b\f\n\r\t\v?\\'\"";
    const char *letter;

    if (p->at == p->end)
        return -1;
    if (*p->at >= '0' && *p->at <= '7')
        return escaped_code(p, 8, 3);
    if (*p->at == 'x' || *p->at == 'X') {
        p->at++;
        return escaped_code(p, 16, 2);
    }
    letter = *p->at ? strchr(letters, *p->at) : NULL;
    if (!letter)
        return -1;
    p->at++;
    return means[letter - letters];
}

/* One string with its quotes, behind what `to` has. */
static int add_string(struct swn_pbtxt *p, char quote, char *to, size_t room, size_t *used)
{
    while (p->at < p->end && *p->at != quote) {
        int c = (unsigned char)*p->at++;
        if (c == '\\') {
            p->token = p->at - 1;
            c = escape(p);
            if (c < 0 || c > 255)
                return swn_pbtxt_fail(p, "this escape is not known");
        }
        if (c == '\n' && p->at[-1] == '\n')
            return swn_pbtxt_fail(p, "a string does not end on its line");
        if (c == 0)
            return swn_pbtxt_fail(p, "a string has a character of code 0");
        if (to) {
            if (*used + 1 >= room)
                return swn_pbtxt_fail(p, "a string has more than %zu bytes", room - 1);
            to[(*used)++] = (char)c;
        }
    }
    if (p->at == p->end)
        return swn_pbtxt_fail(p, "a string does not end");
    p->at++;
    return 0;
}

/* Strings that follow each other are one. to == NULL: they are left out. */
static int read_strings(struct swn_pbtxt *p, char *to, size_t room, size_t *used)
{
    int rc = 0;

    begin_token(p);
    if (p->at == p->end || (*p->at != '"' && *p->at != '\''))
        return swn_pbtxt_fail(p, "a string is expected");
    while (rc == 0 && p->at < p->end && (*p->at == '"' || *p->at == '\'')) {
        char quote = *p->at++;
        rc = add_string(p, quote, to, room, used);
        if (rc == 0)
            begin_token(p);
    }
    return rc;
}

int swn_pbtxt_text(struct swn_pbtxt *p, char *to, size_t room)
{
    size_t used = 0;
    const char *begin;
    int rc;

    begin_token(p);
    begin = p->token;
    rc = read_strings(p, to, room, &used);
    if (rc < 0)
        return rc;
    to[used] = '\0';
    p->token = begin;
    return swn_utf8_is_valid(to, used) ? 0 : swn_pbtxt_fail(p, "a string is not UTF-8");
}

int swn_pbtxt_flag(struct swn_pbtxt *p, uint8_t *flag)
{
    static const char *const words[2][4] = {{"false", "False", "f", "0"}, {"true", "True", "t", "1"}};
    char word[16];
    size_t length = 0;

    begin_token(p);
    while (p->at < p->end && length + 1 < sizeof word && (is_letter(*p->at) || is_digit(*p->at)))
        word[length++] = *p->at++;
    word[length] = '\0';
    for (uint8_t value = 0; value < 2; value++)
        for (unsigned i = 0; i < 4; i++)
            if (strcmp(word, words[value][i]) == 0) {
                *flag = value;
                return 0;
            }
    return swn_pbtxt_fail(p, "true or false is expected");
}

/* The digits of an integer: decimal, 0 and octal, or 0x and hexadecimal. */
static int read_magnitude(struct swn_pbtxt *p, uint64_t *value)
{
    unsigned base = 10;

    *value = 0;
    if (p->at == p->end || !is_digit(*p->at))
        return swn_pbtxt_fail(p, "an integer is expected");
    if (*p->at == '0' && p->end - p->at >= 2 && (p->at[1] | 0x20) == 'x') {
        base = 16;
        p->at += 2;
        if (p->at == p->end || (!is_digit(*p->at) && !is_letter(*p->at)))
            return swn_pbtxt_fail(p, "an integer is expected");
    } else if (*p->at == '0') {
        base = 8;
    }
    for (; p->at < p->end && (is_digit(*p->at) || is_letter(*p->at) || *p->at == '.'); p->at++) {
        int digit = is_digit(*p->at) ? *p->at - '0' : is_letter(*p->at) ? (*p->at | 0x20) - 'a' + 10 : 99;
        if (digit < 0 || digit >= (int)base)
            return swn_pbtxt_fail(p, "an integer is expected");
        if (__builtin_mul_overflow(*value, base, value) || __builtin_add_overflow(*value, (unsigned)digit, value))
            return swn_pbtxt_fail(p, "this integer is too large");
    }
    return 0;
}

int swn_pbtxt_unsigned(struct swn_pbtxt *p, uint64_t most, uint64_t *value)
{
    int rc;

    begin_token(p);
    if (p->at < p->end && *p->at == '-')
        return swn_pbtxt_fail(p, "a negative number is not possible here");
    rc = read_magnitude(p, value);
    if (rc == 0 && *value > most)
        rc = swn_pbtxt_fail(p, "this integer is too large");
    return rc;
}

int swn_pbtxt_signed(struct swn_pbtxt *p, int64_t *value)
{
    uint64_t size;
    int negative = swn_pbtxt_take(p, '-'), rc;

    begin_token(p);
    rc = read_magnitude(p, &size);
    if (rc == 0 && size > INT64_MAX)
        rc = swn_pbtxt_fail(p, "this integer is too large");
    if (rc == 0)
        *value = negative ? -(int64_t)size : (int64_t)size;
    return rc;
}

int swn_pbtxt_real(struct swn_pbtxt *p, double *value)
{
    char text[64], *end;
    size_t n = 0;

    begin_token(p);
    while (p->at < p->end && n + 1 < sizeof text && (is_digit(*p->at) || is_one_of(*p->at, "+-.eE")))
        text[n++] = *p->at++;
    text[n] = '\0';
    *value = strtod(text, &end);
    if (n == 0 || *end || !isfinite(*value) || (p->at < p->end && (is_letter(*p->at) || is_digit(*p->at))))
        return swn_pbtxt_fail(p, "a number is expected");
    return 0;
}

/* A token that is no bracket: a string, or a word such as -1.5e3, KIND_CPU, a.b/c. */
static int skip_token(struct swn_pbtxt *p)
{
    size_t used = 0;

    if (p->at == p->end)
        return swn_pbtxt_fail(p, "the file ends too early");
    if (*p->at == '"' || *p->at == '\'')
        return read_strings(p, NULL, 0, &used);
    if (is_letter(*p->at) || is_digit(*p->at) || is_one_of(*p->at, "+-.")) {
        while (p->at < p->end && (is_letter(*p->at) || is_digit(*p->at) || is_one_of(*p->at, "+-./")))
            p->at++;
        return 0;
    }
    if (is_one_of(*p->at, ":,;")) {
        p->at++;
        return 0;
    }
    return swn_pbtxt_fail(p, "this character is not expected");
}

int swn_pbtxt_skip(struct swn_pbtxt *p, int has_colon)
{
    static const char openers[] = "{<[", ends[] = "}>]";
    char closers[SWN_PBTXT_DEPTH];
    unsigned depth = 0;

    begin_token(p);
    if (!has_colon && (p->at == p->end || !is_one_of(*p->at, openers)))
        return swn_pbtxt_fail(p, "':' or '{' is missing");
    do {
        const char *open;
        int rc;
        begin_token(p);
        open = p->at < p->end && *p->at ? strchr(openers, *p->at) : NULL;
        if (open) {
            if (depth == SWN_PBTXT_DEPTH)
                return swn_pbtxt_fail(p, "the nesting is too deep");
            closers[depth++] = ends[open - openers];
            p->at++;
        } else if (depth && p->at < p->end && *p->at == closers[depth - 1]) {
            depth--;
            p->at++;
        } else {
            rc = skip_token(p);
            if (rc < 0)
                return rc;
        }
    } while (depth);
    return 0;
}
