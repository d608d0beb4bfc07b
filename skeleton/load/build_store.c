/* A thread of the library makes the store of a checkpoint that is read for the first time. A thread that reads the file
 * waits for the store, as its reads are registered then, but holds no lock: other threads load meanwhile. It stops
 * waiting where a signal was handled: an interpreter notes a signal in its handler and acts on it when the call
 * returns. Then that read is made from the file, the builder finishes the store, and the next read finds it or waits
 * for it again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "blocks/store/cache.h"
#include "skeleton/load/load.h"
#include "skeleton/load/load_internal.h"
#include "base/fd_registry.h"
#include "base/size.h"
#include "base/thread.h"
#include "skeleton/core/plan.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/engine/section.h"

/* How often the store is looked for, and after what time the wait is explained to the user. */
#define LOOK_MS 2
#define EXPLAIN_MS 5000

/* One build at a time: each has buffers that no budget counts, and room in the cache is found and taken in two steps.
 */
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

struct build {
    struct swn_engine *e;
    struct source *s;
    int fd; /* the library's own */
};

/* A descriptor with its own open file description: the kernel reports a failed write once per description, and that
 * report is the program's. */
static int reopen(struct swn_engine *e, int fd)
{
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    int own = e->io->open(e->io->ctx, self, O_RDONLY | O_CLOEXEC, 0);
    return own >= 0 ? own
                    : swn_fd_registry(fcntl(fd, F_DUPFD_CLOEXEC, 0)); /* opened with rights that are gone by now */
}

static void free_names(struct swn_cache_limits *limits)
{
    for (size_t i = 0; i < limits->keep_count; i++)
        free((char *)(uintptr_t)limits->keep[i]);
    free((void *)(uintptr_t)limits->keep);
}

static int write_store(struct swn_engine *e, struct swn_checkpoint *c, struct swn_store **out, char why[SWN_ERRMSG])
{
    /* Narrow copies cost half of a store more to write, and save half of the bytes in every pass. */
    const struct swn_store_opts opts = {.buffer_bytes = (size_t)4 << 20, .copies = SWN_COPIES_NARROW};
    struct swn_cache_limits limits = {0};
    int err = swn_cache_cap(e->io, e->config.store_dir, &limits.cache_limit_bytes, why);
    if (err == -EINVAL) /* the fault is in the cap's file, not in the checkpoint: report it */
        return -EIO;
    swn_look_at_store_disk(e);
    /* Without room for all, this store is not built: otherwise another shard's would be removed, rebuilt next time, and
     * remove this one. */
    if (!err)
        err = swn_load_stores_in_use(e, &limits);
    if (!err)
        err = swn_cache_build(out, e->io, e->config.store_dir, &limits, c, &opts, why);
    free_names(&limits);
    return err;
}

/* Makes the store of a checkpoint that will not fit beside the model it is loaded into. */
static int make_store(struct build *b, struct swn_store **out, char why[SWN_ERRMSG])
{
    struct swn_engine *e = b->e;
    struct swn_checkpoint *c;
    uint64_t bytes = 0;
    char mib[32];
    int err = b->fd < 0 ? b->fd : swn_checkpoint_open_places(&c, e->io, b->fd, b->s->path, SWN_LOAD_SETTLE_MS, why);
    if (err)
        return err;
    for (size_t i = 0; i < c->storage_count; i++)
        bytes += c->storages[i].bytes;
    err = swn_load_worth_a_store(e, bytes) ? write_store(e, c, out, why) : -ENOENT;
    if (!err && e->config.verbose)
        swn_say("wrote the block store of %s (%s)", b->s->path, swn_format_mib(mib, bytes));
    swn_checkpoint_close(c, e->io);
    return err;
}

static void *run(void *arg)
{
    struct build *b = arg;
    struct swn_store *store = NULL;
    char why[SWN_ERRMSG] = "";
    swn_lock(&one);
    int err = make_store(b, &store, why);
    swn_load_built(b->e, b->s, b->fd, store, err, why);
    swn_unlock(&one);
    if (b->fd >= 0)
        b->e->io->close(b->e->io->ctx, b->fd);
    free(b);
    return NULL;
}

int swn_load_build(struct swn_engine *e, struct source *s, int fd)
{
    pthread_t thread;
    struct build *b = malloc(sizeof *b);
    if (!b)
        return -ENOMEM;
    *b = (struct build){e, s, reopen(e, fd)};
    atomic_store(&s->building, 1);
    int err = swn_thread_start(&thread, run, b);
    if (err) {
        atomic_store(&s->building, 0);
        if (b->fd >= 0)
            e->io->close(e->io->ctx, b->fd);
        free(b);
        return err;
    }
    pthread_setname_np(thread, "swn-store");
    pthread_detach(thread);
    return 0;
}

void swn_load_build_fork_child(void)
{
    pthread_mutex_init(&one, NULL);
}

int swn_load_await(struct source *s, const sigset_t *mask)
{
    const struct timespec look = {.tv_nsec = LOOK_MS * 1000000};
    for (int ms = 0; atomic_load(&s->building); ms += LOOK_MS) {
        char mib[32];
        if (ppoll(NULL, 0, &look, mask) < 0 && errno == EINTR) /* never restarted, whatever the handler's flags */
            return 0;
        if (ms >= EXPLAIN_MS && !atomic_exchange(&s->explained, 1))
            swn_say("%s is loaded for the first time: its block store (%s) is made in %s", s->path,
                    swn_format_mib(mib, s->identity.size), swn_engine_one.config.store_dir);
    }
    return 1;
}
