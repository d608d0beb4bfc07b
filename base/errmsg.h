/* base/errmsg.h - the text that goes with an error. */
#ifndef SWN_BASE_ERRMSG_H
#define SWN_BASE_ERRMSG_H

/* Bytes of a text that says why something failed. */
#define SWN_WHY 512

/* Fills `why` (cut to its size, control characters replaced: file and tensor names end up in it and on terminals) and
 * returns err, so that a function can end with `return swn_why(why, -EINVAL, ...)`. */
__attribute__((format(printf, 3, 4))) int swn_why(char why[SWN_WHY], int err, const char *format, ...);

/* Replaces control characters, byte by byte, those of UTF-8 and what turns the direction of writing included: names
 * that others chose are in such texts, and a terminal must not take them for commands, nor a reader for other names. */
void swn_one_line(char *text);

#endif
