/* shim/hooks/hooks.h - what the hook files offer each other. */
#ifndef SWN_SHIM_HOOKS_HOOKS_H
#define SWN_SHIM_HOOKS_HOOKS_H

/* pthread_atfork handlers; once, when the engine has started. */
void swn_hooks_fork_install(void);

/* SIGSEGV and SIGBUS handlers that repair what is ours and pass on the rest; once, when the engine has started. */
void swn_hooks_signals_install(void);

/* Threads that we start ourselves are not counted as the program's. When the library is loaded. */
void swn_hooks_threads_install(void);

#endif
