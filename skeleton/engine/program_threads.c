/* skeleton/engine/program_threads.c - two counters of the process, and a number of each thread. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <unistd.h>

#include "skeleton/engine/program_threads.h"

static _Atomic int alive; /* besides the main thread */
static _Atomic int ever_created;
static __thread int own_number = -1;

int swn_threads_many(void)
{
    return atomic_load_explicit(&alive, memory_order_acquire) > 0;
}

int swn_threads_number(void)
{
    if (own_number < 0 && gettid() == getpid())
        own_number = 0;
    return own_number;
}

int swn_threads_starting(void)
{
    atomic_fetch_add(&alive, 1);
    return atomic_fetch_add(&ever_created, 1) + 1;
}

void swn_threads_ended(void)
{
    atomic_fetch_sub(&alive, 1);
}

void swn_threads_set_number(int number)
{
    own_number = number;
}

void swn_threads_fork_child(void)
{
    atomic_store(&alive, 0);
}
