/* Rows of a streamed weight that its operator looks up (an embedding): only their pages are read, past the page cache,
 * and nothing else of the weight.
 *
 * A row's own address always reads right. So a page that cannot be read from the extent is copied from that address: a
 * page in memory, one that the program wrote to, one whose read failed, or one whose extent was dropped meanwhile.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "blocks/memory/publish.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/load/load.h"
#include "base/thread.h"
#include "skeleton/core/eviction.h"
#include "skeleton/core/op_window.h"
#include "skeleton/core/prefetch.h"
#include "skeleton/core/plan.h"
#include "skeleton/tiling/row_gather.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/engine/thread_state.h"
#include "skeleton/engine/section.h"

/* The most bytes of one batch, which are read into memory of the thread's own; it grows with the need, from
 * BATCH_LEAST. */
#define BATCH_MOST ((size_t)1 << 20)
#define BATCH_LEAST ((size_t)64 << 10)
#define RUN_MOST ((size_t)256 << 10)
/* Up to this many pages between two rows are read with them, instead of making two reads: on a disk that gave 0.9 GB/s,
 * eight small reads at a time took 40 us each, a page more in one of them 4.5 us. */
#define GAP_MOST (4 * SWN_PAGE)

/* The most rows of one look-up: more can as well be read through the mapping, and would take memory that is not
 * counted. */
#define ROWS_MOST ((size_t)1 << 16)
/* The most rows for which memory is kept. */
#define ROWS_KEPT ((size_t)1 << 12)

/* The source of row i of the result. */
struct swn_row {
    uintptr_t at;
    size_t to;
};

/* Pages of one extent that are read at once. */
struct run {
    uintptr_t lo, hi;
    const struct swn_range *range; /* at the time of planning; not to be used later */
    struct swn_extent_file *file;
    uint64_t off, turn;
    char *buf;
    int held; /* the file is held */
    int own;  /* its own address serves instead */
    int err;  /* why it could not be read, or 0 */
    struct swn_row_reading *reading;
    struct swn_fetch_job job;
};

/* Guarded by the engine's lock. Belongs to a thread, as long as there is a plan; or, once the operator has given up its
 * reads, to these reads, and the last one frees it. */
struct swn_row_reading {
    struct swn_row_reading *next, **at; /* of `readings` */
    size_t bytes;                       /* of buf, which has room for the runs of as many pages */
    char *buf;
    unsigned pending;
    int given_up;
    int strays; /* some pages have to be read through their mapping */
    size_t n;
    struct run runs[];
};

/* The row readings of all threads, also those in the middle of a look-up, and those given up: a forked child has to
 * find them. */
static struct swn_row_reading *readings;

static size_t struct_bytes(size_t bytes)
{
    return sizeof(struct swn_row_reading) + bytes / SWN_PAGE * sizeof(struct run);
}

static void release(struct swn_row_reading *rd)
{
    for (size_t i = 0; i < rd->n; i++) {
        rd->runs[i].file->refs -= (size_t)rd->runs[i].held;
        rd->runs[i].held = 0;
    }
}

/* Frees all of it except the pages of its buffer. */
static void forget_reading(struct swn_row_reading *rd)
{
    release(rd);
    *rd->at = rd->next;
    if (rd->next)
        rd->next->at = rd->at;
    swn_engine_count_small(-(long long)(rd->bytes + struct_bytes(rd->bytes)));
    free(rd);
}

static void end_reading(struct swn_row_reading *rd)
{
    munmap(rd->buf, rd->bytes);
    forget_reading(rd);
}

/* NULL: no memory, or none within the budget. Direct reads land in the buffer, so it is neither private nor inherited
 * by a child (invariant 6). */
static struct swn_row_reading *make_reading(struct swn_engine *e, const struct swn_range *r, size_t bytes)
{
    if (swn_reclaim_try(e, bytes + struct_bytes(bytes), r))
        return NULL;
    struct swn_row_reading *rd = malloc(struct_bytes(bytes));
    void *buf = rd ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    if (buf == MAP_FAILED) {
        free(rd);
        return NULL;
    }
    madvise(buf, bytes, MADV_DONTFORK);
    *rd = (struct swn_row_reading){.next = readings, .at = &readings, .bytes = bytes, .buf = buf};
    if (readings)
        readings->at = &rd->next;
    readings = rd;
    swn_engine_count_small((long long)(bytes + struct_bytes(bytes)));
    swn_engine_note_peak(e);
    return rd;
}

/* Takes the thread's own, if it is large enough, or makes one. */
static struct swn_row_reading *begin_reading(struct swn_engine *e, struct swn_thread_state *t,
                                             const struct swn_range *r, size_t bytes)
{
    struct swn_row_reading *rd = t->reading;
    t->reading = NULL;
    if (rd && rd->bytes >= bytes) {
        rd->strays = 0;
        return rd;
    }
    if (rd)
        end_reading(rd);
    size_t room = BATCH_LEAST;
    while (room < bytes)
        room *= 2;
    rd = make_reading(e, r, room);
    return rd || room == bytes ? rd : make_reading(e, r, swn_round_up(bytes, SWN_PAGE));
}

/* Keeps it for the thread's next call: in the steady state there is neither an allocation nor a page fault. */
static void keep_reading(struct swn_engine *e, struct swn_thread_state *t, struct swn_row_reading *rd)
{
    if (e->plan.planned && !t->reading)
        t->reading = rd;
    else
        end_reading(rd);
}

size_t swn_rows_forget(struct swn_thread_state *t)
{
    struct swn_row_reading *rd = t->reading;
    size_t bytes = rd ? rd->bytes : 0;
    t->reading = NULL;
    if (rd)
        end_reading(rd);
    if (t->rows) {
        swn_engine_count_small(-(long long)(ROWS_KEPT * sizeof(struct swn_row)));
        free(t->rows);
    }
    t->rows = NULL;
    return bytes;
}

size_t swn_rows_trim(struct swn_engine *e)
{
    size_t bytes = 0;
    for (struct swn_thread_state *t = e->ops.threads; t; t = t->next)
        if (!t->looking_up)
            bytes += swn_rows_forget(t);
    return bytes;
}

/* A child does not have the buffers: they are DONTFORK. Nor do any of the reads end in a child. */
void swn_rows_fork_child(struct swn_engine *e)
{
    while (readings)
        forget_reading(readings);
    for (struct swn_thread_state *t = e->ops.threads; t; t = t->next) {
        t->reading = NULL;
        t->looking_up = 0;
        swn_rows_forget(t);
    }
}

/* The range whose extent has the page at `at`, or NULL: the page's own address serves. */
static struct swn_range *in_extent(struct swn_engine *e, uintptr_t at)
{
    struct swn_range *r = swn_arena_find(e->arena, at);
    if (!r || atomic_load(&r->state) != SWN_FILE_BACKED || swn_residency_mapped(&e->res, r, at) || r->shared ||
        swn_tensor_of(r)->io_failed || at + SWN_PAGE > r->addr + swn_round_up(r->len, SWN_PAGE))
        return NULL;
    return r;
}

/* Whether a page that is not read from an extent is certainly in memory. */
static int resident(struct swn_engine *e, uintptr_t at)
{
    struct swn_range *r = swn_arena_find(e->arena, at);
    return r && (swn_residency_mapped(&e->res, r, at) || atomic_load(&r->state) != SWN_FILE_BACKED);
}

/* Adds the page at `at`, which lies behind all pages so far. 0: no room. */
static int add_page(struct swn_engine *e, struct swn_row_reading *rd, uintptr_t at, size_t *used)
{
    struct run *last = rd->n ? &rd->runs[rd->n - 1] : NULL;
    if (last && at < last->hi)
        return 1;
    struct swn_range *r = in_extent(e, at);
    if (!r) {
        rd->strays |= !resident(e, at);
        return 1;
    }
    uint64_t off = r->extent + (at - r->addr);
    size_t more = last ? at + SWN_PAGE - last->hi : 0;
    int joins = last && r == last->range && more <= GAP_MOST + SWN_PAGE && last->hi - last->lo + more <= RUN_MOST;
    more = joins ? more : SWN_PAGE;
    if (*used + more > rd->bytes)
        return 0;
    if (!joins) {
        last = &rd->runs[rd->n++];
        *last = (struct run){.lo = at,
                             .range = r,
                             .file = r->file,
                             .off = off,
                             .turn = r->extent_turn,
                             .buf = rd->buf + *used,
                             .reading = rd};
    }
    last->hi = at + SWN_PAGE;
    *used += more;
    return 1;
}

/* Plans the runs of the first of these rows. Returns the number of rows; 0: not even one fits. */
static size_t plan_batch(struct swn_engine *e, struct swn_row_reading *rd, const struct swn_row *rows, size_t n,
                         size_t row_bytes)
{
    size_t used = 0;
    rd->n = 0;
    for (size_t i = 0; i < n; i++) {
        size_t runs = rd->n;
        uintptr_t hi = runs ? rd->runs[runs - 1].hi : 0;
        for (uintptr_t at = rows[i].at / SWN_PAGE * SWN_PAGE; at < rows[i].at + row_bytes; at += SWN_PAGE)
            if (!add_page(e, rd, at, &used)) {
                rd->n = runs;
                if (runs)
                    rd->runs[runs - 1].hi = hi;
                return i;
            }
    }
    return n;
}

static void read_done(struct swn_fetch_job *job, int err)
{
    struct swn_engine *e = &swn_engine_one;
    struct run *run = job->user;
    struct swn_row_reading *rd = run->reading;
    swn_lock(&e->lock);
    if (err) {
        run->own = 1;
        run->err = err;
        e->counters.read_errors++;
    }
    if (!--rd->pending) {
        if (rd->given_up)
            end_reading(rd);
        else
            pthread_cond_broadcast(&e->changed);
    }
    swn_unlock(&e->lock);
}

static void submit(struct swn_engine *e, struct swn_row_reading *rd)
{
    for (size_t i = 0; i < rd->n; i++) {
        struct run *run = &rd->runs[i];
        size_t bytes = run->hi - run->lo, own = 0;
        run->own = swn_residency_private(&e->res, run->lo, bytes, &own) || own;
        if (run->own)
            continue;
        run->job = (struct swn_fetch_job){
            .file = &run->file->fetch, .off = run->off, .buf = run->buf, .len = bytes, .done = read_done, .user = run};
        run->own = swn_fetch_submit(e->fetch, &run->job, 1) != 0;
        if (run->own)
            continue;
        run->file->refs++;
        run->held = 1;
        rd->pending++;
        e->disk.row_bytes += bytes;
    }
}

/* 0, or -1: the disk does not answer, and the caller no longer owns rd. */
static int await(struct swn_engine *e, struct swn_row_reading *rd)
{
    uint64_t begin = swn_now_ns(), until = begin + swn_prefetch_wait_ms * 1000000ull;
    if (!e->disk.row_waiters++)
        e->disk.rows_since_ns = begin;
    while (rd->pending && swn_cond_wait_until(&e->changed, &e->lock, until) != ETIMEDOUT) {
    }
    uint64_t end = swn_now_ns();
    e->counters.stall_ns += end - begin;
    if (!--e->disk.row_waiters)
        e->disk.row_ns += end - e->disk.rows_since_ns;
    rd->given_up = rd->pending != 0;
    return rd->given_up ? -1 : 0;
}

/* Bytes that were read are the page's only if its extent still backs the page. */
static void confirm(struct swn_engine *e, struct swn_row_reading *rd)
{
    for (size_t i = 0; i < rd->n; i++) {
        struct run *run = &rd->runs[i];
        struct swn_range *r = in_extent(e, run->lo);
        run->own |= !r || r->file != run->file || r->extent + (run->lo - r->addr) != run->off ||
                    r->extent_turn != run->turn || run->hi > r->addr + swn_round_up(r->len, SWN_PAGE);
        rd->strays |= run->own;
        char name[4200];
        if (run->err && !e->said.read++)
            swn_say("cannot read %zu bytes at offset %llu from %s: %s; trying its mapping", run->job.len,
                    (unsigned long long)run->off, swn_load_name(run->file, name, sizeof name), strerror(-run->err));
    }
    release(rd);
}

static void copy_rows(const struct swn_row_reading *rd, const struct swn_row *rows, size_t n, size_t row_bytes,
                      char *out)
{
    const struct run *first = rd->runs, *end = rd->runs + rd->n;
    for (size_t i = 0; i < n; i++) {
        uintptr_t at = rows[i].at, stop = at + row_bytes;
        char *to = out + rows[i].to * row_bytes;
        while (first < end && first->hi <= at)
            first++;
        for (const struct run *run = first; at < stop;) {
            int inside = run < end && run->lo <= at;
            uintptr_t upto = inside ? run->hi : run < end ? run->lo : stop;
            size_t bytes = (upto < stop ? upto : stop) - at;
            memcpy(to, inside && !run->own ? run->buf + (at - run->lo) : (char *)at, bytes);
            run += inside;
            at += bytes;
            to += bytes;
        }
    }
}

/* Reads all rows, batch by batch. 1: done, without reads through a mapping; 0: done; -1: not done. Holds the lock,
 * except while it waits or copies. */
static int read_rows(struct swn_engine *e, struct swn_thread_state *t, const struct swn_range *r,
                     const struct swn_row *rows, size_t n, size_t row_bytes, char *out)
{
    size_t each = swn_round_up(row_bytes, SWN_PAGE) + SWN_PAGE;
    struct swn_row_reading *rd = begin_reading(e, t, r, n < BATCH_MOST / each ? n * each : BATCH_MOST);
    if (!rd)
        return -1;
    size_t done = 0, batch = 1;
    while (done < n && batch) {
        batch = plan_batch(e, rd, rows + done, n - done, row_bytes);
        submit(e, rd);
        if (await(e, rd))
            return -1;
        confirm(e, rd);
        swn_unlock(&e->lock);
        copy_rows(rd, rows + done, batch, row_bytes, out);
        swn_lock(&e->lock);
        done += batch;
    }
    int clean = !rd->strays;
    keep_reading(e, t, rd);
    return done == n ? clean : -1;
}

/* The thread's own memory for n rows, or memory for this call, in *own; NULL: none. */
static struct swn_row *room_for(struct swn_engine *e, struct swn_thread_state *t, size_t n, struct swn_row **own)
{
    *own = NULL;
    if (n > ROWS_KEPT || !e->plan.planned)
        return *own = malloc(n * sizeof(struct swn_row));
    if (!t->rows && (t->rows = malloc(ROWS_KEPT * sizeof(struct swn_row))))
        swn_engine_count_small((long long)(ROWS_KEPT * sizeof(struct swn_row)));
    return t->rows;
}

/* qsort allocates memory for more than a few elements. */
static void sort(struct swn_row *rows, size_t n)
{
    for (size_t gap = n / 2; gap; gap = gap == 2 ? 1 : gap * 5 / 11)
        for (size_t i = gap; i < n; i++) {
            struct swn_row row = rows[i];
            size_t j = i;
            for (; j >= gap && rows[j - gap].at > row.at; j -= gap)
                rows[j] = rows[j - gap];
            rows[j] = row;
        }
}

/* The row numbers may be the program's own, which another of its threads may change meanwhile: each is read once. */
static int find_rows(struct swn_row *rows, uintptr_t first, size_t row_bytes, size_t count, const int64_t *numbers,
                     size_t n)
{
    int sorted = 1;
    for (size_t i = 0; i < n; i++) {
        int64_t number = __atomic_load_n(&numbers[i], __ATOMIC_RELAXED);
        if (number < 0 || (uint64_t)number >= count)
            return -EINVAL;
        rows[i] = (struct swn_row){first + (size_t)number * row_bytes, i};
        sorted &= !i || rows[i - 1].at <= rows[i].at;
    }
    if (!sorted)
        sort(rows, n);
    return 0;
}

int swn_gather_rows(struct swn_op *op, unsigned index, uintptr_t first, size_t row_bytes, size_t count,
                    const int64_t *numbers, size_t n, void *out)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    struct swn_arg *arg = &op->args[index];
    struct swn_row *own = NULL;
    if (n > ROWS_MOST)
        return 0;
    swn_lock(&e->lock);
    uint64_t begin = swn_now_ns();
    struct swn_thread_state *t = swn_window_thread(e);
    struct swn_row *rows = t ? room_for(e, t, n, &own) : NULL;
    if (!rows) {
        swn_unlock(&e->lock);
        return 0;
    }
    t->looking_up = 1;
    swn_unlock(&e->lock);
    int err = find_rows(rows, first, row_bytes, count, numbers, n);
    swn_lock(&e->lock);
    if (!e->fetch) /* a forked child that computes */
        swn_open_pool(e);
    int done = !err && e->fetch && arg->rows == 1 && arg->range && arg->range->id == arg->range_id
                   ? read_rows(e, t, arg->range, rows, n, row_bytes, out)
                   : -1;
    if (done > 0)
        arg->rows = 2;
    if (done >= 0)
        e->counters.rows += n;
    t->looking_up = 0;
    t->ready_ns += swn_now_ns() - begin; /* waiting is not computing */
    swn_unlock(&e->lock);
    free(own);
    return done >= 0;
}

void swn_rows_begin(struct swn_engine *e, struct swn_arg *arg)
{
    struct swn_range *r = arg->range;
    if (atomic_load(&r->state) == SWN_FILE_BACKED && swn_residency_unmapped(&e->res, r)) {
        swn_load_verify(e, r);
        arg->rows = 1;
    }
}

void swn_rows_end(struct swn_engine *e, struct swn_arg *arg)
{
    if (arg->rows == 1)
        swn_window_forget(e, arg->range);
}
