/* base/thread.h - how the library starts its own threads.
 *
 * The hooks interpose pthread_create to watch the program's threads. They point swn_thread_create at the real function,
 * so that the library's threads are not taken for the program's. Condition variables use CLOCK_MONOTONIC.
 */
#ifndef SWN_BASE_THREAD_H
#define SWN_BASE_THREAD_H

#include <pthread.h>
#include <sched.h>
#include <stdint.h>

/* pthread_create, or the function that the hooks put here. Set before the first thread is started, never after. */
extern int (*swn_thread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* Starts a joinable thread with a small stack and every signal blocked in it, so that the program's handlers keep
 * running on the program's threads. 0 or -errno. */
int swn_thread_start(pthread_t *out, void *(*fn)(void *), void *arg);

/* OpenMP binds the program's threads to the processors of `all`, one each (OMP_PROC_BIND, KMP_AFFINITY). A thread that
 * a bound thread starts would inherit its processor, and could read only while that processor does not compute; so the
 * library's threads get the whole set. To be called once, before the first thread is started. */
void swn_thread_beside_openmp(const cpu_set_t *all);
/* The calling thread, one of the library's, lives as long as the process. Threads that start later get its affinity, as
 * a program that rebinds the whole process (swapnetd, taskset -a) rebinds this thread, too. The first call counts. */
void swn_thread_stays(void);
/* For a forked child, which lacks that thread: its threads run where the parent's did. */
void swn_thread_fork_child(void);
/* The processors on which a thread would run if the caller started it now. 0 or -errno. */
int swn_thread_processors(cpu_set_t *out);

/* The calling thread runs for short moments only, and other threads wait for it: ask the kernel for the shortest
 * slices, which it schedules soonest (since Linux 6.12; elsewhere nothing changes). */
void swn_thread_be_prompt(void);

void swn_cond_init(pthread_cond_t *c);
/* pthread_cond_timedwait for a condition of swn_cond_init, until until_ns in nanoseconds of CLOCK_MONOTONIC. */
int swn_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns);

#endif
