/* scheduler/json/utf8.h - is this UTF-8? */
#ifndef SWN_SCHEDULER_JSON_UTF8_H
#define SWN_SCHEDULER_JSON_UTF8_H

#include <stddef.h>

/* Bytes of the character that begins at `at`, before `end`; 0 where there is none: no overlong form, no surrogate,
 * nothing above U+10FFFF. */
unsigned swn_utf8_next(const char *at, const char *end);
int swn_utf8_is_valid(const char *text, size_t bytes);

/* Writes the character `code` (below 0x110000, no surrogate) and returns its bytes. */
unsigned swn_utf8_put(unsigned code, char to[4]);

#endif
