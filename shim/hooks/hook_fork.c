/* fork. The child's engine sleeps until the child computes; its weights read right at once (see swn_residency_child).
 * The children of vfork and posix_spawn share the parent's memory until they exec, and no handler is called for them:
 * the hooks of what the kernel keeps for each process (handlers of signals, limits) tell them by their process id, and
 * change nothing of the parent's. */
#include <pthread.h>

#include "skeleton/engine/section.h"
#include "skeleton/engine/program_threads.h"
#include "skeleton/engine/engine.h"
#include "skeleton/engine/engine_internal.h"
#include "shim/hooks/hooks.h"

/* A signal handler forks, and has interrupted a section: the locks may be this thread's own. What such a handler's
 * child may do, exec and _exit, needs nothing of ours. The torch backend's fork handler takes its own few locks in any
 * case (docs/limitations.md). */
static __thread int in_handler;

static void prepare(void)
{
    in_handler = swn_section_interrupted();
    if (in_handler)
        return;
    SWN_SECTION();
    swn_engine_prefork();
}

static void parent(void)
{
    if (!in_handler)
        swn_engine_postfork_parent();
}

static void child(void)
{
    swn_hooks_signals_fork_child();
    if (in_handler)
        return;
    swn_threads_fork_child();
    swn_engine_postfork_child();
}

void swn_hooks_fork_install(void)
{
    pthread_atfork(prepare, parent, child);
}
