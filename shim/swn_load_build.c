/* The store of a checkpoint that is read for the first time, made by a thread of ours. Whoever reads the file waits for
 * it, as its reads are registered then, but holds no lock: others load meanwhile. And not where a signal was handled:
 * an interpreter notes a signal in its handler and acts on it when the call returns. Then that read is made as it
 * stands, the store is finished behind, and the next read finds it or waits for it again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "swn_cache.h"
#include "swn_load.h"
#include "swn_load_priv.h"
#include "swn_size.h"
#include "swn_thread.h"

/* How often the store is looked for, and after how long a program that stands still is explained. */
#define LOOK_MS 2
#define EXPLAIN_MS 5000

struct build {
    struct swn_engine *e;
    struct source *s;
    struct swn_checkpoint *c;
    uint64_t bytes;
    struct swn_cache_limits limits;
};

static void drop(struct build *b)
{
    for (size_t i = 0; i < b->limits.keep_count; i++)
        free((char *)(uintptr_t)b->limits.keep[i]);
    free((void *)(uintptr_t)b->limits.keep);
    swn_checkpoint_close(b->c, b->e->io);
    free(b);
}

static void *run(void *arg)
{
    struct build *b = arg;
    struct swn_engine *e = b->e;
    struct swn_store *store = NULL;
    char why[SWN_WHY] = "", mib[32];
    /* Narrow copies cost half of a store more to write, and half of the bytes less in every pass. */
    const struct swn_store_opts opts = {.buffer_bytes = (size_t)4 << 20, .copies = SWN_COPIES_NARROW};
    int err = swn_cache_build(&store, e->io, e->config.store_dir, &b->limits, b->c, &opts, why);
    if (!err && e->config.verbose)
        swn_say("wrote the block store of %s (%s)", b->s->path, swn_format_mib(mib, b->bytes));
    swn_load_built(e, b->s, b->c->files[0].fd, store, err, why);
    drop(b);
    return NULL;
}

int swn_load_build(struct swn_engine *e, struct source *s, struct swn_checkpoint *c, uint64_t bytes,
                   const struct swn_cache_limits *limits)
{
    pthread_t thread;
    struct build *b = malloc(sizeof *b);
    if (!b)
        return -ENOMEM;
    *b = (struct build){e, s, c, bytes, *limits};
    s->building_bytes = bytes;
    atomic_store(&s->building, 1);
    int err = swn_thread_start(&thread, run, b);
    if (err) {
        atomic_store(&s->building, 0);
        free(b);
        return err;
    }
    pthread_setname_np(thread, "swn-store");
    pthread_detach(thread);
    return 0;
}

int swn_load_await(struct source *s)
{
    for (int ms = 0; atomic_load(&s->building); ms += LOOK_MS) {
        char mib[32];
        if (poll(NULL, 0, LOOK_MS) < 0 && errno == EINTR) /* never restarted, whatever the handler's flags */
            return 0;
        if (ms >= EXPLAIN_MS && !atomic_exchange(&s->explained, 1))
            swn_say("%s is loaded for the first time: its block store (%s) is being made in %s", s->path,
                    swn_format_mib(mib, s->building_bytes), swn_engine_one.config.store_dir);
    }
    return 1;
}
