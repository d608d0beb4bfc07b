/* base/process.h - the identity of a process, and whether it still lives. */
#ifndef SWN_BASE_PROCESS_H
#define SWN_BASE_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

/* The name of the library's thread that keeps the connection to swapnetd. When a process had this thread and lacks it
 * now, the process has become another program by exec. */
#define SWN_CLIENT_THREAD "swn-client"

/* When the process was started, in clock ticks since boot; with the pid this is its identity. 0; -ENOENT or -ESRCH:
 * there is no such process, or it is dead; another -errno: /proc cannot be read right now. */
int swn_process_start(pid_t pid, uint64_t *start);
/* Now, as swn_process_start counts. */
uint64_t swn_process_ticks(void);
/* The kernel's name of this boot; "" where it cannot be read. Numbers and starts of processes mean something within one
 * boot only. */
#define SWN_BOOT_ID 40
void swn_boot_id(char out[SWN_BOOT_ID]);
/* 1: the process with that pid and start time lives; 0: it is gone; -errno: /proc cannot be read right now, which the
 * caller must not take for death. */
int swn_process_lives(pid_t pid, uint64_t start);
/* Resident bytes of the process, shared pages and pages of files included. 0 or -errno. */
int swn_process_resident(pid_t pid, uint64_t *bytes);
/* Resident bytes of the process that are in no file: anonymous pages and shared memory. 0; -ENODATA: it is dying, or
 * Linux is older than 4.5; -errno. */
int swn_process_own_memory(pid_t pid, uint64_t *bytes);
/* Anonymous pages alone, for a caller that asks often: a tenth of the time. pid 0: this process. 0 or -errno. */
int swn_process_anonymous(pid_t pid, uint64_t *bytes);
/* The children of the process's first thread that are programs of their own, as they have called exec: their memory is
 * not shared with the parent's. At most `most` of them. Their number, or -errno: -ENOENT where the kernel does not tell
 * children. */
int swn_process_programs(pid_t pid, pid_t *list, int most);
/* The effective user of the process. From its status, as /proc/PID belongs to root where the process may not be traced.
 * 0 or -errno. */
int swn_process_user(pid_t pid, uid_t *uid);
/* A descriptor that becomes readable when the process dies; -ESRCH: there is no such process; -ENOSYS before Linux 5.3:
 * then the caller polls swn_process_start. */
int swn_process_watch(pid_t pid);
/* 1: the process has a thread of that name; 0: it has none; -errno: /proc cannot be read; -E2BIG: it has none among the
 * first SWN_THREADS_LOOKED_AT, and has more: a process with thousands of threads does not keep the caller busy. */
#define SWN_THREADS_LOOKED_AT 1024
int swn_process_has_thread(pid_t pid, const char *name);

#endif
