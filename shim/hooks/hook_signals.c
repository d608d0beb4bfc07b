/* SIGSEGV and SIGBUS. Faults of our memory are repaired (see swn_residency_trap); all others reach the handler that the
 * program installed. All functions that install one for these two signals record it here, and ours calls it, so that a
 * handler installed later (Python's faulthandler) does not take our place. A thread never blocks SIGSEGV, be it by a
 * mask, in a handler, or in a context that it goes on with: the kernel kills a process that faults with it blocked. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "blocks/memory/held_signals.h"
#include "skeleton/engine/engine.h"
#include "shim/hooks/hooks.h"
#include "shim/hooks/next_symbol.h"
#include "shim/hooks/readable.h"
#include "shim/hooks/unblock_threads.h"

#define EXPORT __attribute__((visibility("default")))

typedef int (*sigaction_fn)(int, const struct sigaction *, struct sigaction *);
typedef int (*sigmask_fn)(int, const sigset_t *, sigset_t *);
SWN_NEXT(sigaction, sigaction_fn)
typedef sighandler_t (*signal_fn)(int, sighandler_t);
SWN_NEXT(signal, signal_fn)
SWN_NEXT(bsd_signal, signal_fn)
SWN_NEXT(ssignal, signal_fn)
SWN_NEXT(sysv_signal, signal_fn)
SWN_NEXT(__sysv_signal, signal_fn)
SWN_NEXT(sigset, signal_fn)
typedef int (*number_fn)(int);
SWN_NEXT(sighold, number_fn)
SWN_NEXT(sigignore, number_fn)
SWN_NEXT(sigblock, number_fn)
SWN_NEXT(sigsetmask, number_fn)
typedef int (*attr_mask_fn)(pthread_attr_t *, const sigset_t *);
SWN_NEXT(pthread_attr_setsigmask_np, attr_mask_fn)
typedef int (*setcontext_fn)(const ucontext_t *);
SWN_NEXT(setcontext, setcontext_fn)
typedef int (*swapcontext_fn)(ucontext_t *, const ucontext_t *);
SWN_NEXT(swapcontext, swapcontext_fn)
SWN_NEXT(pthread_sigmask, sigmask_fn)
SWN_NEXT(sigprocmask, sigmask_fn)

static struct sigaction chained[2]; /* the program's handlers for SIGSEGV, SIGBUS */
static _Atomic int installed;
static _Atomic pid_t ours; /* the process in which ours are installed */

static int slot(int sig)
{
    return sig == SIGSEGV ? 0 : sig == SIGBUS ? 1 : -1;
}

/* A child of vfork has a table of handlers of its own, but shares its parent's memory until it calls exec: what it sets
 * is not recorded, or its parent would lose its handlers. CPython's subprocess sets handlers there. */
static int shares_memory(void)
{
    return getpid() != atomic_load(&ours);
}

void swn_hooks_signals_fork_child(void)
{
    atomic_store(&ours, getpid());
}

/* Ours runs with most signals blocked, the program's with those that it asked for. */
static void set_mask(const struct sigaction *next, const void *context)
{
    sigset_t mask;
    sigorset(&mask, &((const ucontext_t *)context)->uc_sigmask, &next->sa_mask);
    sigdelset(&mask, SIGSEGV);
    next_pthread_sigmask()(SIG_SETMASK, &mask, NULL);
}

static void pass_on(int sig, siginfo_t *info, void *context)
{
    struct sigaction *recorded = &chained[sig == SIGBUS], next = *recorded, dfl = {.sa_handler = SIG_DFL};
    int shares = shares_memory();
    if ((unsigned)next.sa_flags & SA_RESETHAND) {
        if (shares)
            next_sigaction()(sig, &dfl, NULL);
        else
            *recorded = dfl;
    }
    if (next.sa_flags & SA_SIGINFO) {
        set_mask(&next, context);
        next.sa_sigaction(sig, info, context);
    } else if (next.sa_handler == SIG_IGN && info->si_code <= 0) {
        return; /* sent by kill; a real fault cannot be ignored */
    } else if (next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN) {
        set_mask(&next, context);
        next.sa_handler(sig);
    } else {
        /* Default action: the instruction faults again, with the default handler. */
        if (!shares)
            atomic_store(&installed, 0);
        next_sigaction()(sig, &dfl, NULL);
        if (info->si_code <= 0) /* sent by kill: there is no instruction to repeat */
            raise(sig);
    }
}

static int is_default(const struct sigaction *act)
{
    return !((unsigned)act->sa_flags & SA_SIGINFO) && (act->sa_handler == SIG_DFL || act->sa_handler == SIG_IGN);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
    int saved = errno;
    uintptr_t addr = (uintptr_t)info->si_addr;
    if (info->si_code > 0 && sig == SIGSEGV && swn_engine_trap(addr)) {
        errno = saved;
        return;
    }
    if (info->si_code > 0 && sig == SIGBUS && swn_engine_unreadable(addr))
        _exit(SWN_EXIT_UNREADABLE);
    /* A fault in a file that the program itself has mapped would kill the program, unless the program has its own
     * handler. */
    if (info->si_code > 0 && sig == SIGBUS && is_default(&chained[1]) && swn_engine_mapped_unreadable(addr))
        _exit(SWN_EXIT_UNREADABLE);
    errno = saved;
    pass_on(sig, info, context);
}

/* Handlers that the program has installed by now may store into tensors, too. */
static void let_faults_through_handlers(void)
{
    for (int sig = 1; sig < NSIG; sig++) {
        struct sigaction act;
        if (slot(sig) >= 0 || next_sigaction()(sig, NULL, &act) || is_default(&act) ||
            sigismember(&act.sa_mask, SIGSEGV) != 1)
            continue;
        sigdelset(&act.sa_mask, SIGSEGV);
        next_sigaction()(sig, &act, NULL);
    }
}

void swn_hooks_signals_install(void)
{
    struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    swn_signals_held(&act.sa_mask); /* what a handler of theirs stores must not wait for a fault that it interrupts */
    next_sigaction()(SIGSEGV, &act, &chained[0]);
    next_sigaction()(SIGBUS, &act, &chained[1]);
    atomic_store(&ours, getpid());
    atomic_store(&installed, 1);
    let_faults_through_handlers();
    swn_unblock_in_all_threads(SIGSEGV);
}

/* Where ours is in the child's table, the program's own was there before. */
static int set_in_child(int sig, const struct sigaction *act, struct sigaction *old)
{
    struct sigaction before, own = chained[slot(sig)];
    int err = next_sigaction()(sig, act, &before);
    if (!err && old)
        *old = ((unsigned)before.sa_flags & SA_SIGINFO) && before.sa_sigaction == on_fault ? own : before;
    return err;
}

EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
    if (!atomic_load(&installed))
        return next_sigaction()(sig, act, old);
    if (slot(sig) < 0) {
        struct sigaction safe;
        if (!act || sigismember(&act->sa_mask, SIGSEGV) != 1)
            return next_sigaction()(sig, act, old);
        safe = *act;
        sigdelset(&safe.sa_mask, SIGSEGV);
        return next_sigaction()(sig, &safe, old);
    }
    if (shares_memory())
        return set_in_child(sig, act, old);
    struct sigaction before = chained[slot(sig)];
    if (act)
        chained[slot(sig)] = *act;
    if (old)
        *old = before;
    return 0;
}

static sighandler_t install(int sig, sighandler_t handler, unsigned flags)
{
    struct sigaction act = {.sa_handler = handler, .sa_flags = (int)flags}, old;
    sigemptyset(&act.sa_mask);
    return sigaction(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}

static int is_recorded(int sig)
{
    return slot(sig) >= 0 && atomic_load(&installed);
}

/* These refuse SIG_ERR; sigset does not. */
static sighandler_t install_any(int sig, sighandler_t handler, unsigned flags)
{
    if (handler != SIG_ERR)
        return install(sig, handler, flags);
    errno = EINVAL;
    return SIG_ERR;
}

/* The C library's, of which only signal is BSD's for all programs; strict C and POSIX ask for System V's. */
#define INSTALLER(name, flags)                                                                                         \
    EXPORT sighandler_t name(int sig, sighandler_t handler)                                                            \
    {                                                                                                                  \
        return is_recorded(sig) ? install_any(sig, handler, flags) : next_##name()(sig, handler);                      \
    }
#define ONCE ((unsigned)SA_RESETHAND | (unsigned)SA_NODEFER)
EXPORT sighandler_t bsd_signal(int sig, sighandler_t handler);
INSTALLER(signal, SA_RESTART)
INSTALLER(bsd_signal, SA_RESTART)
INSTALLER(ssignal, SA_RESTART)
INSTALLER(sysv_signal, ONCE)
INSTALLER(__sysv_signal, ONCE)

/* SIG_HOLD asks for SIGSEGV to be blocked, which it never is. */
EXPORT sighandler_t sigset(int sig, sighandler_t handler)
{
    if (!is_recorded(sig))
        return next_sigset()(sig, handler);
    struct sigaction now;
    if (handler != SIG_HOLD)
        return install(sig, handler, 0);
    return sigaction(sig, NULL, &now) ? SIG_ERR : now.sa_handler;
}

EXPORT int sigignore(int sig)
{
    return is_recorded(sig) ? -(install(sig, SIG_IGN, 0) == SIG_ERR) : next_sigignore()(sig);
}

EXPORT int sighold(int sig)
{
    return sig == SIGSEGV && atomic_load(&installed) ? 0 : next_sighold()(sig);
}

static int without_segv_bit(int mask)
{
    return atomic_load(&installed) ? mask & ~(1 << (SIGSEGV - 1)) : mask;
}

EXPORT int sigblock(int mask)
{
    return next_sigblock()(without_segv_bit(mask));
}

EXPORT int sigsetmask(int mask)
{
    return next_sigsetmask()(without_segv_bit(mask));
}

static int without_segv(sigmask_fn real, int how, const sigset_t *set, sigset_t *old)
{
    sigset_t safe;
    if (!set || how == SIG_UNBLOCK || !atomic_load(&installed))
        return real(how, set, old);
    safe = *set;
    sigdelset(&safe, SIGSEGV);
    return real(how, &safe, old);
}

EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    return without_segv(next_pthread_sigmask(), how, set, old);
}

EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
    return without_segv(next_sigprocmask(), how, set, old);
}

/* Of a thread that begins later, when the engine may have started. */
EXPORT int pthread_attr_setsigmask_np(pthread_attr_t *attr, const sigset_t *set)
{
    sigset_t safe;
    if (!set || !atomic_load(&installed))
        return next_pthread_attr_setsigmask_np()(attr, set);
    safe = *set;
    sigdelset(&safe, SIGSEGV);
    return next_pthread_attr_setsigmask_np()(attr, &safe);
}

/* By attributes that were made before there were handlers, it may block what they are for. */
void swn_hooks_signals_thread_begins(void)
{
    sigset_t segv;
    if (!atomic_load(&installed))
        return;
    sigemptyset(&segv);
    sigaddset(&segv, SIGSEGV);
    next_pthread_sigmask()(SIG_UNBLOCK, &segv, NULL);
}

/* A context has the mask of the moment in which it was made. */
static void let_faults_through(const ucontext_t *context)
{
    if (atomic_load(&installed) && swn_is_readable(&context->uc_sigmask, sizeof context->uc_sigmask) &&
        sigismember(&context->uc_sigmask, SIGSEGV) == 1)
        sigdelset((sigset_t *)(uintptr_t)&context->uc_sigmask, SIGSEGV);
}

EXPORT int setcontext(const ucontext_t *to)
{
    let_faults_through(to);
    return next_setcontext()(to);
}

EXPORT int swapcontext(ucontext_t *from, const ucontext_t *to)
{
    let_faults_through(to);
    return next_swapcontext()(from, to);
}
