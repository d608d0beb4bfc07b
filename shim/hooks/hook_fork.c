/* fork. The child's engine sleeps until the child computes; its weights read right at once (see swn_residency_child).
 * The children of vfork and posix_spawn share the parent's memory until they exec, and need nothing. */
#include <pthread.h>

#include "skeleton/engine/program_threads.h"
#include "skeleton/engine/engine.h"
#include "skeleton/engine/engine_internal.h"
#include "shim/hooks/hooks.h"

static void child(void)
{
    swn_threads_fork_child();
    swn_engine_postfork_child();
}

void swn_hooks_fork_install(void)
{
    pthread_atfork(swn_engine_prefork, swn_engine_postfork_parent, child);
}
