/* skeleton/device/spare_buffers.c - see spare_buffers.h. */
#include "skeleton/device/spare_buffers.h"

#include <errno.h>
#include <stdlib.h>

#include "skeleton/device/chunks.h"

int swn_devspares_put(struct swn_devspares *s, const struct swn_devpool *p, const struct swn_devbuffer *buffer)
{
    if (p->way->fixed && s->n) {
        struct swn_devbuffer joined = *buffer;
        swn_devchunks_join(&s->all[0], &joined);
        return 0;
    }
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 16;
        struct swn_devbuffer *all = realloc(s->all, room * sizeof *all);
        if (!all)
            return -ENOMEM;
        s->all = all;
        s->room = room;
    }
    s->all[s->n++] = *buffer;
    return 0;
}

static void take_out(struct swn_devspares *s, size_t i, struct swn_devbuffer *out)
{
    *out = s->all[i];
    s->all[i] = s->all[--s->n];
}

int swn_devspares_take(struct swn_devspares *s, struct swn_devpool *p, size_t bytes, size_t largest,
                       struct swn_devbuffer *out)
{
    if (p->way->fixed && s->n && s->all[0].bytes > bytes)
        return swn_devchunks_divide(p, &s->all[0], bytes, out);
    size_t best = s->n;
    for (size_t i = 0; i < s->n; i++)
        if (s->all[i].bytes >= bytes && s->all[i].bytes <= largest &&
            (best == s->n || s->all[i].bytes < s->all[best].bytes))
            best = i;
    if (best == s->n)
        return -ENOENT;
    take_out(s, best, out);
    return 0;
}

int swn_devspares_any(struct swn_devspares *s, struct swn_devbuffer *out)
{
    if (!s->n)
        return -ENOENT;
    take_out(s, s->n - 1, out);
    return 0;
}

size_t swn_devspares_bytes(const struct swn_devspares *s)
{
    size_t bytes = 0;
    for (size_t i = 0; i < s->n; i++)
        bytes += s->all[i].bytes;
    return bytes;
}
