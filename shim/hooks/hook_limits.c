/* mlockall and setrlimit: the engine's reservations and its swapping conflict with these calls. So the engine first
 * adapts, and then the hooks make the system call. */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/hooks/readable.h"
#include "skeleton/core/retire.h"
#include "skeleton/engine/engine.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int mlockall(int flags)
{
    swn_retire_for_lock(flags);
    return (int)syscall(SYS_mlockall, flags);
}

/* On 64 bits struct rlimit64 is struct rlimit, and both are the kernel's. */
_Static_assert(sizeof(struct rlimit) == sizeof(struct rlimit64), "the kernel's limits have 64 bits");

static int limit(pid_t pid, int what, const void *new, void *old)
{
    const struct rlimit *l = new;
    if (swn_engine_running() && what == RLIMIT_AS && (!pid || pid == getpid()) && swn_is_readable(l, sizeof *l) &&
        l->rlim_cur <= l->rlim_max && l->rlim_cur != RLIM_INFINITY)
        swn_retire_for_space(l->rlim_cur);
    return (int)syscall(SYS_prlimit64, pid, what, new, old);
}

EXPORT int setrlimit(__rlimit_resource_t what, const struct rlimit *new)
{
    return limit(0, (int)what, new, NULL);
}

EXPORT int setrlimit64(__rlimit_resource_t what, const struct rlimit64 *new)
{
    return limit(0, (int)what, new, NULL);
}

EXPORT int prlimit(pid_t pid, enum __rlimit_resource what, const struct rlimit *new, struct rlimit *old)
{
    return limit(pid, (int)what, new, old);
}

EXPORT int prlimit64(pid_t pid, enum __rlimit_resource what, const struct rlimit64 *new, struct rlimit64 *old)
{
    return limit(pid, (int)what, new, old);
}
