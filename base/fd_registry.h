/* base/fd_registry.h - descriptors that are still the files we opened.
 *
 * Programs close what they did not open (whoever turns into a daemon does), and the next file that they open gets the
 * number. What we then read by that number is a stranger's file, and what we write destroys it. So every descriptor of
 * ours that lives longer than a call is remembered here with the file behind it, and looked at before it is used.
 *
 * The library's close and its kin pass over ours (shim/hooks/hook_close.c), so that this is for dup2 and system calls
 * made directly: such a one between the look and the use, in another thread, is not noticed. Descriptors that have no
 * inode of their own (eventfd, epoll, timerfd, rings before Linux 5.16) cannot be told from others of that kind: use a
 * pipe. Thread-safe, and safe in a forked child.
 */
#ifndef SWN_BASE_FD_REGISTRY_H
#define SWN_BASE_FD_REGISTRY_H

/* Takes a descriptor that was just opened into ours: returns the number to use from now on, which is another one where
 * that of `fd` is a standard stream's or was taken from us before (whoever still holds it must never mean this file).
 * Negative numbers are passed through. Who closes numbers blindly in another thread must not do so between the opening
 * and this. */
int swn_fd_registry(int fd);

/* 1: still what we opened, or never one of ours. 0: closed, or somebody else's by now; then for good. */
int swn_fd_is_ours(int fd);

/* The least number from `from` to `to`, both inclusive, that is ours and still what we opened; -1 if there is none.
 * Async-signal-safe. */
int swn_fd_registry_first(int from, int to);

/* Closes it, unless it is somebody else's by now: then -EBADF. 0 or -errno. */
int swn_fd_registry_close(int fd);

#endif
