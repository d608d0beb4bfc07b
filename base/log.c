/* base/log.c - see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/errmsg.h"

void swn_say(const char *format, ...)
{
    char line[1200] = "swapnet: ";
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line + 9, sizeof line - 10, format, args);
    va_end(args);
    swn_one_line(line); /* names of files come from outside */
    size_t len = n < 0 ? 9 : 9 + ((size_t)n < sizeof line - 11 ? (size_t)n : sizeof line - 11);
    line[len++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, len);
    (void)ignored;
}
