/* scheduler/oip/oip_error.c - what a client is told when something fails. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "scheduler/json/json_text.h"
#include "scheduler/oip/oip.h"
#include "scheduler/json/utf8.h"

int swn_oip_fail(struct swn_oip_error *error, int status, const char *format, ...)
{
    va_list args;
    int length;

    error->status = status;
    va_start(args, format);
    length = vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    if (length < 0)
        error->text[0] = '\0';
    if (length >= (int)sizeof error->text) {
        /* The last character may have lost its end: it begins at most three bytes before. */
        char *end = error->text + sizeof error->text - 1, *last = end;
        for (unsigned i = 0; i < 3 && ((unsigned char)last[-1] & 0xc0) == 0x80; i++)
            last--;
        if ((unsigned char)last[-1] >= 0xc0 && swn_utf8_next(last - 1, end) == 0)
            last[-1] = '\0';
    }
    return -EINVAL;
}

size_t swn_oip_error_body(const struct swn_oip_error *error, char to[SWN_OIP_ERROR_BODY])
{
    struct swn_json_out text = {.to = to, .room = SWN_OIP_ERROR_BODY};

    swn_json_puts(&text, "{\"error\":");
    swn_json_put_string(&text, error->text, strnlen(error->text, sizeof error->text));
    swn_json_puts(&text, "}");
    return text.used;
}
