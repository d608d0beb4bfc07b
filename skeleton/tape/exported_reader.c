/* skeleton/tape/exported_reader.c - see exported_reader.h: messages, memory, members of objects, and names of values.
 */
#include "skeleton/tape/exported_reader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int swn_exported_refuse(struct swn_exported_reader *r, const char *format, ...)
{
    char what[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(r->why, SWN_EXPORTED_WHY, "%s%s%.200s", what, r->where ? ", at " : "", r->where ? r->where : "");
    return -EINVAL;
}

void *swn_exported_take(struct swn_exported_reader *r, size_t count, size_t size)
{
    struct swn_exported_chunk *c = count <= SWN_EXPORTED_COUNT ? calloc(1, sizeof *c + count * size + 1) : NULL;

    if (!c)
        return NULL;
    c->next = r->memory->chunks;
    r->memory->chunks = c;
    return c->bytes;
}

int swn_exported_grow(void **array, size_t count, size_t *room, size_t size)
{
    void *larger;

    if (count < *room)
        return 0;
    if (count >= SWN_EXPORTED_COUNT)
        return -ENOMEM;
    larger = realloc(*array, (*room ? *room * 2 : 256) * size);
    if (!larger)
        return -ENOMEM;
    *array = larger;
    *room = *room ? *room * 2 : 256;
    return 0;
}

/* The member of an object, of a type. */
json_t *swn_exported_member(struct swn_exported_reader *r, const json_t *object, const char *key, json_type type)
{
    json_t *found = json_object_get(object, key);

    if (found && json_typeof(found) == type)
        return found;
    swn_exported_refuse(r, "\"%s\" is %s", key, found ? "of another type" : "missing");
    return NULL;
}

const char *swn_exported_text_of(struct swn_exported_reader *r, const json_t *object, const char *key)
{
    json_t *found = swn_exported_member(r, object, key, JSON_STRING);

    return found ? json_string_value(found) : NULL;
}

/* The one member of a union. */
json_t *swn_exported_only_member(struct swn_exported_reader *r, json_t *object, const char **key)
{
    void *i = json_is_object(object) && json_object_size(object) == 1 ? json_object_iter(object) : NULL;

    if (!i) {
        swn_exported_refuse(r, "a union does not have one member");
        return NULL;
    }
    *key = json_object_iter_key(i);
    return json_object_iter_value(i);
}

int swn_exported_new_value(struct swn_exported_reader *r, const char *name, int is_tensor, int64_t *number)
{
    struct swn_exported *e = r->e;

    if (json_object_get(r->scope, name))
        return swn_exported_refuse(r, "the value \"%.100s\" is there twice", name);
    if (swn_exported_grow((void **)&e->is_tensor, e->value_count, &r->value_room, sizeof *e->is_tensor) ||
        json_object_set_new(r->scope, name, json_integer((json_int_t)e->value_count)))
        return -ENOMEM;
    e->is_tensor[e->value_count] = (uint8_t)is_tensor;
    *number = (int64_t)e->value_count++;
    return 0;
}
