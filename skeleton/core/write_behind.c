/* skeleton/core/write_behind.c - see write_behind.h. */
#define _GNU_SOURCE
#include "skeleton/core/write_behind.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "skeleton/core/plan.h"
#include "skeleton/core/residency_steps.h"
#include "skeleton/engine/section.h"

#define LOOK_NS 1000000000ull /* between two looks for dropped extents */

struct swn_pending_write {
    struct swn_range *range;
    int recalled; /* while it was under way: the writer gives its place back, since the engine may sleep for long */
    struct swn_extent_file *file;
    const void
        *from; /* may be unmapped once the write has been recalled: then garbage is written, or the write fails */
    size_t size;
    uint64_t off;
    int err;
    struct swn_pending_write *next;
};

/* Guarded by its lock; `departing` by the engine's. `file` changes under both. */
struct swn_write_behind {
    pthread_mutex_t lock;
    pthread_cond_t work, written;
    struct swn_pending_write *queue, **queue_end; /* the first one may be under way */
    struct swn_pending_write *done;
    _Atomic size_t done_count;
    size_t departing; /* bytes of ranges that have begun to leave */
    struct swn_extent_file *file;
    const struct swn_extent_file *busy_with; /* what the thread does without the lock */
    pthread_t thread;
};

static void give_place_back(struct swn_pending_write *d)
{
    swn_spill_drop(d->file, d->off, d->size);
    free(d);
}

static void *writer(void *arg)
{
    struct swn_write_behind *b = arg;
    swn_lock(&b->lock);
    for (;;) {
        struct swn_pending_write *d = b->queue;
        struct swn_extent_file *file = b->file;
        b->busy_with = file;
        swn_unlock(&b->lock);
        if (d && !(d->err = swn_spill_write_at(d->file, d->from, d->size, d->off)))
            d->file->written_bytes += d->size; /* recalled or not: the disk was busy with it */
        int idle = !d && !swn_spill_punch(file);
        swn_lock(&b->lock);
        b->busy_with = NULL;
        if (d) {
            if (!(b->queue = d->next))
                b->queue_end = &b->queue;
            if (d->recalled) {
                give_place_back(d);
            } else {
                d->next = b->done;
                b->done = d;
                atomic_fetch_add(&b->done_count, 1);
            }
            pthread_cond_signal(&b->written);
        } else if (idle && !b->queue) { /* not for ever: the arrival of dropped extents is not signalled */
            swn_cond_wait_until(&b->work, &b->lock, swn_now_ns() + LOOK_NS);
        }
    }
    return NULL;
}

static struct swn_write_behind *start(struct swn_engine *e)
{
    struct swn_write_behind *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    pthread_mutex_init(&b->lock, NULL);
    swn_cond_init(&b->work);
    pthread_cond_init(&b->written, NULL);
    b->queue_end = &b->queue;
    b->file = e->writes.spill;
    if (swn_thread_start(&b->thread, writer, b)) {
        free(b);
        return NULL;
    }
    pthread_setname_np(b->thread, "swn-spill");
    swn_spill_defer(e->writes.spill);
    return b;
}

void swn_write_behind_use(struct swn_engine *e, struct swn_extent_file *file)
{
    struct swn_write_behind *b = e->writes.behind;
    if (!b || b->file == file)
        return;
    swn_lock(&b->lock);
    b->file = file;
    swn_unlock(&b->lock);
    swn_spill_defer(file);
}

static int has_write_to(const struct swn_pending_write *d, const struct swn_extent_file *file)
{
    while (d && d->file != file)
        d = d->next;
    return d != NULL;
}

int swn_write_behind_uses(const struct swn_engine *e, const struct swn_extent_file *file)
{
    struct swn_write_behind *b = e->writes.behind;
    if (!b)
        return 0;
    swn_lock(&b->lock);
    int uses = b->file == file || b->busy_with == file || has_write_to(b->queue, file) || has_write_to(b->done, file);
    swn_unlock(&b->lock);
    return uses;
}

int swn_write_behind_start(struct swn_engine *e, struct swn_range *r)
{
    if (!e->writes.behind && !(e->writes.behind = start(e)))
        return -EAGAIN;
    struct swn_write_behind *b = e->writes.behind;
    swn_write_behind_use(e, e->writes.spill);
    struct swn_pending_write *d = calloc(1, sizeof *d);
    int err = d ? swn_residency_leave(&e->res, r) : -ENOMEM;
    if (err) {
        free(d);
        return err;
    }
    *d = (struct swn_pending_write){
        .range = r, .file = e->writes.spill, .from = (void *)r->addr, .size = swn_round_up(r->len, SWN_PAGE)};
    swn_residency_give_up_place(&e->res, r); /* a write that is recalled would leave it half written */
    d->off = swn_spill_place(d->file, d->size);
    swn_tensor_of(r)->pending_write = d;
    b->departing += r->size;
    swn_lock(&b->lock);
    *b->queue_end = d;
    b->queue_end = &d->next;
    pthread_cond_signal(&b->work);
    swn_unlock(&b->lock);
    return 0;
}

size_t swn_write_behind_bytes(const struct swn_engine *e)
{
    return e->writes.behind ? e->writes.behind->departing : 0;
}

static void arrived(struct swn_engine *e, struct swn_pending_write *d)
{
    struct swn_range *r = d->range;
    size_t size = r->size;
    int err = d->err;
    swn_tensor_of(r)->pending_write = NULL;
    e->writes.behind->departing -= size;
    if (!err && d->file != e->writes.spill)
        err = -EBUSY; /* the program has closed the file since: nothing more is mapped from it */
    if (err)
        swn_residency_stay(r);
    else if (!(err = swn_residency_left(&e->res, r, d->off)) && swn_is_weight(r))
        e->weights.resident_bytes -= size;
    if (err) { /* the thread that needs the room writes again, and reports that error */
        swn_spill_drop(d->file, d->off, d->size);
        swn_spill_again(e, err);
    } else {
        swn_note_spill(e, size, 0);
    }
    free(d);
}

static struct swn_pending_write *take_done(struct swn_write_behind *b)
{
    swn_lock(&b->lock);
    struct swn_pending_write *d = b->done;
    if (d) {
        b->done = d->next;
        atomic_fetch_sub(&b->done_count, 1);
    }
    swn_unlock(&b->lock);
    return d;
}

void swn_write_behind_complete(struct swn_engine *e)
{
    struct swn_write_behind *b = e->writes.behind;
    if (!b || !atomic_load_explicit(&b->done_count, memory_order_relaxed))
        return;
    for (struct swn_pending_write *d; (d = take_done(b));)
        arrived(e, d);
}

int swn_write_behind_wait(struct swn_engine *e)
{
    struct swn_write_behind *b = e->writes.behind;
    if (!b)
        return 0;
    swn_lock(&b->lock);
    int any = b->queue || b->done;
    while (b->queue && !b->done)
        pthread_cond_wait(&b->written, &b->lock);
    swn_unlock(&b->lock);
    swn_write_behind_complete(e);
    return any;
}

static int unlink_write(struct swn_pending_write **link, const struct swn_pending_write *d)
{
    while (*link && *link != d)
        link = &(*link)->next;
    if (!*link)
        return 0;
    *link = d->next;
    return 1;
}

/* Takes d from the writer, whose queue begins with what is under way. 0: that is d, and the writer disposes of it. */
static int take_back(struct swn_write_behind *b, struct swn_pending_write *d)
{
    int mine = 1;
    swn_lock(&b->lock);
    if (unlink_write(&b->done, d)) {
        atomic_fetch_sub(&b->done_count, 1);
    } else if (b->queue == d) {
        d->recalled = 1;
        mine = 0;
    } else if (unlink_write(&b->queue->next, d)) {
        for (b->queue_end = &b->queue; *b->queue_end;)
            b->queue_end = &(*b->queue_end)->next;
    }
    swn_unlock(&b->lock);
    return mine;
}

void swn_write_behind_cancel(struct swn_engine *e, struct swn_range *r)
{
    struct swn_pending_write *d = swn_tensor_of(r)->pending_write;
    if (!d)
        return;
    swn_tensor_of(r)->pending_write = NULL;
    e->writes.behind->departing -= r->size;
    swn_residency_stay(r);
    if (take_back(e->writes.behind, d))
        give_place_back(d);
}

void swn_write_behind_drain(struct swn_engine *e)
{
    while (swn_write_behind_wait(e))
        ;
}

void swn_write_behind_fork_child(struct swn_engine *e)
{
    e->writes.behind =
        NULL; /* a thread that does not exist here may hold its lock: the object is not destroyed, only forgotten */
}
