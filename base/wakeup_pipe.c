/* base/wakeup_pipe.c - see wakeup_pipe.h. */
#define _GNU_SOURCE
#include "base/wakeup_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/fd_registry.h"

int swn_wakeup_pipe_open(struct swn_wakeup_pipe *b)
{
    int fd[2];
    *b = (struct swn_wakeup_pipe){.in = -1, .out = -1};
    if (pipe2(fd, O_CLOEXEC | O_NONBLOCK))
        return -errno;
    b->out = swn_fd_registry(fd[0]);
    b->in = swn_fd_registry(fd[1]);
    return 0;
}

int swn_wakeup_pipe_signal(const struct swn_wakeup_pipe *b)
{
    ssize_t n;
    if (b->in < 0 || !swn_fd_is_ours(b->in) || !swn_fd_is_ours(b->out))
        return -EBADF;
    do
        n = write(b->in, "!", 1);
    while (n < 0 && errno == EINTR);
    return n == 1 || errno == EAGAIN ? 0 : -errno; /* a full pipe has been signalled */
}

int swn_wakeup_pipe_poll_fd(const struct swn_wakeup_pipe *b)
{
    /* A pipe whose other end is closed is always readable, and poll would return at once for ever. */
    return b->out >= 0 && swn_fd_is_ours(b->out) && swn_fd_is_ours(b->in) ? b->out : -1;
}

int swn_wakeup_pipe_drain(const struct swn_wakeup_pipe *b)
{
    char some[64];
    int any = 0;
    while (b->out >= 0 && swn_fd_is_ours(b->out) && read(b->out, some, sizeof some) > 0)
        any = 1;
    return any;
}

void swn_wakeup_pipe_close(struct swn_wakeup_pipe *b)
{
    if (b->in >= 0)
        swn_fd_registry_close(b->in);
    if (b->out >= 0)
        swn_fd_registry_close(b->out);
    *b = (struct swn_wakeup_pipe){.in = -1, .out = -1};
}
