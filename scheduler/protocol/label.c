/* scheduler/protocol/label.c - see scheduler/protocol/label.h. */
#include "scheduler/protocol/label.h"

#include <errno.h>
#include <string.h>

#include "scheduler/protocol/wire.h"

_Static_assert(SWN_LABEL_NAME == SWN_WIRE_NAME, "a name goes through a message whole");

const char *swn_label_wrong(const char *name)
{
    size_t len = strlen(name), digits = strspn(name, "0123456789");
    for (const char *p = name; *p; p++)
        if (*p <= ' ' || *p >= 0x7f) /* a byte above 0x7f fails one of the two, by the sign of char */
            return "is no name: use letters, digits and other characters of ASCII, without spaces";
    if (!len || len >= SWN_LABEL_NAME)
        return "is no name: it has 1 to 63 characters";
    return digits == len ? "is no name: it would be taken for a process's number" : NULL;
}

/* strtod would follow the program's locale. */
int swn_label_urgency(const char *text, double *out)
{
    double number = 0, digit = 1;
    int point = 0, digits = 0;
    const char *p = text;
    for (; (*p >= '0' && *p <= '9') || (*p == '.' && !point); p++) {
        if (*p == '.') {
            point = 1;
            continue;
        }
        number = number * 10 + (*p - '0');
        digit *= point ? 10 : 1;
        if (++digits > 12)
            break;
    }
    number /= digit;
    if (*p || !digits || number < SWN_WIRE_URGENCY_LEAST || number > SWN_WIRE_URGENCY_MOST)
        return -EINVAL;
    *out = number;
    return 0;
}
