/* base/process.h - which process it is, and whether it still lives. */
#ifndef SWN_BASE_PROCESS_H
#define SWN_BASE_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

/* The thread of the library that keeps the connection to swapnetd. A process in which it was, and is not any more, has
 * become another program by exec. */
#define SWN_CLIENT_THREAD "swn-client"

/* When the process was started, in clock ticks since boot: with its number, its identity. 0; -ENOENT or -ESRCH: there
 * is none, or it is dead; another -errno: it cannot be seen right now. */
int swn_process_start(pid_t pid, uint64_t *start);
/* 1: the process with that number and start lives; 0: it is gone; -errno: it cannot be seen right now, which is not to
 * be taken for death. */
int swn_process_lives(pid_t pid, uint64_t start);
/* Its bytes in memory, shared pages and those of files included. 0 or -errno. */
int swn_process_resident(pid_t pid, uint64_t *bytes);
/* Its bytes in memory that are in no file: anonymous pages, and shared memory. 0; -ENODATA: it is dying, or Linux is
 * older than 4.5; -errno. */
int swn_process_own_memory(pid_t pid, uint64_t *bytes);
/* Its effective user. The owner of its directory in /proc is root where it may not be traced. 0 or -errno.
 */
int swn_process_user(pid_t pid, uid_t *uid);
/* A descriptor that becomes readable when the process dies; -ESRCH; -ENOSYS before Linux 5.3: then ask
 * swn_process_start now and then. */
int swn_process_watch(pid_t pid);
/* 1: the process has a thread of that name; 0: it has none; -errno: it cannot be seen. */
int swn_process_has_thread(pid_t pid, const char *name);

#endif
