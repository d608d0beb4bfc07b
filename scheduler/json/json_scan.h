/* scheduler/json/json_scan.h - JSON as a stream of tokens, strictly by RFC 8259.
 *
 * The scanner allocates nothing, does not recurse, and reads each byte once: what a client sends costs its own length.
 * It refuses text that is no UTF-8, a key that an object has already, and nesting of more than SWN_JSON_DEPTH levels.
 * Spans of strings lie between the quotes and may have escapes; swn_json_decode undoes them.
 */
#ifndef SWN_SCHEDULER_JSON_JSON_SCAN_H
#define SWN_SCHEDULER_JSON_JSON_SCAN_H

#include <stddef.h>
#include <stdint.h>

#define SWN_JSON_DEPTH 64
#define SWN_JSON_KEYS 256 /* of all objects that are open at once */

enum swn_json_token {
    SWN_JSON_ERROR,
    SWN_JSON_OBJECT,
    SWN_JSON_OBJECT_END,
    SWN_JSON_ARRAY,
    SWN_JSON_ARRAY_END,
    SWN_JSON_KEY, /* its value is the next token */
    SWN_JSON_STRING,
    SWN_JSON_NUMBER,
    SWN_JSON_TRUE,
    SWN_JSON_FALSE,
    SWN_JSON_NULL,
    SWN_JSON_END, /* one value, and nothing behind it */
};

struct swn_json_span {
    const char *at;
    size_t length;
};

struct swn_json {
    const char *begin, *at, *end;
    struct swn_json_span token; /* of the last KEY, STRING or NUMBER */
    uint64_t is_object;         /* bit n: level n is an object */
    unsigned depth;
    enum swn_json_state {
        SWN_JSON_WANTS_VALUE,
        SWN_JSON_WANTS_VALUE_OR_END,
        SWN_JSON_WANTS_KEY,
        SWN_JSON_WANTS_KEY_OR_END,
        SWN_JSON_WANTS_COMMA,
        SWN_JSON_WANTS_NOTHING,
    } state;
    const char *why; /* what is wrong at `at`, after ERROR */
    unsigned key_count;
    struct swn_json_key {
        uint64_t hash;
        struct swn_json_span span;
        unsigned level;
    } keys[SWN_JSON_KEYS];
};

void swn_json_init(struct swn_json *json, const char *text, size_t bytes);
enum swn_json_token swn_json_next(struct swn_json *json);
/* Where the scanner is, counted from the first byte. */
size_t swn_json_offset(const struct swn_json *json);

/* After a KEY: leaves its value out, whatever it is. 0 or -EINVAL. */
int swn_json_skip_value(struct swn_json *json);

/* After a KEY: somebody else has read its value, which ends at `at`. */
void swn_json_resume(struct swn_json *json, const char *at);

/* Skips white space. */
const char *swn_json_space(const char *at, const char *end);

/* `at` is behind a quote. Returns where the closing quote is, and how many bytes the string has without escapes; NULL
 * with *why where it is no string, *at_error saying where. */
const char *swn_json_string(const char *at, const char *end, uint64_t *decoded, const char **why,
                            const char **at_error);

/* Undoes escapes. Returns the bytes of the text, of which no more than `room` have been written. */
size_t swn_json_decode(struct swn_json_span span, char *to, size_t room);
int swn_json_equals(struct swn_json_span span, const char *text);

#endif
