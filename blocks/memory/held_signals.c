/* blocks/memory/held_signals.c - see blocks/memory/held_signals.h. */
#define _GNU_SOURCE
#include "blocks/memory/held_signals.h"

#include <pthread.h>
#include <stddef.h>

void swn_signals_held(sigset_t *out)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigfillset(out);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(out, faults[i]);
}

void swn_signals_hold(sigset_t *before)
{
    sigset_t all;
    swn_signals_held(&all);
    pthread_sigmask(SIG_BLOCK, &all, before);
}

void swn_signals_let(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}
