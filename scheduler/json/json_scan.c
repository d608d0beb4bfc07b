/* scheduler/json/json_scan.c - JSON as a stream of tokens: see json_scan.h.
 *
 * Every function compares with `end` before it reads, also where a former pass has seen the same bytes: another process
 * may write to them meanwhile.
 */
#include "scheduler/json/json_scan.h"

#include <errno.h>
#include <string.h>

#include "scheduler/json/json_number.h"
#include "scheduler/json/utf8.h"

void swn_json_init(struct swn_json *json, const char *text, size_t bytes)
{
    json->begin = json->at = text;
    json->end = text + bytes;
    json->token = (struct swn_json_span){0};
    json->is_object = 0;
    json->depth = 0;
    json->state = SWN_JSON_WANTS_VALUE;
    json->why = NULL;
    json->key_count = 0;
}

size_t swn_json_offset(const struct swn_json *json)
{
    return (size_t)(json->at - json->begin);
}

const char *swn_json_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Four hexadecimal digits, or -1. */
static int hex4(const char *at, const char *end)
{
    int code = 0;

    if (end - at < 4)
        return -1;
    for (unsigned i = 0; i < 4; i++) {
        int digit = hex(at[i]);
        if (digit < 0)
            return -1;
        code = code << 4 | digit;
    }
    return code;
}

/* `at` is at a backslash. Returns the bytes of the escape and the character that it means; 0 where it is none. */
static unsigned escape(const char *at, const char *end, unsigned *code)
{
    static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    const char *letter;
    int high, low;

    if (end - at < 2)
        return 0;
    if (at[1] != 'u') {
        letter = at[1] ? strchr(letters, at[1]) : NULL;
        if (!letter)
            return 0;
        *code = (unsigned char)means[letter - letters];
        return 2;
    }
    high = hex4(at + 2, end);
    if (high < 0 || (high >= 0xdc00 && high < 0xe000))
        return 0;
    if (high < 0xd800 || high >= 0xe000) {
        *code = (unsigned)high;
        return 6;
    }
    if (end - at < 12 || at[6] != '\\' || at[7] != 'u')
        return 0;
    low = hex4(at + 8, end);
    if (low < 0xdc00 || low >= 0xe000)
        return 0;
    *code = 0x10000u + ((unsigned)(high - 0xd800) << 10) + (unsigned)(low - 0xdc00);
    return 12;
}

/* Is there a byte among the eight that is not plain: a quote, a backslash, a control character, or not ASCII? */
static int has_special(uint64_t eight)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    uint64_t quote = eight ^ ones * '"', backslash = eight ^ ones * '\\';

    return ((eight | (eight - ones * 0x20) | (quote - ones) | (backslash - ones)) & tops) != 0;
}

const char *swn_json_string(const char *at, const char *end, uint64_t *decoded, const char **why, const char **at_error)
{
    uint64_t bytes = 0;

    while (at < end && *at != '"') {
        uint64_t eight;
        char text[4];
        unsigned code, n;
        if (end - at >= (ptrdiff_t)sizeof eight) {
            memcpy(&eight, at, sizeof eight);
            if (!has_special(eight)) {
                at += sizeof eight;
                bytes += sizeof eight;
                continue;
            }
        }
        *at_error = at;
        if (*at == '\\') {
            n = escape(at, end, &code);
            *why = "this is no escape of JSON";
            bytes += n ? swn_utf8_put(code, text) : 0;
        } else if ((unsigned char)*at < 0x20) {
            n = 0;
            *why = "a control character in a string must be escaped";
        } else {
            n = swn_utf8_next(at, end);
            *why = "a string is not UTF-8";
            bytes += n;
        }
        if (n == 0)
            return NULL;
        at += n;
    }
    *decoded = bytes;
    *at_error = at;
    *why = "a string does not end";
    return at < end ? at : NULL;
}

/* One character of a string. Returns its raw bytes, its text in to[], its length in *n. What is malformed, because it
 * has changed since it was scanned, is taken byte by byte. */
static unsigned decode_char(const char *at, const char *end, char to[4], unsigned *n)
{
    unsigned code, raw = *at == '\\' ? escape(at, end, &code) : 0;

    if (raw) {
        *n = swn_utf8_put(code, to);
        return raw;
    }
    to[0] = *at;
    *n = 1;
    return 1;
}

size_t swn_json_decode(struct swn_json_span span, char *to, size_t room)
{
    const char *at = span.at, *end = span.at + span.length;
    size_t bytes = 0;

    while (at < end) {
        char text[4];
        unsigned n;
        const char *plain = memchr(at, '\\', (size_t)(end - at));
        size_t run = (size_t)((plain ? plain : end) - at), fits;
        fits = bytes >= room ? 0 : room - bytes;
        if (run && fits)
            memcpy(to + bytes, at, run < fits ? run : fits);
        bytes += run;
        at += run;
        if (at == end)
            break;
        at += decode_char(at, end, text, &n);
        for (unsigned i = 0; i < n; i++, bytes++)
            if (bytes < room)
                to[bytes] = text[i];
    }
    return bytes;
}

int swn_json_equals(struct swn_json_span span, const char *text)
{
    char decoded[64];
    size_t length = strlen(text);

    if (length > sizeof decoded || span.length < length || span.length > 6 * length)
        return 0;
    return swn_json_decode(span, decoded, sizeof decoded) == length && memcmp(decoded, text, length) == 0;
}

static int same_text(struct swn_json_span a, struct swn_json_span b)
{
    const char *a_end = a.at + a.length, *b_end = b.at + b.length;
    char a_text[4], b_text[4];
    unsigned a_bytes, b_bytes;

    while (a.at < a_end && b.at < b_end) {
        a.at += decode_char(a.at, a_end, a_text, &a_bytes);
        b.at += decode_char(b.at, b_end, b_text, &b_bytes);
        /* Either side may have a character of several bytes as an escape, and the other its bytes one by one. */
        for (unsigned i = 0; i < a_bytes || i < b_bytes; i++) {
            if (i >= a_bytes) {
                if (a.at == a_end)
                    return 0;
                a_text[i] = *a.at++;
            } else if (i >= b_bytes) {
                if (b.at == b_end)
                    return 0;
                b_text[i] = *b.at++;
            }
            if (a_text[i] != b_text[i])
                return 0;
        }
    }
    return a.at == a_end && b.at == b_end;
}

static uint64_t hash_text(struct swn_json_span span)
{
    const char *at = span.at, *end = at + span.length;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    while (at < end) {
        char text[4];
        unsigned n;
        at += decode_char(at, end, text, &n);
        for (unsigned i = 0; i < n; i++)
            hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static enum swn_json_token fail(struct swn_json *json, const char *why)
{
    json->why = why;
    return SWN_JSON_ERROR;
}

static enum swn_json_token open_level(struct swn_json *json, int is_object)
{
    if (json->depth == SWN_JSON_DEPTH)
        return fail(json, "the nesting is too deep");
    json->is_object &= ~(UINT64_C(1) << json->depth);
    json->is_object |= (uint64_t)is_object << json->depth;
    json->depth++;
    json->at++;
    json->state = is_object ? SWN_JSON_WANTS_KEY_OR_END : SWN_JSON_WANTS_VALUE_OR_END;
    return is_object ? SWN_JSON_OBJECT : SWN_JSON_ARRAY;
}

static void value_ended(struct swn_json *json)
{
    json->state = json->depth ? SWN_JSON_WANTS_COMMA : SWN_JSON_WANTS_NOTHING;
}

static int in_object(const struct swn_json *json)
{
    return json->depth && (json->is_object >> (json->depth - 1) & 1);
}

static enum swn_json_token close_level(struct swn_json *json)
{
    enum swn_json_token token = in_object(json) ? SWN_JSON_OBJECT_END : SWN_JSON_ARRAY_END;

    while (json->key_count && json->keys[json->key_count - 1].level == json->depth)
        json->key_count--;
    json->depth--;
    json->at++;
    value_ended(json);
    return token;
}

/* A string with its quotes: its span into json->token. */
static int scan_string(struct swn_json *json)
{
    uint64_t decoded;
    const char *why, *where, *close = swn_json_string(json->at + 1, json->end, &decoded, &why, &where);

    if (!close) {
        json->at = where;
        fail(json, why);
        return -EINVAL;
    }
    json->token = (struct swn_json_span){json->at + 1, (size_t)(close - json->at - 1)};
    json->at = close + 1;
    return 0;
}

static enum swn_json_token scan_key(struct swn_json *json)
{
    struct swn_json_key key = {.level = json->depth};
    const char *begin = json->at;

    if (scan_string(json))
        return SWN_JSON_ERROR;
    key.span = json->token;
    key.hash = hash_text(key.span);
    for (unsigned i = json->key_count; i-- > 0 && json->keys[i].level == json->depth;)
        if (json->keys[i].hash == key.hash && same_text(json->keys[i].span, key.span)) {
            json->at = begin;
            return fail(json, "an object has this key twice");
        }
    if (json->key_count == SWN_JSON_KEYS) {
        json->at = begin;
        return fail(json, "there are too many keys");
    }
    json->keys[json->key_count++] = key;
    json->at = swn_json_space(json->at, json->end);
    if (json->at == json->end || *json->at != ':')
        return fail(json, "a colon is missing");
    json->at++;
    json->state = SWN_JSON_WANTS_VALUE;
    return SWN_JSON_KEY;
}

static enum swn_json_token scan_word(struct swn_json *json, const char *word, enum swn_json_token token)
{
    size_t length = strlen(word);

    if ((size_t)(json->end - json->at) < length || memcmp(json->at, word, length) != 0)
        return fail(json, "this is no value of JSON");
    json->at += length;
    value_ended(json);
    return token;
}

static enum swn_json_token scan_value(struct swn_json *json)
{
    struct swn_json_number number;

    switch (*json->at) {
    case '{':
        return open_level(json, 1);
    case '[':
        return open_level(json, 0);
    case '"':
        if (scan_string(json))
            return SWN_JSON_ERROR;
        value_ended(json);
        return SWN_JSON_STRING;
    case 't':
        return scan_word(json, "true", SWN_JSON_TRUE);
    case 'f':
        return scan_word(json, "false", SWN_JSON_FALSE);
    case 'n':
        return scan_word(json, "null", SWN_JSON_NULL);
    }
    if (!swn_json_number_scan(json->at, json->end, &number))
        return fail(json, "this is no value of JSON");
    json->token = (struct swn_json_span){json->at, number.length};
    json->at += number.length;
    value_ended(json);
    return SWN_JSON_NUMBER;
}

enum swn_json_token swn_json_next(struct swn_json *json)
{
    if (json->why)
        return SWN_JSON_ERROR;
    json->at = swn_json_space(json->at, json->end);
    if (json->at == json->end)
        return json->state == SWN_JSON_WANTS_NOTHING ? SWN_JSON_END : fail(json, "the text ends too early");
    if (json->state == SWN_JSON_WANTS_COMMA) {
        if (*json->at == (in_object(json) ? '}' : ']'))
            return close_level(json);
        if (*json->at != ',')
            return fail(json, "a comma is missing");
        json->state = in_object(json) ? SWN_JSON_WANTS_KEY : SWN_JSON_WANTS_VALUE;
        json->at = swn_json_space(json->at + 1, json->end);
        if (json->at == json->end)
            return fail(json, "the text ends too early");
    }
    switch (json->state) {
    case SWN_JSON_WANTS_VALUE_OR_END:
        if (*json->at == ']')
            return close_level(json);
        return scan_value(json);
    case SWN_JSON_WANTS_VALUE:
        return scan_value(json);
    case SWN_JSON_WANTS_KEY_OR_END:
        if (*json->at == '}')
            return close_level(json);
        /* fall through */
    case SWN_JSON_WANTS_KEY:
        if (*json->at != '"')
            return fail(json, "a key must be a string");
        return scan_key(json);
    default:
        return fail(json, "something follows the end");
    }
}

int swn_json_skip_value(struct swn_json *json)
{
    unsigned depth = json->depth;

    do {
        enum swn_json_token token = swn_json_next(json);
        if (token == SWN_JSON_ERROR || token == SWN_JSON_END)
            return -EINVAL;
    } while (json->depth > depth);
    return 0;
}

void swn_json_resume(struct swn_json *json, const char *at)
{
    json->at = at;
    value_ended(json);
}
