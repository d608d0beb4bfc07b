/* base/log.h - messages to the user: one line on stderr. */
#ifndef SWN_BASE_LOG_H
#define SWN_BASE_LOG_H

/* "swapnet: ..." with a newline. Control characters are replaced. One write(2), so that lines of several processes do
 * not mix; never stdio, whose locks a fork may have left taken. Nothing where descriptor 2 is another file by now.
 * Thread-safe. */
void swn_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The program has put another file in the place of stderr. Takes no lock. */
void swn_say_redirected(void);

#endif
