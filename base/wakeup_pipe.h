/* base/wakeup_pipe.h - wakes a thread that sits in poll.
 *
 * A pipe and not an eventfd: all eventfds share one inode, so if the program closed the library's eventfd and opened
 * its own under the same number, the two could not be told apart (base/fd_registry.h). Thread-safe once it is open.
 */
#ifndef SWN_BASE_WAKEUP_PIPE_H
#define SWN_BASE_WAKEUP_PIPE_H

struct swn_wakeup_pipe {
    int in, out; /* -1: not open */
};

/* 0 or -errno. */
int swn_wakeup_pipe_open(struct swn_wakeup_pipe *b);
/* Wakes the thread that polls, now or later. 0, or -EBADF where the program has closed the pipe: no thread wakes. */
int swn_wakeup_pipe_signal(const struct swn_wakeup_pipe *b);
/* For poll; -1, which poll ignores, when the program has closed the pipe. */
int swn_wakeup_pipe_poll_fd(const struct swn_wakeup_pipe *b);
/* Empties the pipe. 1: it had been signalled. */
int swn_wakeup_pipe_drain(const struct swn_wakeup_pipe *b);
/* Closes the ends that the program has not closed. */
void swn_wakeup_pipe_close(struct swn_wakeup_pipe *b);

#endif
