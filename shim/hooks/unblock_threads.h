/* shim/hooks/unblock_threads.h - threads that have blocked a signal which the library needs. */
#ifndef SWN_SHIM_HOOKS_UNBLOCK_THREADS_H
#define SWN_SHIM_HOOKS_UNBLOCK_THREADS_H

/* Unblocks `sig` in all threads of the process that there are by now. */
void swn_unblock_in_all_threads(int sig);

#endif
