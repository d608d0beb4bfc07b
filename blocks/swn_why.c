#include "swn_why.h"

#include <stdarg.h>
#include <stdio.h>

int swn_why(char why[SWN_WHY], int err, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(why, SWN_WHY, format, ap);
    va_end(ap);
    for (char *p = why; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    return err;
}
