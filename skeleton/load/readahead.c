/* Reads ahead the small pieces of a checkpoint that are read although its weights are not. The kernel reads pieces that
 * are requested together at once, instead of one seek, or one page fault, at a time: 292 pages of GPT-2 took 0.3 s, of
 * a load of 0.7 s.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "skeleton/load/load.h"
#include "skeleton/load/load_internal.h"
#include "base/file_io.h"

/* The least size of Python's buffer. */
#define PYTHON_BUFFER 4096
/* The size of most zip local headers, with name and padding. */
#define HEADER_MOST 256
/* Longer headers of safetensors files are not read ahead. */
#define HEADER_ASKED_MOST ((uint64_t)4 << 20)

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
        if (to > areas[i].from) /* for the kernel, zero bytes mean all */
            e->io->fadvise(e->io->ctx, fd, areas[i].from, to - areas[i].from, POSIX_FADV_WILLNEED);
    }
    free(areas);
}

/* Requests a zip's local header, and the first bytes of the storage, which Python's buffer reads with it; and all of a
 * storage that is too small to be registered. */
void swn_load_readahead(struct swn_engine *e, int fd, const struct swn_store *s)
{
    size_t n = 0;
    struct area *areas = malloc((s->extent_count + 1) * sizeof *areas);
    for (size_t i = 0; areas && i < s->extent_count; i++) {
        const struct swn_store_extent *x = &s->extents[i];
        uint64_t before = x->source_off < HEADER_MOST ? x->source_off : HEADER_MOST;
        areas[n++] =
            pages_of(x->source_off - before, x->source_off + (x->bytes < SWN_GRANULE ? x->bytes : PYTHON_BUFFER));
    }
    ask_for(e, fd, areas, n);
}

void swn_load_ask_for_header(int fd)
{
    struct swn_engine *e = &swn_engine_one;
    unsigned char head[9];
    uint64_t bytes;
    struct stat st;
    if (e->io->fstat(e->io->ctx, fd, &st) || !S_ISREG(st.st_mode)) /* reading a device may do anything */
        return;
    if (swn_read_whole(e->io, fd, head, sizeof head, 0))
        return;
    memcpy(&bytes, head, sizeof bytes);
    if (head[8] == '{' && bytes <= HEADER_ASKED_MOST)
        e->io->fadvise(e->io->ctx, fd, 0, sizeof bytes + bytes, POSIX_FADV_WILLNEED);
}

void swn_load_look_into(struct swn_extent_file *file)
{
    struct swn_engine *e = &swn_engine_one;
    struct source *s = swn_source_of(file);
    struct swn_checkpoint *c;
    struct swn_layout *layout;
    char why[SWN_ERRMSG];
    s->watched = 1;
    if (swn_checkpoint_open_places(&c, e->io, file->fetch.fd, file->dir, -1, why))
        return; /* an unreadable format: the pages come one at a time */
    if (swn_layout_create(&layout, c))
        swn_checkpoint_close(c, e->io);
    else
        s->layout = layout;
}

void swn_load_ask_for_edges(struct swn_extent_file *file)
{
    struct swn_engine *e = &swn_engine_one;
    struct source *s = swn_source_of(file);
    size_t n = 0, count = s->layout ? swn_layout_count(s->layout) : 0;
    if (!count || atomic_load_explicit(&s->edges_asked, memory_order_relaxed) || atomic_exchange(&s->edges_asked, 1))
        return;
    struct area *areas = malloc((2 * count + 1) * sizeof *areas);
    for (size_t i = 0; areas && i < count; i++) {
        const struct swn_ckpt_storage *at = swn_layout_storage(s->layout, i);
        uint64_t end = at->off + at->bytes;
        if (at->bytes < SWN_GRANULE) {
            areas[n++] = pages_of(at->off, end);
        } else {
            areas[n++] = pages_of(at->off, at->off + 1);
            areas[n++] = pages_of(end - 1, end);
        }
    }
    ask_for(e, file->fetch.fd, areas, n);
}
