/* shim/hooks/unblock_threads.c - see unblock_threads.h.
 *
 * The usual server blocks all signals before it starts its threads, and waits for them in one (sigwait). Only a thread
 * itself can change its mask, and only a signal makes it: one of the two that the C library keeps for itself, and so
 * lets nobody block. Its own uses of it (setuid in a program with threads) go on: they come with another code. */
#define _GNU_SOURCE
#include "shim/hooks/unblock_threads.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/log.h"

#define UNBLOCKABLE 33  /* SIGSETXID */
#define PASSES 4        /* a thread that blocks it may start another meanwhile */
#define PATIENCE_MS 500 /* for each pass: a thread may be stopped */

/* The kernel's struct sigaction, of x86-64 and AArch64. */
struct kernel_action {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

static struct kernel_action before; /* the C library's */
static int wanted;
static _Atomic int answers;

static void on_signal(int sig, siginfo_t *info, void *context)
{
    if (info->si_code == SI_QUEUE && info->si_pid == getpid() && info->si_ptr == &wanted) {
        sigdelset(&((ucontext_t *)context)->uc_sigmask, wanted);
        atomic_fetch_add(&answers, 1);
    } else if ((uintptr_t)before.handler > 1) { /* neither SIG_DFL nor SIG_IGN */
        before.handler(sig, info, context);
    }
}

static long action(int sig, const struct kernel_action *new, struct kernel_action *old)
{
    return syscall(SYS_rt_sigaction, sig, new, old, sizeof(uint64_t));
}

static int install(void)
{
    static int done;
    struct kernel_action ours;
    if (done)
        return 0;
    /* Of the signal that the library needs it has a handler by now, whose way back is the C library's. */
    if (action(wanted, NULL, &ours) || action(UNBLOCKABLE, NULL, &before))
        return -errno;
    ours.handler = on_signal;
    ours.flags |= SA_RESTART | SA_SIGINFO | SA_ONSTACK;
    ours.mask = ~UINT64_C(0);
    if (action(UNBLOCKABLE, &ours, NULL))
        return -errno;
    done = 1;
    return 0;
}

static int blocks(const char *tid)
{
    char path[64], line[256];
    unsigned long long mask = 0;
    if (strlen(tid) > 20)
        return 0;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/status", tid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "SigBlk: %llx", &mask) == 1)
            break;
    if (f)
        fclose(f);
    return mask >> (wanted - 1) & 1;
}

static int ask(pid_t tid)
{
    siginfo_t info = {.si_code = SI_QUEUE};
    info.si_signo = UNBLOCKABLE;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_ptr = &wanted;
    return !syscall(SYS_rt_tgsigqueueinfo, getpid(), tid, UNBLOCKABLE, &info);
}

/* Asks all threads that block it. How many, or -errno. */
static int ask_all(void)
{
    int asked = 0;
    DIR *dir = opendir("/proc/self/task");
    if (!dir)
        return -errno;
    for (struct dirent *entry; (entry = readdir(dir));) {
        pid_t tid = (pid_t)atoi(entry->d_name);
        if (tid > 0 && tid != (pid_t)syscall(SYS_gettid) && blocks(entry->d_name) && !install())
            asked += ask(tid);
    }
    closedir(dir);
    return asked;
}

void swn_unblock_in_all_threads(int sig)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, sig);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    wanted = sig;
    for (int pass = 0; pass < PASSES; pass++) {
        int goal = atomic_load(&answers), asked = ask_all();
        if (asked <= 0)
            return;
        goal += asked;
        for (int ms = 0; ms < PATIENCE_MS && atomic_load(&answers) < goal; ms++)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    swn_say("a thread blocks signal %d, and would end the program if it stored into a weight that is on the disk", sig);
}
