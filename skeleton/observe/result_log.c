/* The file is written through a shared mapping, so that the results survive any end of the process. Its disk space is
 * allocated before it is mapped: a full disk must end the record, not the program. */
#define _GNU_SOURCE
#include "skeleton/observe/result_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY /* its state on the stack */
#include <xxhash.h>

#include "skeleton/engine/engine_internal.h"
#include "skeleton/engine/program_threads.h"
#include "base/fd_registry.h"
#include "scheduler/protocol/verify_log.h"
#include "skeleton/engine/section.h"

#define CHUNK ((size_t)1 << 20)
#define LINE 512 /* at most */

static struct {
    pthread_mutex_t lock;
    char dir[PATH_MAX];
    uint64_t budget_bytes;
    int fd;                   /* -1: no file yet */
    char *head, *chunk;       /* the first page, and the present chunk */
    size_t used, chunk_begin; /* bytes used of the chunk; the chunk's offset in the file */
    int full;                 /* no room is left, or there never was any */
} record = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

static _Atomic long long live_bytes, peak_bytes;

/* --- the file --- */

static int next_chunk(void)
{
    size_t begin = record.chunk ? record.chunk_begin + CHUNK : 0;
    if (!swn_fd_is_ours(record.fd) || posix_fallocate(record.fd, (off_t)begin, (off_t)CHUNK))
        return -1;
    char *chunk = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED, record.fd, (off_t)begin);
    if (chunk == MAP_FAILED)
        return -1;
    madvise(chunk, CHUNK, MADV_DONTFORK); /* a child writes a file of its own */
    if (record.chunk && record.chunk != record.head)
        munmap(record.chunk, CHUNK);
    record.chunk = chunk;
    record.chunk_begin = begin;
    record.used = 0;
    return 0;
}

static void write_head(void)
{
    char text[SWN_RESULTS_HEAD + 1];
    int n =
        snprintf(text, sizeof text, SWN_RESULTS_MAGIC " peak %020lld cut %d budget %" PRIu64 " pid %d name %.64s",
                 atomic_load(&peak_bytes), record.full, record.budget_bytes, getpid(), program_invocation_short_name);
    memset(text + n, ' ', sizeof text - (size_t)n);
    text[SWN_RESULTS_HEAD - 1] = '\n';
    memcpy(record.head, text, SWN_RESULTS_HEAD);
}

static int open_record(void)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%020" PRIu64 "-%d", record.dir, swn_now_ns(), getpid());
    record.fd = swn_fd_registry(open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (record.fd < 0 || next_chunk()) {
        swn_say("cannot record results in %s: there will be nothing to compare of this process", record.dir);
        return -1;
    }
    record.head = record.chunk;
    write_head();
    record.used = SWN_RESULTS_HEAD;
    return 0;
}

static void append(const char *line, size_t n)
{
    while (n && !record.full) {
        size_t part = CHUNK - record.used < n ? CHUNK - record.used : n;
        memcpy(record.chunk + record.used, line, part);
        record.used += part;
        line += part;
        n -= part;
        if (record.used == CHUNK && next_chunk()) {
            record.full = 1;
            write_head();
        }
    }
}

/* --- the bytes --- */

static int contiguous(const struct swn_result *r)
{
    int64_t expected = 1;
    for (size_t i = r->dims; i-- > 0;) {
        if (r->sizes[i] != 1 && r->strides[i] != expected)
            return 0;
        expected *= r->sizes[i];
    }
    return 1;
}

static void add_elements(XXH3_state_t *state, const struct swn_result *r, size_t dim, const char *at)
{
    if (dim == r->dims) {
        XXH3_64bits_update(state, at, r->item_bytes);
    } else if (dim + 1 == r->dims && r->strides[dim] == 1) {
        XXH3_64bits_update(state, at, (size_t)r->sizes[dim] * r->item_bytes);
    } else {
        for (int64_t i = 0; i < r->sizes[dim]; i++)
            add_elements(state, r, dim + 1, at + i * r->strides[dim] * (int64_t)r->item_bytes);
    }
}

/* The hash of the elements in their logical order, independent of strides and gaps in memory. */
static uint64_t hash(const struct swn_result *r)
{
    size_t bytes = r->item_bytes;
    for (size_t i = 0; i < r->dims; i++)
        bytes *= (size_t)r->sizes[i];
    if (!bytes || contiguous(r))
        return XXH3_64bits(r->data, bytes);
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    add_elements(&state, r, 0, r->data);
    return XXH3_64bits_digest(&state);
}

/* "THREAD HASH OPERATOR TYPE[SIZE,SIZE]\n" */
static size_t put_line(char line[LINE], int thread, const char *op, const struct swn_result *r)
{
    char value[24] = SWN_RESULTS_UNSEEN;
    if (r->data)
        snprintf(value, sizeof value, "%016" PRIx64, hash(r));
    size_t n = (size_t)snprintf(line, LINE, "%d %s %.160s %.40s[", thread, value, op, r->type);
    for (size_t i = 0; i < r->dims && n < LINE - 32; i++)
        n += (size_t)snprintf(line + n, LINE - n, i ? ",%" PRId64 : "%" PRId64, r->sizes[i]);
    line[n++] = ']';
    line[n++] = '\n';
    return n;
}

void swn_result_log_write_result(const char *op, const struct swn_result *r)
{
    char line[LINE];
    int thread = swn_threads_number();
    if (thread < 0)
        return;
    size_t n = put_line(line, thread, op, r);
    swn_lock(&record.lock);
    if (record.fd < 0 && !record.full)
        record.full = open_record() != 0;
    append(line, n);
    swn_unlock(&record.lock);
}

/* --- memory --- */

void swn_result_log_write_memory(long long bytes)
{
    long long now = atomic_fetch_add(&live_bytes, bytes) + bytes, peak = atomic_load(&peak_bytes);
    while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now))
        ;
}

/* --- life --- */

static __thread int in_handler;

/* Not a section: the engine's handlers, which come next, ask whether the fork has interrupted one. */
static void before_fork(void)
{
    in_handler = swn_section_interrupted(); /* then the lock may be this thread's own */
    if (!in_handler)
        pthread_mutex_lock(&record.lock);
}

static void in_parent(void)
{
    if (!in_handler)
        pthread_mutex_unlock(&record.lock);
}

static void in_child(void)
{
    if (record.fd >= 0)
        swn_fd_registry_close(record.fd);
    record.fd = -1;
    record.head = record.chunk = NULL; /* not mapped here */
    record.full = 0;
    pthread_mutex_init(&record.lock, NULL);
}

__attribute__((destructor)) static void at_exit(void)
{
    if (swn_section_interrupted()) /* exit in a signal handler: the lock may be this thread's own */
        return;
    swn_lock(&record.lock);
    if (record.head)
        write_head();
    swn_unlock(&record.lock);
}

void swn_result_log_write_start(const char *dir, uint64_t budget_bytes)
{
    record.budget_bytes = budget_bytes;
    snprintf(record.dir, sizeof record.dir, "%s", dir);
    pthread_atfork(before_fork, in_parent, in_child);
}
