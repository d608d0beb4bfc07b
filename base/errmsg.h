/* base/errmsg.h - the text that goes with an error, and texts that others chose. UTF-8 is as Unicode has it: shortest
 * forms, no surrogates, nothing above 10FFFF. Thread-safe. */
#ifndef SWN_BASE_ERRMSG_H
#define SWN_BASE_ERRMSG_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of a text that says why something failed. */
#define SWN_ERRMSG 512

/* Fills `why`, cut to its size, with control characters replaced, as file and tensor names end up in it and on
 * terminals. Returns err, so that a function can end with `return swn_errmsg(why, -EINVAL, ...)`. */
__attribute__((format(printf, 3, 4))) int swn_errmsg(char why[SWN_ERRMSG], int err, const char *format, ...);

/* Replaces by '?', byte by byte, what a terminal does not merely show: control characters of both sets, line ends, what
 * turns the direction of writing, and bytes that are not UTF-8. All that goes to a terminal and that others chose goes
 * through here. What is left is UTF-8, as JSON wants it. */
void swn_one_line(char *text);

/* The length of the character that begins [text, text + len), and its code in *code; 0: its bytes are not UTF-8, or end
 * before it does. */
size_t swn_utf8_char(const char *text, size_t len, uint32_t *code);

int swn_is_utf8(const char *text, size_t len);

/* Bytes that are not UTF-8 become '?', so that JSON takes the text. */
void swn_make_utf8(char *text);

#endif
