/* blocks/memory/fetch_queue.c - see fetch_queue.h. */
#define _GNU_SOURCE
#include "blocks/memory/fetch_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/thread.h"

#define PREAD_THREADS 3u
#define BLOCK ((size_t)4096)
#define STALLED_MS 500
/* The part of the bytes in flight that may belong to several jobs. */
#define TOGETHER_PART 4
/* With this part of the reads in flight the disk is still busy for a while. */
#define BUSY_PART 4
#define LOOK_MS 3
/* For reads in flight, and for as many pieces that have come and whose jobs have not been told. */
#define MOST_SLOTS (2 * SWN_FETCH_MOST_DEPTH)
/* How often EAGAIN is retried, a millisecond apart. */
#define LATER_MOST 100

enum { QUEUED, ACTIVE, DONE };

/* A part of a job in flight. */
struct piece {
    struct swn_fetch_job *job; /* NULL: slot free */
    struct piece *next_landed;
    size_t at, len;      /* within the job */
    uint64_t handed;     /* to the ring: the number of its request there */
    int buffered, later; /* later: how often the kernel has answered EAGAIN */
};

struct list {
    struct swn_fetch_job *first, **end;
};

struct swn_fetch {
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    const struct swn_io *io;
    size_t piece_bytes;
    unsigned depth, most_reads, slot_count, inflight;
    int paused, stopping, has_ring, started;
    enum swn_fetch_path path; /* of files that take direct reads */
    int was_buffered;         /* the last piece was not read so, as its file takes none */
    struct list queue[2];     /* urgent, normal: jobs not yet issued to the end */
    struct io_uring ring;
    struct piece slots[MOST_SLOTS];
    struct piece *landed, **landed_end; /* pieces that have come, and whose jobs have not been told */
    uint64_t handed, taken; /* requests that the ring has been given; of these, the first ones, the kernel */
    /* Pieces whose read has not ended, oldest first, their bytes, and the number issued after each. */
    struct flight {
        const struct piece *piece;
        size_t len, after;
        uint64_t since;
    } flights[MOST_SLOTS];
    unsigned flying;
    pthread_t threads[PREAD_THREADS];
    unsigned thread_count;
    struct swn_fetch_stats stats;
    uint64_t busy_since;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void push(struct list *l, struct swn_fetch_job *job)
{
    job->next = NULL;
    *l->end = job;
    l->end = &job->next;
}

static int unlink_job(struct list *l, struct swn_fetch_job *job)
{
    for (struct swn_fetch_job **link = &l->first; *link; link = &(*link)->next)
        if (*link == job) {
            *link = job->next;
            if (!job->next)
                l->end = link;
            return 1;
        }
    return 0;
}

/* How many bytes may be in flight if they belong to several jobs: little, but with large reads always the last one of a
 * job and the first one of the next, so that a disk which serves two at once is not idle in between. */
static size_t together(const struct swn_fetch *f)
{
    size_t two = f->depth > 1 ? 2 * f->piece_bytes : 0, part = f->depth * f->piece_bytes / TOGETHER_PART;
    return part > two ? part : two;
}

/* Whether a is the same job as b, or of the same group; b may be NULL. */
static int is_same(const struct swn_fetch_job *a, const struct swn_fetch_job *b)
{
    return a == b || (b && a->group && a->group == b->group);
}

/* Whether a number of further bytes of the job may be issued. At most the depth of the queue is in flight. Schedulers
 * that sort by sector (mq-deadline) let a read wait, up to half a second, while reads of later sectors keep coming. So
 * only a limited number is issued after a read that has not ended: least after one that a thread waits for, most if a
 * thread waits for the new one. A read that is out for longer than a scheduler explains has stalled, and blocks no
 * other.
 *
 * Jobs are wanted in the order in which they came, and a disk serves all that it has at once, so that the first job
 * would take as long as all of them. So each job is read alone, or with those of its group, except for jobs that are
 * small enough to be read together in a moment.
 */
static int may_issue(const struct swn_fetch *f, const struct swn_fetch_job *job, size_t len, int urgent)
{
    uint64_t now = f->flying ? now_ns() : 0;
    size_t whole = f->depth * f->piece_bytes, half = whole / 2, out = len;
    int beside = 0;
    for (unsigned i = 0; i < f->flying; i++) {
        const struct flight *it = &f->flights[i];
        size_t most = 2 * half * (urgent ? 2 : 1);
        if (it->piece->job->urgent)
            most = urgent ? 2 * half : half;
        if (now - it->since >= (uint64_t)STALLED_MS * 1000000u)
            continue;
        if (it->after + len > most)
            return 0;
        out += it->len;
        beside |= !is_same(it->piece->job, job);
    }
    return out <= (beside && !urgent ? together(f) : whole);
}

/* Milliseconds until the oldest read counts as stalled. */
static int stalls_in_ms(const struct swn_fetch *f)
{
    uint64_t out = f->flying ? (now_ns() - f->flights[0].since) / 1000000u : 0;
    return out < STALLED_MS ? (int)(STALLED_MS - out) + 1 : STALLED_MS;
}

/* How long nothing can be issued unless a read ends. A thread that waits for the ring cannot be woken, so the time is
 * short if an urgent job could be issued meanwhile. */
static int look_in_ms(const struct swn_fetch *f)
{
    int room = f->flying < f->most_reads && !f->queue[0].first && may_issue(f, NULL, BLOCK, 1);
    return room ? LOOK_MS : stalls_in_ms(f);
}

static void takes_off(struct swn_fetch *f, const struct piece *p)
{
    for (unsigned i = 0; i < f->flying; i++)
        f->flights[i].after += p->len;
    f->flights[f->flying++] = (struct flight){.piece = p, .len = p->len, .since = now_ns()};
}

static void lands(struct swn_fetch *f, const struct piece *p)
{
    unsigned i = 0;
    while (f->flights[i].piece != p)
        i++;
    f->flying--;
    memmove(&f->flights[i], &f->flights[i + 1], (f->flying - i) * sizeof f->flights[0]);
    if (!f->has_ring && (f->queue[0].first || f->queue[1].first))
        pthread_cond_broadcast(&f->work); /* other threads may have waited for the end of this read */
}

static int takes_no_direct(const struct swn_fetch *f, const struct swn_io_file *file)
{
    return file->direct_fd < 0 || file->refuses_direct || f->path == SWN_FETCH_BUFFERED;
}

/* The next piece to be read, or 0. Caller holds the lock. */
static int take_piece(struct swn_fetch *f, struct piece *p)
{
    if (f->paused || f->flying == f->most_reads)
        return 0;
    for (int q = 0; q < 2; q++) {
        struct swn_fetch_job *job = f->queue[q].first;
        if (!job || job->preparing)
            continue;
        size_t len = job->len - job->issued < f->piece_bytes ? job->len - job->issued : f->piece_bytes;
        if (!may_issue(f, job, len, !q))
            return 0;
        job->state = ACTIVE;
        p->job = job;
        p->at = job->issued;
        p->len = len;
        p->later = 0;
        p->buffered = takes_no_direct(f, job->file);
        job->issued += p->len;
        job->inflight++;
        if (job->issued == job->len)
            unlink_job(&f->queue[q], job);
        if (!f->inflight++)
            f->busy_since = now_ns();
        takes_off(f, p);
        return 1;
    }
    return 0;
}

/* The caller holds the lock; it is released meanwhile. */
static void prepare(struct swn_fetch *f, const struct piece *p)
{
    struct swn_fetch_job *job = p->job;
    if (!job->prepare || job->prepared >= p->at + p->len)
        return;
    uint64_t begin = now_ns();
    job->preparing = 1; /* no other thread reads into memory that is being prepared */
    while (job->prepared < p->at + p->len) {
        size_t from = job->prepared, left = job->len - from;
        size_t upto = from + (left < SWN_FETCH_PREPARE ? left : SWN_FETCH_PREPARE);
        pthread_mutex_unlock(&f->lock);
        job->prepare(job, from, upto);
        pthread_mutex_lock(&f->lock);
        job->prepared = upto;
    }
    job->preparing = 0;
    if (f->inflight == 1)
        f->busy_since += now_ns() - begin; /* the disk was not busy in this time */
    if (!f->has_ring)
        pthread_cond_broadcast(&f->work);
}

/* Evaluates the result of a piece's read. 1: the piece is finished (or has failed), 0: *p is the rest to be read. The
 * caller holds the lock. */
static int account(struct swn_fetch *f, struct piece *p, ssize_t res)
{
    struct swn_fetch_job *job = p->job;
    f->stats.reads++;
    if (res == -EINTR || (res == -EAGAIN && p->later++ < LATER_MOST))
        return 0;
    if (res < 0) {
        f->stats.errors++;
        if ((res == -EINVAL || res == -EOPNOTSUPP) && !p->buffered) {
            p->buffered = p->job->file->refuses_direct = 1; /* its file system takes none; another's may */
            return 0;
        }
        if (job->retries++ < SWN_IO_RETRIES)
            return 0;
        job->err = (int)res;
        return 1;
    }
    if (res == 0) {
        job->err = -ENODATA;
        return 1;
    }
    f->stats.bytes += (uint64_t)res;
    size_t got = (size_t)res;
    if (got < p->len && !p->buffered) {
        got = got / BLOCK * BLOCK; /* direct reads begin at whole blocks */
        if (!got)
            p->buffered = 1;
    }
    p->at += got;
    p->len -= got;
    return p->len == 0;
}

/* The contiguous bytes from the job's start that have been read. */
static size_t arrived(const struct swn_fetch *f, const struct swn_fetch_job *job)
{
    size_t upto = job->issued;
    for (unsigned i = 0; i < f->flying; i++)
        if (f->flights[i].piece->job == job && f->flights[i].piece->at < upto)
            upto = f->flights[i].piece->at;
    return upto;
}

/* Tells the job how many bytes have arrived, unless another thread is in that call, which then reports this as well.
 * The caller holds the lock; it is released meanwhile. */
static void tell(struct swn_fetch *f, struct swn_fetch_job *job)
{
    if (!job->arrived || job->telling)
        return;
    job->telling = 1;
    for (size_t upto; !job->err && (upto = arrived(f, job)) > job->told;) {
        job->told = upto;
        pthread_mutex_unlock(&f->lock);
        int err = job->arrived(job, upto);
        pthread_mutex_lock(&f->lock);
        job->err = job->err ? job->err : err;
    }
    job->telling = 0;
}

/* Ends a piece that has landed; calls done (without the lock) when it was the job's last. The caller holds the lock. */
static void settle(struct swn_fetch *f, struct piece *p)
{
    struct swn_fetch_job *job = p->job;
    __atomic_store_n(&f->was_buffered, takes_no_direct(f, job->file), __ATOMIC_RELAXED);
    if (p->buffered) {
        f->io->fadvise(f->io->ctx, job->file->fd, job->off, job->len, POSIX_FADV_DONTNEED);
    }
    p->job = NULL;
    tell(f, job);
    job->inflight--;
    if (job->err && job->issued < job->len) { /* the rest need not be read */
        unlink_job(&f->queue[0], job);
        unlink_job(&f->queue[1], job);
        job->issued = job->len;
    }
    int last = !job->inflight && job->issued == job->len;
    if (last) {
        job->state = DONE;
        pthread_mutex_unlock(&f->lock);
        job->done(job, job->err);
        pthread_mutex_lock(&f->lock);
    }
    if (!--f->inflight) {
        f->stats.busy_ns += now_ns() - f->busy_since;
        pthread_cond_broadcast(&f->idle);
    }
}

static void finish_piece(struct swn_fetch *f, struct piece *p)
{
    lands(f, p);
    settle(f, p);
}

static ssize_t read_piece(struct swn_fetch *f, const struct piece *p)
{
    const struct swn_fetch_job *job = p->job;
    return f->io->pread(f->io->ctx, p->buffered ? job->file->fd : job->file->direct_fd, (char *)job->buf + p->at,
                        p->len, job->off + p->at);
}

static void nap(void)
{
    struct timespec t = {.tv_nsec = 1000000};
    nanosleep(&t, NULL);
}

/* Reads one piece with pread, to its end. The caller holds the lock; it is released during the read. */
static void read_whole_piece(struct swn_fetch *f, struct piece *p)
{
    int finished = 0;
    while (!finished) {
        pthread_mutex_unlock(&f->lock);
        if (p->later)
            nap();
        ssize_t res = read_piece(f, p);
        pthread_mutex_lock(&f->lock);
        finished = account(f, p, res);
    }
    finish_piece(f, p);
}

/* Waits for a job, or until a read that blocks others counts as stalled. */
static void wait_for_work(struct swn_fetch *f)
{
    if (f->flying && (f->queue[0].first || f->queue[1].first))
        swn_cond_wait_until(&f->work, &f->lock, now_ns() + (uint64_t)stalls_in_ms(f) * 1000000u);
    else
        pthread_cond_wait(&f->work, &f->lock);
}

static void *pread_thread(void *arg)
{
    struct swn_fetch *f = arg;
    swn_thread_be_prompt();
    pthread_mutex_lock(&f->lock);
    for (;;) {
        struct piece p = {0};
        if (take_piece(f, &p)) {
            prepare(f, &p);
            read_whole_piece(f, &p);
        } else if (f->stopping) {
            break;
        } else {
            wait_for_work(f);
        }
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* Hands the piece to the ring; if the ring refuses it, this thread reads it at once. The caller holds the lock. */
static void issue(struct swn_fetch *f, unsigned slot)
{
    struct piece *p = &f->slots[slot];
    const struct swn_fetch_job *job = p->job;
    int err = f->io->ring_read(f->io->ctx, &f->ring, p->buffered ? job->file->fd : job->file->direct_fd,
                               (char *)job->buf + p->at, p->len, job->off + p->at, slot);
    if (err)
        read_whole_piece(f, p);
    else
        p->handed = ++f->handed;
}

static void issue_all(struct swn_fetch *f)
{
    for (unsigned i = 0; i < f->slot_count; i++)
        if (!f->slots[i].job && take_piece(f, &f->slots[i])) {
            prepare(f, &f->slots[i]);
            issue(f, i);
        }
}

static void settle_landed(struct swn_fetch *f)
{
    while (f->landed) {
        struct piece *p = f->landed;
        f->landed = p->next_landed;
        if (!f->landed)
            f->landed_end = &f->landed;
        settle(f, p);
    }
}

/* A piece that has come to its end waits for settle_landed. */
static void ring_complete(struct swn_fetch *f, uint64_t slot, int res)
{
    struct piece *p = &f->slots[slot];
    if (slot >= f->slot_count || !p->job)
        return;
    int knows_no_reads = res == -EINVAL && p->buffered; /* of a plain read at a multiple of a page: not this ring */
    if (account(f, p, res)) {
        lands(f, p);
        p->next_landed = NULL;
        *f->landed_end = p;
        f->landed_end = &p->next_landed;
    } else if (p->later || knows_no_reads || f->path != SWN_FETCH_URING) {
        settle_landed(f);
        read_whole_piece(f, p); /* the ring will not wait for it, so this thread does */
    } else {
        issue(f, (unsigned)slot);
    }
}

/* What a kernel that lacks some resource says. Everything else is for ever: a filter that the program has put before
 * the system call, or a descriptor that the program has closed. */
static int is_passing(int err)
{
    return err == -EAGAIN || err == -EBUSY || err == -ENOMEM || err == -ENOBUFS || err == -EINTR;
}

/* Gives requests to the kernel: the number that it has taken, or -errno. */
static int submit(struct swn_fetch *f)
{
    int taken = f->io->ring_submit(f->io->ctx, &f->ring);
    f->taken += taken > 0 ? (uint64_t)taken : 0;
    return taken;
}

/* Gives requests to the kernel and waits for one that ends, or only looks if they cannot be given. As ring_wait, or the
 * error of either. */
static int turn(struct swn_fetch *f, int wait_ms, uint64_t *tag, int *res)
{
    int taken = submit(f);
    int got = f->io->ring_wait(f->io->ctx, &f->ring, taken < 0 ? 0 : wait_ms, tag, res);
    return got == 1 || taken >= 0 ? got : taken;
}

/* Where the disk is about to have nothing to do, the next reads go out before the jobs are told of their bytes: these
 * compute checksums then, which takes a tenth of the time of a read from a fast disk. With reads still in flight that
 * can wait, so that more of the next ones go out together. */
static void keep_busy(struct swn_fetch *f)
{
    for (const struct piece *p = f->landed; p; p = p->next_landed)
        if (p->job->urgent)
            return; /* a thread waits for it */
    if (!f->landed || f->flying > f->depth / BUSY_PART)
        return;
    issue_all(f);
    pthread_mutex_unlock(&f->lock);
    submit(f); /* an error comes again with the next turn */
    pthread_mutex_lock(&f->lock);
}

/* A piece that the kernel has taken, or NULL. */
static const struct piece *taken_piece(const struct swn_fetch *f)
{
    for (unsigned i = 0; i < f->slot_count; i++)
        if (f->slots[i].job && f->slots[i].handed <= f->taken)
            return &f->slots[i];
    return NULL;
}

/* The ring serves no more. What the kernel has not taken is read here. What it has taken it may be writing into memory
 * now: so that is awaited, by looking at completions, which takes no system call of the ring's. The caller holds the
 * lock. */
static void leave_ring(struct swn_fetch *f)
{
    uint64_t tag;
    int res;
    __atomic_store_n(&f->path, SWN_FETCH_PREAD, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < f->slot_count; i++)
        if (f->slots[i].job && f->slots[i].handed > f->taken)
            read_whole_piece(f, &f->slots[i]);
    while (taken_piece(f)) {
        if (f->io->ring_wait(f->io->ctx, &f->ring, 0, &tag, &res) == 1) {
            ring_complete(f, tag, res);
            settle_landed(f);
            continue;
        }
        pthread_mutex_unlock(&f->lock);
        nap();
        pthread_mutex_lock(&f->lock);
    }
    f->io->ring_exit(f->io->ctx, &f->ring);
    f->has_ring = 0;
    for (; f->thread_count < PREAD_THREADS && !f->stopping; f->thread_count++) {
        if (swn_thread_start(&f->threads[f->thread_count], pread_thread, f))
            break; /* fewer threads suffice, too */
        pthread_setname_np(f->threads[f->thread_count], "swn-fetch");
    }
}

/* The first thread owns the ring: newer kernels allow one submitter only. */
static void *first_thread(void *arg)
{
    struct swn_fetch *f = arg;
    int ring = f->path == SWN_FETCH_URING && f->io->ring_setup(f->io->ctx, &f->ring, f->most_reads) == 0;
    pthread_mutex_lock(&f->lock);
    f->has_ring = ring;
    if (!ring && f->path == SWN_FETCH_URING)
        f->path = SWN_FETCH_PREAD;
    f->started = 1;
    pthread_cond_broadcast(&f->idle);
    if (!ring) {
        pthread_mutex_unlock(&f->lock);
        return pread_thread(f);
    }
    swn_thread_be_prompt();
    for (int in_vain = 0;;) {
        issue_all(f);
        if (!f->inflight) {
            if (f->stopping && !f->queue[0].first && !f->queue[1].first)
                break;
            if (f->paused || (!f->queue[0].first && !f->queue[1].first))
                pthread_cond_wait(&f->work, &f->lock);
            continue;
        }
        int wait_ms = look_in_ms(f);
        pthread_mutex_unlock(&f->lock);
        uint64_t tag;
        int res, got = turn(f, wait_ms, &tag, &res);
        in_vain = got < 0 ? in_vain + 1 : 0;
        if (got < 0 && is_passing(got))
            nap(); /* the requests in flight still have to be awaited */
        pthread_mutex_lock(&f->lock);
        if (got < 0 && (!is_passing(got) || in_vain > LATER_MOST)) {
            leave_ring(f);
            pthread_mutex_unlock(&f->lock);
            return pread_thread(f);
        }
        /* Handles all completions at once: they make room together, and neighbours that are issued together become
         * one request to the disk. */
        for (; got == 1; got = f->io->ring_wait(f->io->ctx, &f->ring, 0, &tag, &res))
            ring_complete(f, tag, res);
        keep_busy(f);
        settle_landed(f);
    }
    pthread_mutex_unlock(&f->lock);
    f->io->ring_exit(f->io->ctx, &f->ring);
    return NULL;
}

static void set_limits(struct swn_fetch *f, const struct swn_fetch_opts *opts)
{
    size_t piece = opts->piece_bytes / BLOCK * BLOCK;
    f->piece_bytes = piece ? piece : SWN_FETCH_PIECE;
    if (f->piece_bytes > SWN_FETCH_MOST_PIECE)
        f->piece_bytes = SWN_FETCH_MOST_PIECE;
    f->depth = opts->depth ? opts->depth : SWN_FETCH_DEPTH;
    if (f->depth > SWN_FETCH_MOST_DEPTH)
        f->depth = SWN_FETCH_MOST_DEPTH;
    /* Small layers need one read each: as many reads as there may be large ones would be too few for them. */
    f->most_reads = f->depth > SWN_FETCH_DEPTH ? f->depth : SWN_FETCH_DEPTH;
    f->slot_count = 2 * f->most_reads;
}

int swn_fetch_start(struct swn_fetch **out, const struct swn_fetch_opts *opts)
{
    struct swn_fetch *f = calloc(1, sizeof *f);
    if (!f)
        return -ENOMEM;
    pthread_mutex_init(&f->lock, NULL);
    swn_cond_init(&f->work);
    pthread_cond_init(&f->idle, NULL);
    f->io = opts->io;
    set_limits(f, opts);
    for (int q = 0; q < 2; q++)
        f->queue[q].end = &f->queue[q].first;
    f->landed_end = &f->landed;
    f->path = opts->best_path;
    if (swn_thread_start(&f->threads[0], first_thread, f)) {
        free(f);
        return -EAGAIN;
    }
    f->thread_count = 1;
    pthread_mutex_lock(&f->lock);
    while (!f->started)
        pthread_cond_wait(&f->idle, &f->lock);
    pthread_mutex_unlock(&f->lock);
    for (unsigned want = f->has_ring ? 1 : PREAD_THREADS; f->thread_count < want; f->thread_count++)
        if (swn_thread_start(&f->threads[f->thread_count], pread_thread, f))
            break; /* fewer threads suffice, too */
    for (unsigned i = 0; i < f->thread_count; i++)
        pthread_setname_np(f->threads[i], "swn-fetch");
    *out = f;
    return 0;
}

int swn_fetch_submit(struct swn_fetch *f, struct swn_fetch_job *job, int urgent)
{
    pthread_mutex_lock(&f->lock);
    int err = f->stopping ? -ESHUTDOWN : 0;
    if (!err) {
        job->issued = job->told = job->prepared = 0;
        job->telling = job->preparing = 0;
        job->inflight = job->retries = job->err = 0;
        job->state = QUEUED;
        job->urgent = urgent;
        push(&f->queue[!urgent], job);
        if (f->has_ring)
            pthread_cond_signal(&f->work);
        else
            pthread_cond_broadcast(&f->work);
    }
    pthread_mutex_unlock(&f->lock);
    return err;
}

void swn_fetch_promote(struct swn_fetch *f, struct swn_fetch_job *job)
{
    pthread_mutex_lock(&f->lock);
    if (job->state != DONE && !job->urgent) {
        job->urgent = 1;
        if (unlink_job(&f->queue[1], job))
            push(&f->queue[0], job);
        if (!f->has_ring)
            pthread_cond_broadcast(&f->work); /* the job may now be read before others that it had to wait for */
    }
    pthread_mutex_unlock(&f->lock);
}

int swn_fetch_cancel(struct swn_fetch *f, struct swn_fetch_job *job)
{
    pthread_mutex_lock(&f->lock);
    int ok = job->state == QUEUED && unlink_job(&f->queue[!job->urgent], job);
    pthread_mutex_unlock(&f->lock);
    return ok ? 0 : -EBUSY;
}

void swn_fetch_pause(struct swn_fetch *f)
{
    pthread_mutex_lock(&f->lock);
    f->paused++;
    while (f->inflight)
        pthread_cond_wait(&f->idle, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

void swn_fetch_resume(struct swn_fetch *f)
{
    pthread_mutex_lock(&f->lock);
    f->paused--;
    pthread_cond_broadcast(&f->work);
    pthread_mutex_unlock(&f->lock);
}

void swn_fetch_abandon(struct swn_fetch *f)
{
    if (f->has_ring)
        f->io->ring_exit(f->io->ctx, &f->ring);
    free(f); /* a thread that does not exist here may hold the mutex: it is not destroyed */
}

static void cancel_all(struct swn_fetch *f)
{
    for (int q = 0; q < 2; q++)
        for (;;) {
            struct swn_fetch_job *job = f->queue[q].first;
            while (job && job->state != QUEUED)
                job = job->next;
            if (!job)
                break;
            unlink_job(&f->queue[q], job);
            job->state = DONE;
            pthread_mutex_unlock(&f->lock);
            job->done(job, -ECANCELED);
            pthread_mutex_lock(&f->lock);
        }
}

void swn_fetch_stop(struct swn_fetch *f)
{
    pthread_mutex_lock(&f->lock);
    f->stopping = 1;
    f->paused = 0;
    cancel_all(f);
    pthread_cond_broadcast(&f->work);
    pthread_mutex_unlock(&f->lock);
    for (unsigned i = 0; i < f->thread_count; i++)
        pthread_join(f->threads[i], NULL);
    pthread_cond_destroy(&f->work);
    pthread_cond_destroy(&f->idle);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

unsigned swn_fetch_depth(const struct swn_fetch *f)
{
    return f->depth;
}

size_t swn_fetch_piece_bytes(const struct swn_fetch *f)
{
    return f->piece_bytes;
}

enum swn_fetch_path swn_fetch_path_now(const struct swn_fetch *f)
{
    if (__atomic_load_n(&f->was_buffered, __ATOMIC_RELAXED))
        return SWN_FETCH_BUFFERED;
    return __atomic_load_n(&((struct swn_fetch *)f)->path, __ATOMIC_RELAXED);
}

const char *swn_fetch_path_name(enum swn_fetch_path p)
{
    static const char *const names[] = {"io_uring+O_DIRECT", "pread+O_DIRECT", "pread+buffered"};
    return names[p];
}

void swn_fetch_stats_get(struct swn_fetch *f, struct swn_fetch_stats *out)
{
    pthread_mutex_lock(&f->lock);
    *out = f->stats;
    if (f->inflight)
        out->busy_ns += now_ns() - f->busy_since;
    pthread_mutex_unlock(&f->lock);
}
