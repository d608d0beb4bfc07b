/* What is read of a checkpoint although its weights are not: small pieces all over the file. Asked for together they
 * come together, instead of one seek, or one page fault, at a time: 292 pages of GPT-2 took 0.3 s, of a load of 0.7 s.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>

#include "swn_checkpoint.h"
#include "swn_load.h"
#include "swn_load_priv.h"

/* Python's buffer, at its smallest. */
#define PYTHON_BUFFER 4096
/* A zip's local header, with name and padding, is hardly larger. */
#define HEADER_MOST 256

struct area {
    uint64_t from, to;
};

static int by_offset(const void *a, const void *b)
{
    const struct area *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

static struct area pages_of(uint64_t from, uint64_t to)
{
    return (struct area){from / SWN_PAGE * SWN_PAGE, swn_round_up(to, SWN_PAGE)};
}

/* Sorts the areas, and frees them. */
static void ask_for(struct swn_engine *e, int fd, struct area *areas, size_t n)
{
    if (n)
        qsort(areas, n, sizeof *areas, by_offset);
    for (size_t i = 0, next; i < n; i = next) {
        uint64_t to = areas[i].to;
        for (next = i + 1; next < n && areas[next].from <= to; next++)
            to = areas[next].to > to ? areas[next].to : to;
        if (to > areas[i].from) /* to the kernel, no bytes are all */
            e->io->fadvise(e->io->ctx, fd, areas[i].from, to - areas[i].from, POSIX_FADV_WILLNEED);
    }
    free(areas);
}

/* A zip's local header, and the first bytes of the storage, which come into Python's buffer with it; all of a storage
 * that is too small to be registered. */
void swn_load_ask_for_heads(struct swn_engine *e, int fd, const struct source *s)
{
    size_t n = 0;
    struct area *areas = malloc((s->store->extent_count + 1) * sizeof *areas);
    for (size_t i = 0; areas && i < s->store->extent_count; i++) {
        const struct swn_store_extent *x = &s->store->extents[i];
        uint64_t before = x->source_off < HEADER_MOST ? x->source_off : HEADER_MOST;
        if (x->source == s->index)
            areas[n++] =
                pages_of(x->source_off - before, x->source_off + (x->bytes < SWN_GRANULE ? x->bytes : PYTHON_BUFFER));
    }
    ask_for(e, fd, areas, n);
}

void swn_load_ask_for_edges(int fd)
{
    struct swn_engine *e = &swn_engine_one;
    struct swn_checkpoint *c;
    char path[4096], why[SWN_WHY];
    size_t n = 0;
    swn_load_path_of(fd, path, sizeof path);
    if (swn_checkpoint_open_fd(&c, e->io, fd, path, why))
        return; /* not one that we read: the pages come one at a time */
    struct area *areas = malloc((2 * c->storage_count + 1) * sizeof *areas);
    for (size_t i = 0; areas && i < c->storage_count; i++) {
        const struct swn_ckpt_storage *s = &c->storages[i];
        uint64_t end = s->off + s->bytes;
        if (s->bytes < SWN_GRANULE) {
            areas[n++] = pages_of(s->off, end);
        } else {
            areas[n++] = pages_of(s->off, s->off + 1);
            areas[n++] = pages_of(end - 1, end);
        }
    }
    ask_for(e, fd, areas, n);
    swn_checkpoint_close(c, e->io);
}
