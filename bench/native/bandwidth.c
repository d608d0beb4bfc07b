/* bandwidth.c - how fast a file can be read past the page cache: what a perfect fetcher would get right now.
 *
 *     bench-bandwidth FILE [BYTES]
 *
 * Reads of 1 MiB, 16 of them in flight, into huge pages where the kernel has them: deeper queues and larger reads
 * gained nothing on the disks that were tried. Without io_uring, as many threads with a read each. A file that is
 * smaller than BYTES is read over and over. Prints bytes per second.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define DEPTH 16u
#define MOST_BYTES ((size_t)1 << 40)

static int fd;
static size_t file_pieces, piece_bytes, pieces, next_piece;
static char *buffer;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "bench-bandwidth: %s\n", what);
    exit(1);
}

static off_t offset_of(size_t piece)
{
    return (off_t)(piece % file_pieces * piece_bytes);
}

/* 0, or -1 where there is no ring to be had. */
static int by_ring(void)
{
    struct io_uring ring;
    if (io_uring_queue_init(DEPTH, &ring, 0))
        return -1;
    size_t issued = 0, done = 0, free_slots = DEPTH;
    unsigned slots[DEPTH];
    for (unsigned i = 0; i < DEPTH; i++)
        slots[i] = i;
    while (done < pieces) {
        while (issued < pieces && free_slots) {
            struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
            if (!sqe)
                break;
            unsigned slot = slots[--free_slots];
            io_uring_prep_read(sqe, fd, buffer + slot * piece_bytes, (unsigned)piece_bytes,
                               (uint64_t)offset_of(issued++));
            io_uring_sqe_set_data(sqe, (void *)(uintptr_t)slot);
        }
        if (io_uring_submit_and_wait(&ring, 1) < 0)
            fail("the ring refuses");
        struct io_uring_cqe *cqe;
        while (!io_uring_peek_cqe(&ring, &cqe)) {
            if (cqe->res != (int)piece_bytes)
                fail("a read failed or came short");
            slots[free_slots++] = (unsigned)(uintptr_t)io_uring_cqe_get_data(cqe);
            io_uring_cqe_seen(&ring, cqe);
            done++;
        }
    }
    io_uring_queue_exit(&ring);
    return 0;
}

static void *reader(void *own)
{
    for (;;) {
        pthread_mutex_lock(&lock);
        size_t piece = next_piece++;
        pthread_mutex_unlock(&lock);
        if (piece >= pieces)
            return NULL;
        if (pread(fd, own, piece_bytes, offset_of(piece)) != (ssize_t)piece_bytes)
            fail("a read failed or came short");
    }
}

static void by_threads(void)
{
    pthread_t threads[DEPTH];
    for (unsigned i = 0; i < DEPTH; i++)
        if (pthread_create(&threads[i], NULL, reader, buffer + i * piece_bytes))
            fail("no thread");
    for (unsigned i = 0; i < DEPTH; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 512 * MIB;
    if (argc < 2 || !bytes || bytes > MOST_BYTES)
        fail("usage: bench-bandwidth FILE [BYTES]");
    fd = open(argv[1], O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0 && (fd = open(argv[1], O_RDONLY | O_CLOEXEC)) >= 0)
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    struct stat st;
    if (fd < 0 || fstat(fd, &st))
        fail("the file cannot be opened");
    piece_bytes = (size_t)st.st_size < MIB ? (size_t)st.st_size / 4096 * 4096 : MIB;
    if (!piece_bytes)
        fail("the file is too small to measure with");
    file_pieces = (size_t)st.st_size / piece_bytes;
    pieces = (bytes + piece_bytes - 1) / piece_bytes;
    size_t room = DEPTH * MIB;
    buffer = aligned_alloc(2 * MIB, room);
    if (!buffer)
        fail("no memory");
    madvise(buffer, room, MADV_HUGEPAGE);
    madvise(buffer, room, 23); /* MADV_POPULATE_WRITE: page faults are nobody's reading */
    double began = now_s();
    if (by_ring())
        by_threads();
    printf("%.0f\n", (double)(pieces * piece_bytes) / (now_s() - began));
    return 0;
}
