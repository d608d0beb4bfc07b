/* uring_read.c - reads a file into memory by a ring of its own: 0 or -errno. For programs/read_into.py. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <liburing.h>

int uring_read(const char *path, char *to, size_t len);

static int read_all(struct io_uring *ring, int fd, char *to, size_t len)
{
    for (size_t done = 0; done < len;) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
        struct io_uring_cqe *cqe;
        io_uring_prep_read(sqe, fd, to + done, (unsigned)(len - done), done);
        int err = io_uring_submit_and_wait(ring, 1);
        if (err < 0 || (err = io_uring_wait_cqe(ring, &cqe)) < 0)
            return err;
        int got = cqe->res;
        io_uring_cqe_seen(ring, cqe);
        if (got <= 0)
            return got ? got : -ENODATA;
        done += (size_t)got;
    }
    return 0;
}

int uring_read(const char *path, char *to, size_t len)
{
    struct io_uring ring;
    int err = io_uring_queue_init(4, &ring, 0);
    if (err)
        return err;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    err = fd < 0 ? -errno : read_all(&ring, fd, to, len);
    if (fd >= 0)
        close(fd);
    io_uring_queue_exit(&ring);
    return err;
}
