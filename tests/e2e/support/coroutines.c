/* Coroutines of the C library (makecontext, swapcontext), each on a stack of its own and with all signals blocked, that
 * store into memory in turn. For programs/processes/coroutines.py. */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#define MOST 64
#define GUARD 4096

static ucontext_t caller, contexts[MOST];
static float *memory[MOST];
static size_t floats;
static int blocked;

/* Whether any of them could not take SIGSEGV. */
int coroutines_blocked(void)
{
    return blocked;
}

/* Adds 1 to one number on each page. */
static void store(int i)
{
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    blocked |= sigismember(&mask, SIGSEGV);
    for (size_t k = (size_t)i; k < floats; k += 1024) {
        memory[i][k] += 1;
        swapcontext(&contexts[i], &caller);
    }
    memory[i] = NULL;
}

/* 0; -1: no memory for the stacks. Each of `count` places has n floats. */
int coroutines_store(float *const *at, size_t n, int count, size_t stack)
{
    int left = count;
    char *stacks[MOST];
    floats = n;
    for (int i = 0; i < count; i++) {
        memory[i] = at[i];
        stacks[i] = mmap(NULL, GUARD + stack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (stacks[i] == MAP_FAILED || mprotect(stacks[i], GUARD, PROT_NONE))
            return -1;
        getcontext(&contexts[i]);
        sigfillset(&contexts[i].uc_sigmask);
        contexts[i].uc_stack.ss_sp = stacks[i] + GUARD;
        contexts[i].uc_stack.ss_size = stack;
        contexts[i].uc_link = &caller;
        makecontext(&contexts[i], (void (*)(void))store, 1, i);
    }
    while (left)
        for (int i = left = 0; i < count; i++)
            if (memory[i]) {
                swapcontext(&caller, &contexts[i]);
                left += memory[i] != NULL;
            }
    for (int i = 0; i < count; i++)
        munmap(stacks[i], GUARD + stack);
    return 0;
}
