/* base/errmsg.h - the text that goes with an error. */
#ifndef SWN_BASE_ERRMSG_H
#define SWN_BASE_ERRMSG_H

/* Bytes of a text that says why something failed. */
#define SWN_ERRMSG 512

/* Fills `why` (cut to its size, control characters replaced: file and tensor names end up in it and on terminals) and
 * returns err, so that a function can end with `return swn_errmsg(why, -EINVAL, ...)`. */
__attribute__((format(printf, 3, 4))) int swn_errmsg(char why[SWN_ERRMSG], int err, const char *format, ...);

/* Replaces control characters, byte by byte, those of UTF-8 and what turns the direction of writing included: names
 * that others chose are in such texts, and a terminal must not take them for commands, nor a reader for other names. */
void swn_one_line(char *text);

#endif
