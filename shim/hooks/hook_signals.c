/* SIGSEGV and SIGBUS. Faults of our memory are repaired (see swn_residency_trap); all others reach the handler that the
 * program installed. sigaction and signal for these two signals are recorded here, and the library's handler calls the
 * recorded handlers, so that a handler installed later (Python's faulthandler) does not replace the library's. A thread
 * never blocks SIGSEGV: the kernel kills a process that faults with it blocked. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "blocks/memory/held_signals.h"
#include "skeleton/engine/engine.h"
#include "shim/hooks/hooks.h"
#include "shim/hooks/next_symbol.h"

typedef int (*sigaction_fn)(int, const struct sigaction *, struct sigaction *);
typedef int (*sigmask_fn)(int, const sigset_t *, sigset_t *);
SWN_NEXT(sigaction, sigaction_fn)
typedef sighandler_t (*signal_fn)(int, sighandler_t);
SWN_NEXT(signal, signal_fn)
SWN_NEXT(pthread_sigmask, sigmask_fn)
SWN_NEXT(sigprocmask, sigmask_fn)

static struct sigaction chained[2]; /* the program's handlers for SIGSEGV, SIGBUS */
static _Atomic int installed;

static int slot(int sig)
{
    return sig == SIGSEGV ? 0 : sig == SIGBUS ? 1 : -1;
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
    struct sigaction *recorded = &chained[sig == SIGBUS], next = *recorded;
    if ((unsigned)next.sa_flags & SA_RESETHAND)
        *recorded = (struct sigaction){.sa_handler = SIG_DFL};
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
        struct sigaction dfl = {.sa_handler = SIG_DFL};
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

void swn_hooks_signals_install(void)
{
    struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    swn_signals_held(&act.sa_mask); /* what a handler of theirs stores must not wait for a fault that it interrupts */
    next_sigaction()(SIGSEGV, &act, &chained[0]);
    next_sigaction()(SIGBUS, &act, &chained[1]);
    atomic_store(&installed, 1);
}

__attribute__((visibility("default"))) int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
    if (slot(sig) < 0 || !atomic_load(&installed))
        return next_sigaction()(sig, act, old);
    struct sigaction before = chained[slot(sig)];
    if (act)
        chained[slot(sig)] = *act;
    if (old)
        *old = before;
    return 0;
}

__attribute__((visibility("default"))) sighandler_t signal(int sig, sighandler_t handler)
{
    if (slot(sig) < 0 || !atomic_load(&installed))
        return next_signal()(sig, handler);
    struct sigaction act = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    sigemptyset(&act.sa_mask);
    return sigaction(sig, &act, &old) ? SIG_ERR : old.sa_handler;
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

__attribute__((visibility("default"))) int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    return without_segv(next_pthread_sigmask(), how, set, old);
}

__attribute__((visibility("default"))) int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
    return without_segv(next_sigprocmask(), how, set, old);
}
