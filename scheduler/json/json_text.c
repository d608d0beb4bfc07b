/* scheduler/json/json_text.c - JSON that is written, or only measured: see json_text.h. */
#include "scheduler/json/json_text.h"

#include <string.h>

#include "scheduler/json/utf8.h"

void swn_json_put(struct swn_json_out *text, const void *bytes, size_t count)
{
    if (text->used < text->room && count) {
        size_t fits = text->room - text->used;
        memcpy(text->to + text->used, bytes, count < fits ? count : fits);
    }
    text->used += count;
}

void swn_json_puts(struct swn_json_out *text, const char *words)
{
    swn_json_put(text, words, strlen(words));
}

/* A character that a string cannot have as it is. */
static void put_escape(struct swn_json_out *text, unsigned char c)
{
    static const char digits[] = "0123456789abcdef";
    char code[6] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};

    switch (c) {
    case '"':
        swn_json_puts(text, "\\\"");
        break;
    case '\\':
        swn_json_puts(text, "\\\\");
        break;
    case '\n':
        swn_json_puts(text, "\\n");
        break;
    case '\t':
        swn_json_puts(text, "\\t");
        break;
    default:
        swn_json_put(text, code, sizeof code);
    }
}

void swn_json_put_string(struct swn_json_out *text, const char *bytes, size_t count)
{
    const char *end = bytes + count, *plain = bytes;

    swn_json_puts(text, "\"");
    while (bytes < end) {
        unsigned char c = (unsigned char)*bytes;
        unsigned n = c < 0x80 ? 1 : swn_utf8_next(bytes, end);
        if (n && c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
            bytes += n;
            continue;
        }
        swn_json_put(text, plain, (size_t)(bytes - plain));
        if (n)
            put_escape(text, c);
        else
            swn_json_puts(text, "\xef\xbf\xbd");
        plain = ++bytes;
    }
    swn_json_put(text, plain, (size_t)(end - plain));
    swn_json_puts(text, "\"");
}

void swn_json_put_name(struct swn_json_out *text, const char *name)
{
    swn_json_put_string(text, name, strlen(name));
}

void swn_json_put_unsigned(struct swn_json_out *text, uint64_t value)
{
    char digits[20];
    size_t n = sizeof digits;

    do
        digits[--n] = (char)('0' + value % 10);
    while (value /= 10);
    swn_json_put(text, digits + n, sizeof digits - n);
}

void swn_json_put_signed(struct swn_json_out *text, int64_t value)
{
    if (value < 0)
        swn_json_puts(text, "-");
    swn_json_put_unsigned(text, value < 0 ? -(uint64_t)value : (uint64_t)value);
}
