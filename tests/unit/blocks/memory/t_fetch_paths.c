/* Description: the fetch queue gives the right bytes exactly once on each of its three paths, and when any read fails.
 */
/* wraps: io_uring_register_probe */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <liburing.h>

#include "blocks/memory/fetch_queue.h"
#include "tests/unit/support/kernel_does.h"

#define FILE_BYTES ((size_t)6 << 20)
#define JOBS 24

static struct swn_io_file file;
static char *content;

/* A table whose N-th read fails, on whatever path it is made. */
static struct fault {
    _Atomic uint64_t reads;
    uint64_t at; /* 0: never */
    int for_ever, err, short_reads, no_ring, no_direct;
    _Atomic uint64_t fired;
} fault;

static int hit(void)
{
    uint64_t n = ++fault.reads;
    int now = fault.at && (n == fault.at || (fault.for_ever && n > fault.at));
    fault.fired += (uint64_t)now;
    return now;
}

/* A device that lets one read wait: the one at this offset is served when `served` is set. */
static struct starved {
    int on, served;
    uint64_t off;
    _Atomic int others, entered;
    pthread_mutex_t lock;
    pthread_cond_t cond;
} starved = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static void starve(uint64_t off)
{
    if (!starved.on)
        return;
    pthread_mutex_lock(&starved.lock);
    starved.others += off != starved.off;
    starved.entered |= off == starved.off;
    while (off == starved.off && !starved.served)
        pthread_cond_wait(&starved.cond, &starved.lock);
    pthread_mutex_unlock(&starved.lock);
}

static pthread_t ring_thread;

/* A ring that serves no more after some submissions, and the memory that the kernel may be writing into. */
static struct late_ring {
    int on, submits_left, err, wait_too;
    unsigned handed, taken;
    struct {
        char *buf;
        size_t len;
        unsigned number;
    } reads[256]; /* by tag; len 0: none */
} late_ring;

static int late_ring_read(void *ctx, struct io_uring *ring, int fd, void *buf, size_t len, uint64_t off, uint64_t tag)
{
    int err = swn_io_sys.ring_read(ctx, ring, fd, buf, len, off, tag);
    if (!err && late_ring.on) {
        late_ring.reads[tag].buf = buf;
        late_ring.reads[tag].len = len;
        late_ring.reads[tag].number = ++late_ring.handed;
    }
    return err;
}

static int late_ring_submit(void *ctx, struct io_uring *ring)
{
    if (late_ring.on && late_ring.submits_left-- <= 0)
        return late_ring.err;
    int taken = swn_io_sys.ring_submit(ctx, ring);
    late_ring.taken += taken > 0 ? (unsigned)taken : 0;
    return taken;
}

static void not_into_the_kernels(const char *buf, size_t len)
{
    for (unsigned i = 0; late_ring.on && i < 256; i++)
        assert_false(late_ring.reads[i].len && late_ring.reads[i].number <= late_ring.taken &&
                     buf < late_ring.reads[i].buf + late_ring.reads[i].len && late_ring.reads[i].buf < buf + len);
}

static ssize_t faulty_pread(void *ctx, int fd, void *buf, size_t len, uint64_t off)
{
    if (pthread_equal(pthread_self(), ring_thread)) /* others cannot look while it changes */
        not_into_the_kernels(buf, len);
    starve(off);
    if (fault.no_direct && fd == file.direct_fd)
        return -EINVAL;
    if (hit())
        return fault.err;
    return swn_io_sys.pread(ctx, fd, buf, fault.short_reads && len > 8192 ? len / 2 / 4096 * 4096 : len, off);
}

static int faulty_ring_setup(void *ctx, struct io_uring *ring, unsigned entries)
{
    ring_thread = pthread_self();
    return fault.no_ring ? -EPERM : swn_io_sys.ring_setup(ctx, ring, entries);
}

static int faulty_ring_wait(void *ctx, struct io_uring *ring, int timeout_ms, uint64_t *tag, int *res)
{
    if (late_ring.on && late_ring.wait_too && timeout_ms && late_ring.submits_left <= 0)
        return late_ring.err;
    int got = swn_io_sys.ring_wait(ctx, ring, timeout_ms, tag, res);
    if (got == 1 && late_ring.on)
        late_ring.reads[*tag].len = 0;
    if (got == 1 && hit())
        *res = fault.err;
    else if (got == 1 && fault.short_reads && *res > 8192)
        *res = *res / 2 / 4096 * 4096;
    return got;
}

static struct swn_io table;

struct job {
    struct swn_fetch_job job;
    pthread_mutex_t *lock;
    pthread_cond_t *cond;
    int *left, calls, err;
    size_t told;
};

/* The bytes are there when the job is told so; the third such word of some jobs is that they are no good. */
static int arrived(struct swn_fetch_job *j, size_t upto)
{
    struct job *job = j->user;
    assert_true(upto > job->told && upto <= j->len && job->calls == 0);
    assert_memory_equal((char *)j->buf + job->told, content + j->off + job->told, upto - job->told);
    job->told = upto;
    return j->off % 5 == 0 && upto > j->len / 2 ? -EILSEQ : 0;
}

static void done(struct swn_fetch_job *j, int err)
{
    struct job *job = j->user;
    pthread_mutex_lock(job->lock);
    job->calls++;
    job->err = err;
    --*job->left;
    pthread_cond_broadcast(job->cond);
    pthread_mutex_unlock(job->lock);
}

/* Runs JOBS random jobs; each must be done once, with the right bytes or an error. Returns how many failed. */
static int run_jobs(enum swn_fetch_path best, enum swn_fetch_path *path)
{
    static struct job jobs[JOBS];
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    int left = JOBS, failed = 0;
    struct swn_fetch *f;
    struct swn_fetch_opts opts = {.io = &table, .best_path = best, .piece_bytes = (size_t)256 << 10};
    assert_int_equal(swn_fetch_start(&f, &opts), 0);
    for (int i = 0; i < JOBS; i++) {
        size_t pages = FILE_BYTES / 4096, at = (size_t)rand() % pages,
               n = 1 + (size_t)rand() % (pages - at < 400 ? pages - at : 400);
        jobs[i] = (struct job){.lock = &lock, .cond = &cond, .left = &left};
        jobs[i].job =
            (struct swn_fetch_job){.file = &file, .off = at * 4096, .len = n * 4096, .done = done, .user = &jobs[i]};
        jobs[i].job.arrived = i % 2 ? arrived : NULL;
        jobs[i].job.buf = aligned_alloc(4096, n * 4096);
        memset(jobs[i].job.buf, 0xEE, n * 4096);
        assert_int_equal(swn_fetch_submit(f, &jobs[i].job, i % 3 == 0), 0);
        if (i % 4 == 0)
            swn_fetch_promote(f, &jobs[i].job);
        if (i == JOBS / 2) {
            swn_fetch_pause(f);
            swn_fetch_resume(f);
        }
    }
    pthread_mutex_lock(&lock);
    while (left)
        pthread_cond_wait(&cond, &lock);
    pthread_mutex_unlock(&lock);
    *path = swn_fetch_path_now(f);
    swn_fetch_stop(f);
    for (int i = 0; i < JOBS; i++) {
        assert_int_equal(jobs[i].calls, 1);
        if (!jobs[i].err)
            assert_memory_equal(jobs[i].job.buf, content + jobs[i].job.off, jobs[i].job.len);
        if (jobs[i].job.arrived && !jobs[i].err)
            assert_true(jobs[i].told == jobs[i].job.len && jobs[i].job.off % 5 != 0);
        failed += jobs[i].err != 0 && jobs[i].err != -EILSEQ;
        free(jobs[i].job.buf);
    }
    return failed;
}

static void reset(void)
{
    memset(&fault, 0, sizeof fault);
    memset(&late_ring, 0, sizeof late_ring);
    fault.err = -EIO;
    file.refuses_direct = 0;
}

static void paths(void **state)
{
    (void)state;
    enum swn_fetch_path path;
    for (int i = 0; i < 3; i++) {
        reset();
        fault.short_reads = i == 2;
        assert_int_equal(run_jobs(SWN_FETCH_URING, &path), 0);
        fault.no_ring = 1;
        assert_int_equal(run_jobs(SWN_FETCH_URING, &path), 0);
        assert_int_equal(path, file.direct_fd < 0 ? SWN_FETCH_BUFFERED : SWN_FETCH_PREAD);
        fault.no_direct = 1;
        assert_int_equal(run_jobs(SWN_FETCH_URING, &path), 0);
        assert_int_equal(path, SWN_FETCH_BUFFERED);
        assert_int_equal(run_jobs(SWN_FETCH_BUFFERED, &path), 0);
    }
    assert_string_equal(swn_fetch_path_name(SWN_FETCH_URING), "io_uring+O_DIRECT");
}

/* One file after the other, by one queue: which way was each read? */
static enum swn_fetch_path read_from(struct swn_fetch *f, struct swn_io_file *from)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    int left = 1;
    struct job job = {.lock = &lock, .cond = &cond, .left = &left};
    job.job = (struct swn_fetch_job){.file = from, .len = 4096, .done = done, .user = &job};
    job.job.buf = aligned_alloc(4096, 4096);
    assert_int_equal(swn_fetch_submit(f, &job.job, 1), 0);
    pthread_mutex_lock(&lock);
    while (left)
        pthread_cond_wait(&cond, &lock);
    pthread_mutex_unlock(&lock);
    assert_int_equal(job.err, 0);
    assert_memory_equal(job.job.buf, content, 4096);
    free(job.job.buf);
    return swn_fetch_path_now(f);
}

static void buffered_file_is_its_own_matter(void **state)
{
    (void)state;
    struct swn_fetch *f;
    struct swn_fetch_opts opts = {.io = &table, .best_path = SWN_FETCH_PREAD};
    reset();
    struct swn_io_file without = {.fd = file.fd, .direct_fd = -1},
                       refuses = {.fd = file.fd, .direct_fd = file.direct_fd};
    if (file.direct_fd < 0)
        skip();
    assert_int_equal(swn_fetch_start(&f, &opts), 0);
    assert_int_equal(read_from(f, &file), SWN_FETCH_PREAD);
    assert_int_equal(read_from(f, &without), SWN_FETCH_BUFFERED);
    assert_int_equal(read_from(f, &file), SWN_FETCH_PREAD);
    fault.no_direct = 1;
    assert_int_equal(read_from(f, &refuses), SWN_FETCH_BUFFERED);
    fault.no_direct = 0;
    assert_int_equal(read_from(f, &file), SWN_FETCH_PREAD);
    assert_true(refuses.refuses_direct && !file.refuses_direct);
    swn_fetch_stop(f);
}

static int no_probe;
int __real_io_uring_register_probe(struct io_uring *ring, struct io_uring_probe *p, unsigned nr);
int __wrap_io_uring_register_probe(struct io_uring *ring, struct io_uring_probe *p, unsigned nr);
int __wrap_io_uring_register_probe(struct io_uring *ring, struct io_uring_probe *p, unsigned nr)
{
    return no_probe ? -EINVAL : __real_io_uring_register_probe(ring, p, nr);
}

/* 5.1 to 5.5: there are rings, and they do not know this kind of read. */
static void old_rings_are_not_used(void **state)
{
    (void)state;
    struct io_uring ring;
    if (!swn_probe_rings())
        skip();
    assert_int_equal(swn_io_sys.ring_setup(swn_io_sys.ctx, &ring, 8), 0);
    swn_io_sys.ring_exit(swn_io_sys.ctx, &ring);
    no_probe = 1;
    assert_true(swn_io_sys.ring_setup(swn_io_sys.ctx, &ring, 8) < 0);
    no_probe = 0;
}

/* The N-th read fails, once and for ever after, on the ring and on the threads. */
static void nth_failure(void **state)
{
    (void)state;
    enum swn_fetch_path path;
    for (int no_ring = 0; no_ring < 2; no_ring++)
        for (int for_ever = 0; for_ever < 2; for_ever++)
            for (uint64_t n = 1;; n += 1 + n / 8) {
                reset();
                fault.no_ring = no_ring;
                fault.for_ever = for_ever;
                fault.at = n;
                int failed = run_jobs(SWN_FETCH_URING, &path);
                if (!fault.fired)
                    break;
                if (!for_ever)
                    assert_int_equal(failed, 0); /* one failure is retried */
                else if (n == 1)
                    assert_int_equal(failed, JOBS);
            }
}

/* The program forbids the system call, or closes the ring's descriptor, when some reads are under way. */
static void ring_fails_late(void **state)
{
    (void)state;
    static const int errs[] = {-EPERM, -EBADF, -ENOSYS, -EAGAIN};
    enum swn_fetch_path path;
    for (unsigned i = 0; i < sizeof errs / sizeof *errs; i++)
        for (int n = 0; n < 12; n += 1 + n / 3)
            for (int wait_too = 0; wait_too < 2; wait_too++) {
                reset();
                late_ring = (struct late_ring){.on = 1, .submits_left = n, .err = errs[i], .wait_too = wait_too};
                assert_int_equal(run_jobs(SWN_FETCH_URING, &path), 0);
                assert_int_equal(path, file.direct_fd < 0 ? SWN_FETCH_BUFFERED : SWN_FETCH_PREAD);
            }
    reset();
}

static void interrupted(void **state)
{
    (void)state;
    enum swn_fetch_path path;
    for (uint64_t n = 1; n < 30; n += 7)
        for (int i = 0; i < 4; i++) {
            reset();
            fault.no_ring = i % 2;
            fault.err = i / 2 ? -EINTR : -EAGAIN;
            fault.at = n;
            assert_int_equal(run_jobs(SWN_FETCH_URING, &path), 0);
            assert_int_equal(fault.fired, 1);
        }
}

/* A kernel that always says "later" ends the job on every path. */
static void later_for_ever(void **state)
{
    (void)state;
    enum swn_fetch_path path;
    for (int no_ring = 0; no_ring < 2; no_ring++) {
        reset();
        fault.no_ring = no_ring;
        fault.err = -EAGAIN;
        fault.for_ever = 1;
        fault.at = 1;
        assert_int_equal(run_jobs(SWN_FETCH_URING, &path), JOBS);
    }
}

/* Reads so far, once no more are made. */
static int settled_others(void)
{
    for (int before = -1; before != starved.others; usleep(100000))
        before = starved.others;
    return starved.others;
}

/* Schedulers of disks that sort by sector let a read wait as long as other reads come in: only a limited number may. */
static void overtaken(void **state)
{
    (void)state;
    enum { DEPTH = 8 };
    for (int urgent = 0; urgent < 3; urgent++) { /* 2: a thread began to wait for it when it was under way */
        reset();
        fault.no_ring = 1;
        starved.served = 0;
        starved.others = 0;
        starved.entered = 0;
        starved.off = FILE_BYTES / 2;
        starved.on = 1;
        struct swn_fetch *f;
        struct swn_fetch_opts opts = {.io = &table, .depth = DEPTH, .piece_bytes = 4096};
        pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
        int left = 2;
        struct job jobs[2];
        assert_int_equal(swn_fetch_start(&f, &opts), 0);
        for (int i = 0; i < 2; i++) {
            jobs[i] = (struct job){.lock = &lock, .cond = &cond, .left = &left};
            jobs[i].job = (struct swn_fetch_job){.file = &file,
                                                 .off = i ? 0 : starved.off,
                                                 .len = i ? 4096 * 100 : 4096,
                                                 .buf = aligned_alloc(4096, 4096 * 100),
                                                 .done = done,
                                                 .user = &jobs[i]};
        }
        assert_int_equal(swn_fetch_submit(f, &jobs[0].job, urgent == 1), 0);
        while (!starved.entered)
            usleep(1000);
        if (urgent == 2)
            swn_fetch_promote(f, &jobs[0].job);
        assert_int_equal(swn_fetch_submit(f, &jobs[1].job, 0), 0);
        assert_in_range(settled_others(), 1, urgent ? DEPTH / 2 : DEPTH);
        pthread_mutex_lock(&starved.lock);
        starved.served = 1;
        pthread_cond_broadcast(&starved.cond);
        pthread_mutex_unlock(&starved.lock);
        pthread_mutex_lock(&lock);
        while (left)
            pthread_cond_wait(&cond, &lock);
        pthread_mutex_unlock(&lock);
        swn_fetch_stop(f);
        for (int i = 0; i < 2; i++) {
            assert_memory_equal(jobs[i].job.buf, content + jobs[i].job.off, jobs[i].job.len);
            free(jobs[i].job.buf);
        }
    }
    starved.on = 0;
}

static void count(struct swn_fetch_job *j, int err)
{
    ((int *)j->user)[0]++;
    ((int *)j->user)[1] = err;
}

static void truncated_and_cancelled(void **state)
{
    (void)state;
    reset();
    struct swn_fetch *f;
    struct swn_fetch_opts opts = {.io = &table};
    int end[2] = {0, 0}, taken[2] = {0, 0}, left[2] = {0, 0};
    void *buf = aligned_alloc(4096, 8192);
    assert_int_equal(swn_fetch_start(&f, &opts), 0);
    struct swn_fetch_job beyond = {
        .file = &file, .off = FILE_BYTES - 4096, .buf = buf, .len = 8192, .done = count, .user = end};
    assert_int_equal(swn_fetch_submit(f, &beyond, 0), 0);
    swn_fetch_pause(f);
    while (!__atomic_load_n(&end[0], __ATOMIC_ACQUIRE)) { /* it may not have begun before the pause */
        swn_fetch_resume(f);
        usleep(1000);
        swn_fetch_pause(f);
    }
    assert_int_equal(end[1], -ENODATA);
    struct swn_fetch_job a = {.file = &file, .buf = buf, .len = 4096, .done = count, .user = taken}, b = a;
    b.user = left;
    assert_int_equal(swn_fetch_submit(f, &a, 0), 0);
    assert_int_equal(swn_fetch_submit(f, &b, 0), 0);
    assert_int_equal(swn_fetch_cancel(f, &a), 0);
    swn_fetch_stop(f);
    assert_int_equal(taken[0], 0);
    assert_int_equal(left[0], 1);
    free(buf);
}

/* Memory is made ready part by part, before anything is read into it. */
static struct {
    _Atomic size_t bytes;
    _Atomic unsigned parts, wrong;
} ready;

static void prepare(struct swn_fetch_job *j, size_t from, size_t upto)
{
    size_t before = atomic_fetch_add(&ready.bytes, upto - from);
    int right = from % SWN_FETCH_PREPARE == 0 && upto <= j->len && before == from;
    right = right && (upto - from == SWN_FETCH_PREPARE || (upto == j->len && upto > from));
    for (size_t at = from; at < upto; at += 4096)
        right = right && ((unsigned char *)j->buf)[at] == 0xEE;
    ready.wrong += !right;
    ready.parts++;
}

static void prepared(void **state)
{
    (void)state;
    size_t len = 2 * SWN_FETCH_PREPARE + FILE_BYTES / 2;
    assert_int_equal(ftruncate(file.fd, (off_t)len), 0); /* zeros behind the content */
    char *buf = aligned_alloc(4096, len);
    for (int path = 0; path < 3; path++) {
        reset();
        fault.no_ring = path > 0;
        fault.no_direct = path > 1;
        memset(buf, 0xEE, len);
        ready.bytes = 0;
        ready.parts = 0;
        ready.wrong = 0;
        struct swn_fetch *f;
        struct swn_fetch_opts opts = {.io = &table, .best_path = SWN_FETCH_URING};
        assert_int_equal(swn_fetch_start(&f, &opts), 0);
        pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
        int left = 1;
        struct job job = {.lock = &lock, .cond = &cond, .left = &left};
        job.job = (struct swn_fetch_job){
            .file = &file, .len = len, .buf = buf, .done = done, .prepare = prepare, .user = &job};
        assert_int_equal(swn_fetch_submit(f, &job.job, 0), 0);
        pthread_mutex_lock(&lock);
        while (left)
            pthread_cond_wait(&cond, &lock);
        pthread_mutex_unlock(&lock);
        swn_fetch_stop(f);
        assert_true(!job.err && ready.parts == 3 && ready.bytes == len && !ready.wrong);
        assert_memory_equal(buf, content, FILE_BYTES);
        assert_true(!buf[FILE_BYTES] && !buf[len - 1]);
    }
    free(buf);
    assert_int_equal(ftruncate(file.fd, (off_t)FILE_BYTES), 0);
}

int main(void)
{
    char path[512];
    const char *dir = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/swn-fetch-XXXXXX", dir ? dir : "/var/tmp");
    file.fd = mkstemp(path);
    file.direct_fd = open(path, O_RDONLY | O_DIRECT);
    unlink(path);
    content = aligned_alloc(4096, FILE_BYTES);
    for (size_t i = 0; i < FILE_BYTES; i++)
        content[i] = (char)(i * 2654435761u >> 13);
    if (file.fd < 0 || pwrite(file.fd, content, FILE_BYTES, 0) != (ssize_t)FILE_BYTES || fsync(file.fd))
        return 1;
    table = swn_io_sys;
    table.pread = faulty_pread;
    table.ring_setup = faulty_ring_setup;
    table.ring_wait = faulty_ring_wait;
    table.ring_read = late_ring_read;
    table.ring_submit = late_ring_submit;
    alarm(300); /* a hang is a failure */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths),
        cmocka_unit_test(nth_failure),
        cmocka_unit_test(buffered_file_is_its_own_matter),
        cmocka_unit_test(old_rings_are_not_used),
        cmocka_unit_test(ring_fails_late),
        cmocka_unit_test(interrupted),
        cmocka_unit_test(truncated_and_cancelled),
        cmocka_unit_test(overtaken),
        cmocka_unit_test(later_for_ever),
        cmocka_unit_test(prepared),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    free(content);
    return rc;
}
