/* shim/hooks/hooks.h - functions that the hook files share. */
#ifndef SWN_SHIM_HOOKS_HOOKS_H
#define SWN_SHIM_HOOKS_HOOKS_H

#include <stdint.h>

/* pthread_atfork handlers; once, when the engine has started. */
void swn_hooks_fork_install(void);

/* SIGSEGV and SIGBUS handlers that repair faults of the engine's memory and pass on the rest; once, when the engine has
 * started. */
void swn_hooks_signals_install(void);

/* The calling thread, which has just begun, blocks nothing that these are for. */
void swn_hooks_signals_thread_begins(void);

/* In a forked child: the handlers are its own from now on. */
void swn_hooks_signals_fork_child(void);

/* Keeps the library's threads from being counted as the program's. Called when the library is loaded. */
void swn_hooks_threads_install(void);

/* Whether a system call that writes at `at` may write into a tensor, and has to pin it. Cheap. */
int swn_hooks_may_receive(uintptr_t at);

#endif
