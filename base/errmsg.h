/* base/errmsg.h - the text that goes with an error. */
#ifndef SWN_BASE_ERRMSG_H
#define SWN_BASE_ERRMSG_H

/* Bytes of a text that says why something failed. */
#define SWN_ERRMSG 512

/* Fills `why`, cut to its size, with control characters replaced, as file and tensor names end up in it and on
 * terminals. Returns err, so that a function can end with `return swn_errmsg(why, -EINVAL, ...)`. */
__attribute__((format(printf, 3, 4))) int swn_errmsg(char why[SWN_ERRMSG], int err, const char *format, ...);

/* Replaces control characters, byte by byte, including those of UTF-8 and those that change the direction of writing.
 * Such texts have names that come from outside: a terminal must not take them for commands, nor a reader for other
 * names. */
void swn_one_line(char *text);

#endif
