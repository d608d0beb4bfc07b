#include "swn_why.h"

#include <stdarg.h>
#include <stdio.h>

void swn_one_line(char *text)
{
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
}

int swn_why(char why[SWN_WHY], int err, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(why, SWN_WHY, format, ap);
    va_end(ap);
    swn_one_line(why);
    return err;
}
