/* scheduler/serve/repository_path.c - names that clients send and that become names of files. */
#include "scheduler/serve/repository_path.h"

#include <errno.h>
#include <string.h>

#include "scheduler/json/utf8.h"

int swn_model_name_is_valid(const char *name, size_t length)
{
    if (length == 0 || length >= SWN_MODEL_NAME || name[0] == '.' || !swn_utf8_is_valid(name, length))
        return 0;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f || name[i] == '/')
            return 0;
    return 1;
}

int swn_model_version_parse(const char *text, size_t length, int64_t *version)
{
    int64_t value = 0;

    if (length == 0 || text[0] == '0')
        return -EINVAL;
    for (size_t i = 0; i < length; i++)
        if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, text[i] - '0', &value))
            return -EINVAL;
    *version = value;
    return 0;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int swn_url_segment_decode(const char *segment, size_t length, char *to, size_t room)
{
    size_t used = 0;

    for (size_t i = 0; i < length; i++) {
        char c = segment[i];
        if (c == '%') {
            if (length - i < 3 || hex(segment[i + 1]) < 0 || hex(segment[i + 2]) < 0)
                return -EINVAL;
            c = (char)(hex(segment[i + 1]) << 4 | hex(segment[i + 2]));
            i += 2;
        }
        if (c == '/' || c == '\0' || used + 1 >= room)
            return -EINVAL;
        to[used++] = c;
    }
    if (room == 0)
        return -EINVAL;
    to[used] = '\0';
    return (int)used;
}
