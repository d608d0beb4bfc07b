/* profiles/scratch_file.c - see scratch_file.h. */
#define _GNU_SOURCE
#include "profiles/scratch_file.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/huge_pages.h"
#include "base/clock.h"

#define STEP ((size_t)4 << 20)

/* Disks and file systems take shortcuts for zeros and for duplicates. */
static void fill(uint64_t *words, size_t n, uint64_t at)
{
    uint64_t x = 88172645463325252ULL + at;
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        words[i] = x;
    }
}

static int make_memory(struct swn_scratch *s, size_t bytes)
{
    size_t whole = (bytes + SWN_HUGE - 1) / SWN_HUGE * SWN_HUGE;
    int fd = memfd_create("swapnet-scratch", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = ftruncate(fd, (off_t)whole) ? -errno : 0;
    void *map = rc ? MAP_FAILED : swn_huge_map(fd, 0, whole, PROT_READ | PROT_WRITE);
    if (!rc && map == MAP_FAILED)
        rc = -errno;
    close(fd);
    if (rc)
        return rc;
    s->buf = map;
    s->mapped = whole;
    swn_huge_collapse(map, whole); /* fails where the pool's memory would have no huge pages, either */
    s->room = bytes;
    return 0;
}

int swn_scratch_open(struct swn_scratch *s, const struct swn_io *io, const char *dir, size_t bytes, size_t room,
                     double most_s)
{
    *s = (struct swn_scratch){0};
    int rc = make_memory(s, bytes < room ? bytes : room);
    if (!rc)
        rc = swn_spill_open(&s->file, io, dir);
    double begin = swn_seconds();
    while (!rc && s->bytes < bytes && (!s->bytes || !(most_s > 0) || swn_seconds() - begin < most_s)) {
        size_t step = s->room < STEP ? s->room : STEP, n = bytes - s->bytes < step ? bytes - s->bytes : step;
        uint64_t off = swn_spill_lay_out(s->file, n); /* one behind the other */
        fill(s->buf, n / sizeof(uint64_t), s->bytes);
        rc = swn_spill_write(s->file, s->buf, n, off);
        s->off = s->bytes ? s->off : off;
        s->bytes += rc ? 0 : n;
    }
    return rc;
}

void swn_scratch_close(struct swn_scratch *s)
{
    if (s->file)
        swn_spill_close(s->file);
    if (s->buf)
        munmap(s->buf, s->mapped);
    *s = (struct swn_scratch){0};
}

size_t swn_scratch_next(struct swn_scratch *s, size_t bytes)
{
    size_t at = s->next + bytes <= s->bytes ? s->next : 0;
    s->next = at + bytes;
    return at;
}

static void done(struct swn_fetch_job *job, int err)
{
    struct swn_scratch_read *r = job->user;
    r->err = err;
    r->back_s = swn_seconds();
    sem_post(&r->back);
}

int swn_scratch_submit(const struct swn_scratch *s, struct swn_fetch *queue, size_t at, size_t bytes,
                       struct swn_scratch_read *r)
{
    if (bytes > s->room || at > s->bytes || bytes > s->bytes - at)
        return -EINVAL;
    size_t place = at % s->room; /* one behind the other, as in a window, while there is room */
    *r = (struct swn_scratch_read){.job = {.file = &s->file->fetch,
                                           .off = s->off + at,
                                           .buf = (char *)s->buf + (bytes <= s->room - place ? place : 0),
                                           .len = bytes,
                                           .done = done,
                                           .user = r},
                                   .begun_s = swn_seconds()};
    sem_init(&r->back, 0, 0);
    int rc = swn_fetch_submit(queue, &r->job, 0);
    if (rc)
        sem_destroy(&r->back);
    return rc;
}

int swn_scratch_await(struct swn_scratch_read *r)
{
    while (sem_wait(&r->back) && errno == EINTR)
        ;
    sem_destroy(&r->back);
    return r->err;
}
