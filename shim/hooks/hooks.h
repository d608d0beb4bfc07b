/* shim/hooks/hooks.h - what the hook files offer each other. */
#ifndef SWN_SHIM_HOOKS_HOOKS_H
#define SWN_SHIM_HOOKS_HOOKS_H

/* pthread_atfork handlers; once, when the engine has started. */
void swn_hooks_fork_install(void);

/* SIGSEGV and SIGBUS handlers that repair faults of the engine's memory and pass on the rest; once, when the engine has
 * started. */
void swn_hooks_signals_install(void);

/* Keeps threads of the library from being counted as the program's. When the library is loaded. */
void swn_hooks_threads_install(void);

#endif
