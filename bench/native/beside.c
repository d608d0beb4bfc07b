/* beside.c - reads beside a computation: asked for by the thread that computes, never waited for, thrown away.
 *
 * bench/lib/beside.py calls this at the boundaries of a model's layers. Reads are O_DIRECT, of 1 MiB each, go round and
 * round a file, and end up in huge pages that nobody looks at. There is no thread here: the caller submits and reaps.
 * What finds no room in the queue stays owed until the next call. Functions return 0, or -errno; none may be called
 * by two threads at once.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define MIB ((size_t)1 << 20)
#define DEPTH 16u
/* Of the largest request. Where a layer computes for so long that 16 MiB are there well before the next boundary, what
 * is owed goes in fewer and larger requests, or the disk would idle for want of boundaries. */
#define MOST_BYTES (4 * MIB)

static struct io_uring ring;
static int fd = -1;
static unsigned char *buffer;
static size_t piece_bytes, file_bytes, at_bytes;
static uint64_t owed_bytes, asked_bytes;
static unsigned slots[DEPTH], free_slots;
static size_t length[DEPTH];
static int failed;

EXPORTED int beside_open(const char *path);
EXPORTED int beside_ask(uint64_t bytes);
EXPORTED int beside_settle(uint64_t most_owed);
EXPORTED uint64_t beside_asked(void);

/* The file, in whole pieces of 1 MiB, or in one where it is smaller. */
int beside_open(const char *path)
{
    struct stat st;
    fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st))
        return -errno;
    piece_bytes = (size_t)st.st_size < MIB ? (size_t)st.st_size / 4096 * 4096 : MIB;
    if (!piece_bytes)
        return -EINVAL;
    file_bytes = (size_t)st.st_size / piece_bytes * piece_bytes;
    buffer = aligned_alloc(2 * MIB, DEPTH * MOST_BYTES);
    if (!buffer)
        return -ENOMEM;
    madvise(buffer, DEPTH * MOST_BYTES, MADV_HUGEPAGE);
    madvise(buffer, DEPTH * MOST_BYTES, 23); /* MADV_POPULATE_WRITE: page faults are nobody's reading */
    for (unsigned i = 0; i < DEPTH; i++)
        slots[i] = i;
    free_slots = DEPTH;
    return io_uring_queue_init(DEPTH, &ring, 0);
}

static void reap(void)
{
    struct io_uring_cqe *cqe;
    while (!io_uring_peek_cqe(&ring, &cqe)) {
        unsigned slot = (unsigned)(uintptr_t)io_uring_cqe_get_data(cqe);
        if (cqe->res != (int)length[slot])
            failed = cqe->res < 0 ? cqe->res : -EIO;
        slots[free_slots++] = slot;
        io_uring_cqe_seen(&ring, cqe);
    }
}

/* Of the next request: one piece, or more where what is owed has no room in the free slots otherwise. */
static size_t next_length(void)
{
    size_t each = (size_t)(owed_bytes / free_slots) / piece_bytes * piece_bytes;
    if (each < piece_bytes)
        each = piece_bytes;
    if (each > MOST_BYTES)
        each = MOST_BYTES / piece_bytes * piece_bytes;
    return each < file_bytes - at_bytes ? each : file_bytes - at_bytes;
}

static int submit(void)
{
    unsigned prepared = 0;
    while (owed_bytes >= piece_bytes && free_slots) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
        if (!sqe)
            break;
        size_t bytes = next_length();
        unsigned slot = slots[--free_slots];
        length[slot] = bytes;
        io_uring_prep_read(sqe, fd, buffer + slot * MOST_BYTES, (unsigned)bytes, at_bytes);
        io_uring_sqe_set_data(sqe, (void *)(uintptr_t)slot);
        at_bytes = (at_bytes + bytes) % file_bytes;
        owed_bytes -= bytes;
        asked_bytes += bytes;
        prepared++;
    }
    int rc = prepared ? io_uring_submit(&ring) : 0;
    return rc < 0 ? rc : failed;
}

/* So many bytes more are to be read: as many of them as the queue has room for are asked for now. */
int beside_ask(uint64_t bytes)
{
    owed_bytes += bytes;
    if (free_slots < DEPTH)
        reap();
    return submit();
}

/* Wait, but only for room in the queue, until no more than this is owed. */
int beside_settle(uint64_t most_owed)
{
    int rc = beside_ask(0);
    while (!rc && owed_bytes > most_owed && owed_bytes >= piece_bytes) {
        struct io_uring_cqe *cqe;
        rc = io_uring_wait_cqe(&ring, &cqe);
        if (!rc || rc == -EINTR)
            rc = beside_ask(0);
    }
    return rc;
}

uint64_t beside_asked(void)
{
    return asked_bytes;
}
