/* skeleton/engine/program_threads.h - the program's own threads: how many there are, and which one is calling.
 *
 * Threads of compute pools run kernels and nothing else; they do not count. The hooks that see threads begin and end
 * (shim/hooks/hook_threads.c) call these functions. All functions are thread-safe, and allocate nothing.
 */
#ifndef SWN_SKELETON_ENGINE_PROGRAM_THREADS_H
#define SWN_SKELETON_ENGINE_PROGRAM_THREADS_H

/* 1 while the program has a thread besides the main one. */
int swn_threads_many(void);

/* The calling thread's number in the order in which the program started its threads; 0 is the main thread. -1: a thread
 * of a compute pool, or one that no hook has seen. */
int swn_threads_number(void);

/* A thread is about to start. Returns its number. */
int swn_threads_starting(void);
/* The thread did not start, or has ended. */
void swn_threads_ended(void);
/* Called in the new thread. */
void swn_threads_set_number(int number);

/* The child of a fork has one thread. */
void swn_threads_fork_child(void);

#endif
