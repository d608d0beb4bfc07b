/* base/fd_registry.h - descriptors that are still the files we opened.
 *
 * Programs close descriptors that they did not open (a program that becomes a daemon does), and the next file that they
 * open gets the number. A read by that number would then read the program's file, and a write would destroy it. So the
 * registry remembers every descriptor of ours that lives longer than a call with the file behind it, and the library
 * checks it before each use.
 *
 * The interposed close functions pass over the library's descriptors (shim/hooks/hook_close.c), so that the registry is
 * for dup2 and direct system calls. A close that another thread makes between the check and the use is not noticed.
 * Descriptors that have no inode of their own (eventfd, epoll, timerfd, rings before Linux 5.16) cannot be told from
 * others of that kind: use a pipe. Thread-safe, and safe in a forked child.
 */
#ifndef SWN_BASE_FD_REGISTRY_H
#define SWN_BASE_FD_REGISTRY_H

/* Registers a descriptor that was just opened, and returns the number to use from now on. It is another number where
 * `fd` is a standard stream's, or was lost to the program before: a thread that still holds the lost number must never
 * reach this file. Negative numbers are passed through. No other thread may close descriptors that it does not know
 * between the opening and this call. */
int swn_fd_registry(int fd);

/* 1: still the file that the library opened, or never registered. 0: closed, or the program's by now; then for good. */
int swn_fd_is_ours(int fd);

/* The least number from `from` to `to`, both inclusive, that is registered and still the library's file; -1 if there is
 * none. Async-signal-safe. */
int swn_fd_registry_first(int from, int to);

/* Closes the descriptor. -EBADF when the number is the program's by now. 0 or -errno. */
int swn_fd_registry_close(int fd);

#endif
