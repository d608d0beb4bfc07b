/* skeleton/load/load.c - see load.h. */
#define _GNU_SOURCE
#include "skeleton/core/expected_read.h"
#include "skeleton/load/load.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "skeleton/core/write_behind.h"
#include "blocks/store/cache.h"
#include "skeleton/load/compressed_read.h"
#include "skeleton/load/load_internal.h"
#include "base/fd_registry.h"
#include "base/size.h"
#include "blocks/store/store.h"
#include "base/file_io.h"
#include "skeleton/core/plan.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/engine/section.h"

/* Smaller files are read: registering gains nothing. */
#define FILE_LEAST ((uint64_t)1 << 20)
/* The number of stores without ranges that stay open for the next load. */
#define IDLE_MOST 16
/* The most bytes of a tensor that a program may have read before the registered read: Python's buffer, 4 to 128 KiB. */
#define HEAD_MOST ((size_t)256 << 10)

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static struct source *sources; /* guarded by load_lock; the files in it by the engine's lock */

static void path_of(int fd, char *out, size_t size)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, size - 1);
    out[n < 0 ? 0 : n] = 0;
}

/* Whether the file begins like a zip of torch.save; like a pickle of torch.save before 1.6, for which there is a
 * message; or like a safetensors header: a length and an opening brace. */
static int looks_like_a_checkpoint(struct swn_engine *e, int fd)
{
    unsigned char head[9];
    if (swn_read_whole(e->io, fd, head, sizeof head, 0))
        return 0;
    return !memcmp(head, "PK\3\4", 4) || !memcmp(head, "\x80\2\x8a\n\x6c\xfc\x9c", 7) || (!head[7] && head[8] == '{');
}

/* Of a smaller file there is nothing to gain. */
#define STORE_LEAST ((uint64_t)1 << 20)

/* Whether a file of that size is better registered than read: it is large, or does not fit beside the model that it is
 * loaded into. The latter tells one shard of many from a small file. */
int swn_load_worth_a_store(struct swn_engine *e, uint64_t bytes)
{
    swn_lock(&e->lock);
    uint64_t live = e->counters.live_bytes;
    swn_unlock(&e->lock);
    return bytes > e->budget.limit / 2 || live + bytes > e->budget.limit ||
           (e->config.stores & SWN_MANY_MODELS && bytes >= STORE_LEAST);
}

/* The names of the stores that ranges are mapped from, or will be: the other shards of this model. */
int swn_load_stores_in_use(struct swn_engine *e, struct swn_cache_limits *limits)
{
    size_t most = 0, count = 0;
    swn_lock(&load_lock);
    for (const struct source *s = sources; s; s = s->next)
        most += s->store != NULL;
    char **names = calloc(most + 1, sizeof *names);
    int err = names ? 0 : -ENOMEM;
    swn_lock(&e->lock);
    for (const struct source *s = sources; s && !err; s = s->next)
        if (s->store && s->file.refs && !(names[count++] = strdup(strrchr(s->store->path, '/') + 1)))
            err = -ENOMEM, count--;
    swn_unlock(&e->lock);
    swn_unlock(&load_lock);
    limits->keep = (const char *const *)names;
    limits->keep_count = count;
    return err;
}

/* Tells the user why there is no store, each kind of reason once; a small file (-ENOENT) needs none. load_lock held. */
static void explain(struct swn_engine *e, const struct source *s, int err, const char *why)
{
    size_t named = strlen(s->path); /* readers' texts begin with the path */
    if (!strncmp(why, s->path, named) && !strncmp(why + named, ": ", 2))
        why += named + 2;
    if (err == -EINVAL || err == -ENOTSUP) {
        if (!e->said.refused++ || e->config.verbose)
            swn_say("%s is read into memory, as it cannot be loaded by reference: %s", s->path,
                    why[0] ? why : strerror(-err));
    } else if (err && err != -ENOENT && !e->said.store++)
        swn_say("no block store of %s could be written to %s: %s; it is read into memory instead", s->path,
                e->config.store_dir, why[0] ? why : strerror(-err));
}

/* s has this store. load_lock held. */
static void take_store(struct swn_engine *e, struct source *s, struct swn_store *store)
{
    s->index = 0;
    while (s->index < store->source_count && !swn_identity_same_file(&store->sources[s->index].identity, &s->identity))
        s->index++;
    s->verified = calloc(store->extent_count + 1, 1);
    s->held = calloc(store->extent_count + 1, sizeof *s->held);
    if (s->index == store->source_count || !s->verified || !s->held) {
        swn_store_close(store, e->io);
        return;
    }
    s->store = store;
    s->file.fetch = store->file;
    s->file.io = e->io;
    s->file.immutable = 1;
    snprintf(s->file.dir, sizeof s->file.dir, "%s", store->path);
    swn_compressed_read_open(s);
}

void swn_load_built(struct swn_engine *e, struct source *s, int fd, struct swn_store *store, int err, const char *why)
{
    swn_lock(&load_lock);
    if (!err) {
        swn_load_readahead(e, fd, store);
        take_store(e, s, store);
    }
    explain(e, s, err, why);
    atomic_store(&s->building, 0);
    swn_unlock(&load_lock);
}

/* Finds the store of s, or begins to build it. load_lock held. */
static void open_store(struct swn_engine *e, struct source *s, int fd)
{
    char why[SWN_ERRMSG] = "";
    struct swn_store *store = NULL;
    if (e->config.stores & SWN_STORES_OFF || !looks_like_a_checkpoint(e, fd))
        return;
    int err = swn_cache_find(&store, e->io, e->config.store_dir, fd, why);
    if (!err) {
        swn_load_readahead(e, fd, store); /* these reads run while other blocks are compared */
        err = swn_cache_agrees(store, e->io, fd, why);
        if (err)
            swn_store_close(store, e->io);
        else
            take_store(e, s, store);
    }
    /* A damaged store, or one of another version, is replaced. No file holds storages larger than itself. */
    if (err == -ENOENT || err == -EILSEQ || err == -EINVAL || err == -ENOTSUP) {
        why[0] = 0;
        err = swn_load_worth_a_store(e, s->identity.size) ? swn_load_build(e, s, fd) : -ENOENT;
    }
    explain(e, s, err, why);
}

/* A store, and a mapped checkpoint that does not fit, leave nothing in the page cache. */
static void uncache(struct swn_engine *e, const struct source *s)
{
    if (s->store || s->watched)
        e->io->fadvise(e->io->ctx, s->file.fetch.fd, 0, 0, POSIX_FADV_DONTNEED);
}

static void forget(struct swn_engine *e, struct source **link)
{
    struct source *s = *link;
    *link = s->next;
    if (e->expected.source == s)
        e->expected.source = NULL;
    if (s->store)
        swn_store_close(s->store, e->io);
    if (s->mapped) {
        uncache(e, s);
        if (s->layout)
            swn_layout_destroy(s->layout, e->io);
        if (s->file.fetch.direct_fd >= 0)
            e->io->close(e->io->ctx, s->file.fetch.direct_fd);
        e->io->close(e->io->ctx, s->file.fetch.fd);
    }
    free((void *)s->verified);
    swn_compressed_read_forget(s);
    free(s->path);
    free(s->held);
    free(s->learned);
    free(s);
}

/* Closes descriptors of files that no range names and that have no read under way. load_lock held. */
static void close_idle(struct swn_engine *e)
{
    size_t idle = 0;
    swn_lock(&e->lock);
    for (struct source **link = &sources; *link;) {
        struct source *s = *link;
        if (!s->file.refs && !s->waiting && !atomic_load(&s->building) && ++idle > IDLE_MOST)
            forget(e, link);
        else
            link = &s->next;
    }
    swn_unlock(&e->lock);
}

/* load_lock held. */
static struct source *known(const struct swn_identity *id)
{
    struct source *s = sources;
    while (s && (s->mapped || !swn_identity_same_file(&s->identity, id)))
        s = s->next;
    return s;
}

/* Blocks signals while a file is inspected (swn_load_await handles them): a signal then would not end the wait for the
 * store, which can take minutes, and its handler might want the lock. Cancellation is blocked as well. Faults are not
 * blocked, as they are repaired. */
struct held_off {
    sigset_t before;
    int cancel;
};

static void hold_off(struct held_off *h)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t held;
    sigfillset(&held);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&held, faults[i]);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &h->cancel);
    pthread_sigmask(SIG_BLOCK, &held, &h->before);
    swn_lock(&load_lock);
}

static void let_come(const struct held_off *h)
{
    swn_unlock(&load_lock);
    pthread_sigmask(SIG_SETMASK, &h->before, NULL);
    pthread_setcancelstate(h->cancel, NULL);
}

/* load_lock held; released while the store is built. Returns NULL also where a signal was handled meanwhile; `before`:
 * the signals that the program blocks. */
static struct source *find(struct swn_engine *e, int fd, const sigset_t *before)
{
    struct swn_identity id;
    struct stat st;
    char path[4096];
    /* A file without a name is never opened again. */
    if (e->io->fstat(e->io->ctx, fd, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size < FILE_LEAST ||
        !st.st_nlink || swn_identity_settle(e->io, fd, SWN_LOAD_SETTLE_MS, &id))
        return NULL;
    struct source *s = known(&id);
    if (!s) {
        s = calloc(1, sizeof *s);
        path_of(fd, path, sizeof path);
        if (!s || !(s->path = strdup(path))) {
            free(s);
            return NULL;
        }
        s->identity = id;
        close_idle(e);
        s->next = sources;
        sources = s;
        open_store(e, s, fd);
    }
    if (!atomic_load(&s->building))
        return s;
    s->waiting++;
    swn_unlock(&load_lock);
    int there = swn_load_await(s, before);
    swn_lock(&load_lock);
    s->waiting--;
    return there ? s : NULL;
}

struct swn_extent_file *swn_load_mapped(int fd)
{
    struct swn_engine *e = &swn_engine_one;
    struct stat st;
    struct source *s = e->io->fstat(e->io->ctx, fd, &st) || !S_ISREG(st.st_mode) ? NULL : calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->mapped = s->file.immutable = 1;
    s->file.io = e->io;
    s->file.refs = 1;
    path_of(fd, s->file.dir, sizeof s->file.dir);
    s->file.fetch.fd = swn_fd_registry(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (s->file.fetch.fd < 0) {
        free(s);
        return NULL;
    }
    s->file.fetch.direct_fd = swn_open_direct(e->io, fd, O_RDONLY);
    swn_lock(&load_lock);
    close_idle(e);
    s->next = sources;
    sources = s;
    swn_unlock(&load_lock);
    return &s->file;
}

/* The extent that has exactly these bytes, or NULL. */
static const struct swn_store_extent *extent_at(const struct source *s, uint64_t off, size_t len, size_t *index)
{
    const struct swn_store_extent *x = swn_source_extent(s, off, len);
    if (!x || x->off != off || swn_round_up(x->bytes, SWN_PAGE) != len)
        return NULL;
    *index = (size_t)(x - s->store->extents);
    return x;
}

static void note_held(struct swn_range *r)
{
    struct source *s = swn_source_of(r->file);
    size_t i;
    if (s && s->store && extent_at(s, r->extent, swn_round_up(r->len, SWN_PAGE), &i))
        s->held[i] = (struct held){r, r->id};
}

struct swn_range *swn_load_successor(const struct swn_range *r)
{
    const struct source *s =
        atomic_load(&((struct swn_range *)r)->state) == SWN_FILE_BACKED ? swn_source_of(r->file) : NULL;
    size_t i;
    if (!s || !s->store || !extent_at(s, r->extent, swn_round_up(r->len, SWN_PAGE), &i))
        return NULL;
    for (size_t end = i + 1 + SWN_LOAD_SMALL_RUN; ++i < s->store->extent_count && i < end;) {
        const struct held *h = &s->held[i];
        if (h->range && h->range->id == h->id && h->range->file == &s->file &&
            h->range->extent == s->store->extents[i].off)
            return h->range;
    }
    return NULL;
}

/* A whole tensor from `buf - delta` on, whose last n bytes are to be read now; *delta: the bytes that were read before.
 */
static int fills_rest(const struct swn_range *r, const void *buf, size_t n, size_t *delta)
{
    if (!r || r->pins || swn_tensor_of(r)->readers)
        return 0;
    if (atomic_load(&((struct swn_range *)r)->state) != SWN_RESIDENT && !r->shared)
        return 0;
    *delta = (uintptr_t)buf - r->addr;
    return *delta < r->len && n == r->len - *delta;
}

/* Whether the `delta` bytes before buf are the file's. They are in the page cache, from where the program has just read
 * them. */
static int head_is_the_files(struct swn_engine *e, int fd, const void *buf, uint64_t off, size_t delta)
{
    unsigned char piece[4096];
    for (size_t done = 0; done < delta;) {
        size_t n = delta - done < sizeof piece ? delta - done : sizeof piece;
        if (swn_read_whole(e->io, fd, piece, n, off - delta + done) ||
            memcmp(piece, (const unsigned char *)buf - delta + done, n) != 0)
            return 0;
        done += n;
    }
    return 1;
}

/* A program that loads the file again begins at the same place. The heads may have left the page cache by then, and
 * reading them one at a time made ResNet-152's second load 35 ms longer. load_lock held. */
static void note_beginning(struct swn_engine *e, struct source *s, int fd, uint64_t off)
{
    if (!s->begins_at)
        s->begins_at = off;
    else if (s->begins_at == off)
        swn_load_readahead(e, fd, s->store);
}

/* swn_expected_read_match: one of the next storages of a load has that length. */
static int is_expected(const void *source, size_t after, size_t bytes)
{
    const struct source *s = source;
    size_t end = after + 1 + SWN_LOAD_SMALL_RUN;
    for (size_t i = after + 1; i < s->store->extent_count && i <= end; i++)
        if (s->store->extents[i].bytes == bytes && s->store->extents[i].source == s->index)
            return 1;
    return 0;
}

static ssize_t register_read(struct swn_engine *e, int fd, void *buf, size_t n, off_t off, const sigset_t *before)
{
    size_t delta, len;
    swn_lock(&e->lock);
    struct swn_range *r = swn_arena_find(e->arena, (uintptr_t)buf);
    if (r)
        swn_write_behind_cancel(e, r);
    int fits = e->torch && atomic_load(&e->life.hook_state) != 3 && fills_rest(r, buf, n, &delta);
    uint32_t id = fits ? r->id : 0;
    len = fits ? r->len : 0;
    swn_unlock(&e->lock);
    int flags = fits ? fcntl(fd, F_GETFL) : -1, access = flags & (O_ACCMODE | O_PATH);
    if (flags < 0 || (access != O_RDONLY && access != O_RDWR) || delta > HEAD_MOST || off < (off_t)delta)
        return -1; /* a read that must fail is made */
    struct source *s = find(e, fd, before);
    const struct swn_store_extent *x =
        s && s->store ? swn_store_find(s->store, s->index, (uint64_t)off - delta, len) : NULL;
    if (x)
        note_beginning(e, s, fd, x->source_off);
    if (!x || !head_is_the_files(e, fd, buf, (uint64_t)off, delta))
        return -1;
    swn_lock(&e->lock);
    swn_write_behind_cancel(e, r);
    int done = r->id == id && fills_rest(r, buf, n, &delta);
    size_t resident = done && swn_is_weight(r) && atomic_load(&r->state) == SWN_RESIDENT ? r->size : 0;
    done = done && !swn_residency_register(&e->res, r, &s->file, x->off);
    if (done) {
        swn_frames_forget(e, r);
        swn_tensor_of(r)->io_failed = 0;
        e->counters.deferred += len - delta;
        e->weights.resident_bytes -= resident;
        note_held(r);
        swn_expected_read_set(e, is_expected, s, (size_t)(x - s->store->extents));
        atomic_store(&e->life.want_hook, 1);
    }
    swn_unlock(&e->lock);
    return done ? (ssize_t)(len - delta) : -1;
}

ssize_t swn_load_read(int fd, void *buf, size_t n, off_t off)
{
    SWN_SECTION();
    struct swn_engine *e = &swn_engine_one;
    if (n < SWN_GRANULE / 2 || !swn_engine_owns((uintptr_t)buf) || off < 0 || atomic_load(&e->life.retired))
        return -1;
    struct held_off held;
    hold_off(&held);
    ssize_t got = register_read(e, fd, buf, n, off, &held.before);
    let_come(&held);
    return got;
}

static int untouched(struct swn_engine *e, uintptr_t addr, size_t len)
{
    struct swn_range pages_of = {.addr = addr / SWN_PAGE * SWN_PAGE};
    struct swn_pages pages;
    pages_of.len = addr + len - pages_of.addr;
    return !swn_residency_scan(&e->res, &pages_of, &pages) && !pages.private_pages;
}

static __thread struct held_off preparing; /* from swn_load_prepare to swn_load_done */

int swn_load_prepare(struct swn_op *op)
{
    struct swn_engine *e = &swn_engine_one;
    const struct swn_arg *from = &op->args[1];
    struct swn_mapped_file *g = from->mapped ? swn_arena_mapped_file(e->arena, from->data) : NULL;
    op->move_file = NULL;
    if (!g || atomic_load(&e->life.retired) || from->data + from->bytes > g->hi || op->args[0].bytes < SWN_GRANULE)
        return 0;
    hold_off(&preparing);
    struct source *s = find(e, g->file->fetch.fd, &preparing.before);
    const struct swn_store_extent *x =
        s && s->store ? swn_store_find(s->store, s->index, g->file_off + (from->data - g->lo), from->bytes) : NULL;
    if (x) {
        op->move_file = &s->file;
        op->move_off = x->off;
        return 1;
    }
    let_come(&preparing);
    return 0;
}

void swn_load_done(void)
{
    let_come(&preparing);
}

/* The store with the bytes of args[1], and their place. */
static struct swn_extent_file *source_of(struct swn_engine *e, const struct swn_op *op, uint64_t *off)
{
    const struct swn_arg *from = &op->args[1];
    if (from->mapped) {
        *off = op->move_off;
        return op->move_file && untouched(e, from->data, from->bytes) ? op->move_file : NULL;
    }
    struct swn_range *s = swn_arena_find(e->arena, from->data);
    if (!s || s->addr != from->data || s->len != op->args[0].bytes || s->pins ||
        atomic_load(&s->state) != SWN_FILE_BACKED || !s->file->immutable || !untouched(e, s->addr, s->len))
        return NULL;
    swn_tensor_of(s)->last_use = e->ops.seq;
    *off = s->extent;
    return s->file;
}

int swn_load_move(struct swn_engine *e, struct swn_op *op)
{
    struct swn_arg *to = &op->args[0];
    struct swn_range *r = swn_arena_find(e->arena, to->data);
    uint64_t off;
    if (atomic_load(&e->life.retired) || to->mapped || !r || r->addr != to->data || r->len != to->bytes || r->pins ||
        swn_tensor_of(r)->readers)
        return 0;
    swn_write_behind_cancel(e, r);
    int state = atomic_load(&r->state);
    struct swn_extent_file *file = state == SWN_RESIDENT || state == SWN_FILE_BACKED ? source_of(e, op, &off) : NULL;
    size_t size = r->size;
    if (!file || swn_residency_register(&e->res, r, file, off))
        return 0;
    if (state == SWN_RESIDENT && swn_is_weight(r))
        e->weights.resident_bytes -= size;
    swn_frames_forget(e, r);
    swn_tensor_of(r)->io_failed = 0;
    swn_tensor_of(r)->last_use = e->ops.seq;
    note_held(r);
    e->counters.deferred += r->len;
    return 1;
}

const char *swn_load_name(const struct swn_extent_file *f, char *out, size_t size)
{
    snprintf(out, size, f->immutable ? "%s" : "the spill file in %s", f->dir);
    return out;
}

static int first_tensor(const struct swn_store *s, uint64_t off, char *out, size_t size)
{
    for (size_t i = 0; i < s->tensor_count; i++)
        if (s->extents[s->tensors[i].extent].off == off)
            return snprintf(out, size, "%s", s->tensors[i].name) > 0;
    return 0;
}

int swn_load_tensor(const struct swn_load_place *place, char *out, size_t size)
{
    int found = 0;
    if (!place->file || swn_trylock(&load_lock))
        return 0; /* a thread is loading at exit: the names are not worth waiting for */
    for (struct source *s = sources; s && !found; s = s->next)
        found = &s->file == place->file && s->store && first_tensor(s->store, place->off, out, size);
    swn_unlock(&load_lock);
    return found;
}

/* Drops the heads of tensors and small tensors, which were read through the page cache, and the kernel's read-ahead. */
static void uncache_checkpoint(struct swn_engine *e, const struct source *s)
{
    struct swn_identity id;
    int fd = swn_open_regular(e->io, s->path, 0, NULL);
    if (fd < 0)
        return;
    if (!swn_identity_stat(e->io, fd, &id) && swn_identity_same_file(&id, &s->identity))
        e->io->fadvise(e->io->ctx, fd, 0, 0, POSIX_FADV_DONTNEED);
    e->io->close(e->io->ctx, fd);
}

void swn_load_exit(void)
{
    struct swn_engine *e = &swn_engine_one;
    if (swn_trylock(&load_lock))
        return; /* a thread is loading: skip this */
    for (struct source *s = sources; s; s = s->next) {
        uncache(e, s);
        if (s->store) {
            uncache_checkpoint(e, s);
            swn_load_write_order(e, s);
        }
    }
    swn_unlock(&load_lock);
}

void swn_load_fork_child(void)
{
    pthread_mutex_init(&load_lock, NULL);
    swn_load_build_fork_child();
    for (struct source *s = sources; s; s = s->next) {
        if (atomic_exchange(&s->building, 0)) /* by a thread that does not exist here */
            s->store = NULL;
        s->waiting = 0;
    }
}
