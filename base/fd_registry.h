/* base/fd_registry.h - descriptors that are still the files we opened.
 *
 * Programs close descriptors that they did not open (a program that becomes a daemon does), and the next file that they
 * open gets the number. A read by that number would then read the program's file, and a write would destroy it. So the
 * registry remembers every descriptor of ours that lives longer than a call with the file behind it, and the library
 * checks it before each use.
 *
 * The library's close and its kin pass over ours (shim/hooks/hook_close.c), so that this is for dup2 and system calls
 * made directly. One that another thread makes between the check and the use is not noticed. Descriptors that have no
 * inode of their own (eventfd, epoll, timerfd, rings before Linux 5.16) cannot be told from others of that kind: use a
 * pipe. Thread-safe, and safe in a forked child.
 */
#ifndef SWN_BASE_FD_REGISTRY_H
#define SWN_BASE_FD_REGISTRY_H

/* Takes a descriptor that was just opened into ours: returns the number to use from now on, which is another one where
 * that of `fd` is a standard stream's or was taken from us before (a thread that still holds the old number must never
 * reach this file). Negative numbers are passed through. No other thread may close numbers blindly between the opening
 * and this call. */
int swn_fd_registry(int fd);

/* 1: still what we opened, or never one of ours. 0: closed, or the program's by now; then for good. */
int swn_fd_is_ours(int fd);

/* The least number from `from` to `to`, both inclusive, that is ours and still what we opened; -1 if there is none.
 * Async-signal-safe. */
int swn_fd_registry_first(int from, int to);

/* Closes it, unless it is the program's by now: then -EBADF. 0 or -errno. */
int swn_fd_registry_close(int fd);

#endif
