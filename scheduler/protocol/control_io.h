/* scheduler/protocol/control_io.h - what both ends of a control socket share: bounded lines under a deadline. Not
 * installed. */
#ifndef SWN_SCHEDULER_PROTOCOL_CONTROL_IO_H
#define SWN_SCHEDULER_PROTOCOL_CONTROL_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

/* CLOCK_MONOTONIC in milliseconds. */
int64_t swn_control_now_ms(void);

/* Waits for `events` on the non-blocking fd until `deadline_ms`. When cancel_fd (-1: none) becomes readable the wait
 * ends. 0, -ETIMEDOUT, -ECANCELED or -errno. */
int swn_control_wait(int fd, short events, int cancel_fd, int64_t deadline_ms);

/* Reads up to the first newline into buf, without it, and ends the text with a NUL; bytes behind the newline are
 * dropped. 0; -EMSGSIZE when buf is full before, -EPROTO at the end of the stream, -EBADMSG for a NUL in the line,
 * -ETIMEDOUT, -ECANCELED, -errno. */
int swn_control_read_line(int fd, char *buf, size_t size, int cancel_fd, int64_t deadline_ms);

/* Sends all of it. 0, -ETIMEDOUT, -ECANCELED, -errno; no SIGPIPE. */
int swn_control_write(int fd, const char *data, size_t len, int cancel_fd, int64_t deadline_ms);

/* 0 or -ENAMETOOLONG. */
int swn_control_address(struct sockaddr_un *sa, const char *path);

#endif
