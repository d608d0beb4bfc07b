/* swn_hooks.h - what the hook files offer each other. */
#ifndef SWN_HOOKS_H
#define SWN_HOOKS_H

/* pthread_atfork handlers; once, when the engine has started. */
void swn_hooks_fork_install(void);

/* SIGSEGV and SIGBUS handlers that repair what is ours and pass on the rest; once, when the engine has started. */
void swn_hooks_signals_install(void);

/* What an allocation would do when it is over: installs the operator hook if it is wanted by now. No lock held. */
void swn_hooks_settle(void);

/* The calling thread's place in the order in which the program started its threads; 0 is the main one. -1: a thread of
 * a compute pool, or one that came by no way we know of. */
int swn_threads_number(void);

#endif
