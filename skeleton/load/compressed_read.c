/* skeleton/load/compressed_read.c - see compressed_read.h. */
#define _GNU_SOURCE
#include "skeleton/load/compressed_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "skeleton/load/load.h"
#include "skeleton/load/load_internal.h"
#include "base/checksum.h"

/* After decoding this many bytes the speed is known; before, a sample chunk that is decoded repeatedly shows it. */
#define MEASURED_BYTES (UINT64_C(8) << 20)
#define PROBE_ROUNDS 8

/* Processor time of this thread, which other load on the machine does not change. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* For compressed extents: bytes read, and per encoding the decoded bytes and their time. */
static _Atomic uint64_t encoded_bytes, decoded_bytes[SWN_ENCODINGS], decode_ns[SWN_ENCODINGS];

/* --- whether it pays --- */

static _Atomic uint64_t probed_ns[SWN_ENCODINGS]; /* for a chunk; 0: not known */

static void probe(void)
{
    char *room = calloc(1, SWN_CHUNK);
    for (int how = 0; room && how < SWN_ENCODINGS; how++) {
        size_t stored = swn_encoded_bytes((enum swn_encoding)how, SWN_CHUNK);
        uint64_t best = UINT64_MAX;
        for (int i = 0; i < PROBE_ROUNDS; i++) {
            uint64_t begin = cpu_ns();
            swn_decode_chunk((enum swn_encoding)how, room + SWN_CHUNK - stored, stored, room, SWN_CHUNK);
            uint64_t took = cpu_ns() - begin + 1;
            best = took < best ? took : best;
        }
        atomic_store(&probed_ns[how], best);
    }
    free(room);
}

static double decode_ns_per_byte(enum swn_encoding how)
{
    uint64_t bytes = atomic_load(&decoded_bytes[how]);
    return bytes >= MEASURED_BYTES ? (double)atomic_load(&decode_ns[how]) / (double)bytes
                                   : (double)atomic_load(&probed_ns[how]) / (double)SWN_CHUNK;
}

/* Whether decoding the chunks takes less time than reading the bytes that they save. */
static int pays(const struct swn_compressed_extent *c, double disk_bytes_per_ns)
{
    double saved = 0, decoding = 0;
    uint64_t end = 0;
    for (size_t i = 0; i < c->chunk_count; i++) {
        saved += (double)SWN_CHUNK - (double)(c->chunks[i].end - end);
        decoding += (double)SWN_CHUNK * decode_ns_per_byte(c->chunks[i].encoding);
        end = c->chunks[i].end;
    }
    return decoding < saved / disk_bytes_per_ns;
}

void swn_compressed_read_open(struct source *s)
{
    if (!s->store->compressed_count)
        return;
    s->uses = calloc(s->store->compressed_count, sizeof *s->uses);
    s->chunks_verified = calloc(s->store->chunk_count + 1, 1);
    if (!s->uses || !s->chunks_verified) {
        swn_compressed_read_forget(s);
        return;
    }
    if (!atomic_load(&probed_ns[0]))
        probe();
    for (size_t i = 0; i < s->store->compressed_count; i++)
        atomic_store(&s->uses[i].pays, (unsigned char)pays(&s->store->copies[i], SWN_FIRST_BYTES_PER_NS));
}

void swn_compressed_read_forget(struct source *s)
{
    free(s->uses);
    free((void *)s->chunks_verified);
    s->uses = NULL;
    s->chunks_verified = NULL;
}

/* --- which bytes --- */

_Static_assert(SWN_GRANULE % SWN_CHUNK == 0, "a piece of a weight is whole chunks");

static struct compressed_use *use_of(const struct source *s, const struct swn_compressed_extent *c)
{
    return &s->uses[c - s->store->copies];
}

/* The compressed extent from which a range of `size` bytes can be read, or NULL. */
static const struct swn_store_extent *copied(const struct swn_range *r, size_t size, struct source **from)
{
    struct source *s = atomic_load(&((struct swn_range *)r)->state) == SWN_FILE_BACKED ? swn_source_of(r->file) : NULL;
    const struct swn_store_extent *x = s && s->uses ? swn_source_extent(s, r->extent, size) : NULL;
    *from = s;
    return x && x->compressed && !atomic_load(&use_of(s, x->compressed)->bad) ? x : NULL;
}

double swn_compressed_read_choose(struct swn_engine *e, const struct swn_range *lead, double disk_bytes_per_ns)
{
    (void)e;
    struct source *s;
    const struct swn_store_extent *x = copied(lead, swn_round_up(lead->len, SWN_PAGE), &s);
    if (!x)
        return 0;
    unsigned char worth_it = (unsigned char)pays(x->compressed, disk_bytes_per_ns);
    atomic_store(&use_of(s, x->compressed)->pays, worth_it);
    return worth_it ? 1 - (double)x->compressed->bytes / (double)swn_round_up(x->bytes, SWN_PAGE) : 0;
}

/* --- reading --- */

static uint64_t chunk_begin(const struct swn_compressed_extent *c, size_t chunk)
{
    return chunk ? c->chunks[chunk - 1].end : 0;
}

/* On a fetch thread: decodes the bytes that have arrived. */
static int decode(struct swn_fetch_job *job, size_t upto)
{
    struct swn_part *p = job->user;
    const struct swn_compressed_extent *c = p->compressed;
    const struct source *s = (const void *)((const char *)job->file - offsetof(struct source, file.fetch));
    char *part = (char *)job->buf - (p->fill - job->len);
    size_t first = (size_t)(c->chunks - s->store->chunks), done;
    uint64_t begin = job->off - c->off;
    for (; (done = (p->chunk - p->first_chunk) * SWN_CHUNK) < p->fill; p->chunk++) {
        const struct swn_store_chunk *chunk = &c->chunks[p->chunk];
        uint64_t from = chunk_begin(c, p->chunk), start = cpu_ns();
        if (chunk->end - begin > upto)
            break;
        size_t bytes = p->fill - done < SWN_CHUNK ? p->fill - done : SWN_CHUNK;
        int err = swn_decode_chunk(chunk->encoding, (char *)job->buf + (from - begin), (size_t)(chunk->end - from),
                                   part + done, bytes);
        atomic_fetch_add(&decode_ns[chunk->encoding], cpu_ns() - start);
        atomic_fetch_add(&decoded_bytes[chunk->encoding], bytes);
        atomic_fetch_add(&encoded_bytes, chunk->end - from);
        if (!err && !s->chunks_verified[first + p->chunk]) {
            err = swn_sum(part + done, bytes) == chunk->checksum ? 0 : -EILSEQ;
            s->chunks_verified[first + p->chunk] = !err;
        }
        if (err)
            return err;
    }
    p->checked = 1;
    return 0;
}

void swn_compressed_read_prepare(struct swn_part *p)
{
    struct source *s;
    const struct swn_store_extent *x = copied(p->range, p->fill, &s);
    p->compressed = NULL;
    if (!x || !atomic_load(&use_of(s, x->compressed)->pays))
        return;
    const struct swn_compressed_extent *c = x->compressed;
    uint64_t from = p->off - x->off, to = from + p->fill;
    /* All of an extent, or pieces that were cut at granules of the arena; other pieces could not be decoded in place.
     */
    if (from % SWN_CHUNK || (to % SWN_CHUNK && to < swn_round_up(x->bytes, SWN_PAGE)))
        return;
    uint64_t lo = chunk_begin(c, (size_t)(from / SWN_CHUNK));
    uint64_t hi = chunk_begin(c, (size_t)swn_round_up(to, SWN_CHUNK) / SWN_CHUNK);
    p->compressed = c;
    p->first_chunk = p->chunk = (size_t)(from / SWN_CHUNK);
    p->job.off = c->off + lo;
    p->job.len = (size_t)(hi - lo);
    p->job.buf = (char *)p->job.buf + (p->fill - p->job.len);
    p->job.arrived = decode;
}

int swn_compressed_read_retry(struct swn_engine *e, struct swn_part *p, int err)
{
    const struct source *s = (const void *)((const char *)p->job.file - offsetof(struct source, file.fetch));
    if (!p->compressed || err == -ECANCELED)
        return 0;
    atomic_store(&use_of(s, p->compressed)->bad, 1);
    if (!__atomic_fetch_add(&e->said.compressed, 1, __ATOMIC_RELAXED))
        swn_say("the encoded copy at offset %llu of %s cannot be used (%s); block %u is read as it is",
                (unsigned long long)p->compressed->off, s->store->path,
                err == -EILSEQ ? "its checksum does not match" : strerror(-err), p->range_id);
    p->compressed = NULL;
    p->job.buf = (char *)p->job.buf - (p->fill - p->job.len);
    p->job.off = p->off;
    p->job.len = p->fill;
    p->job.arrived = NULL;
    return swn_fetch_submit(e->fetch, &p->job, 1) == 0;
}

void swn_compressed_read_stats(struct swn_stats *out)
{
    out->encoded_bytes = atomic_load(&encoded_bytes);
    for (int how = 0; how < SWN_ENCODINGS; how++)
        out->decoded_bytes += atomic_load(&decoded_bytes[how]);
}
