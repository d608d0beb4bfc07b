/* tools/partition/interrupt.c - a command that is interrupted while it writes removes its files, and then dies by the
 * signal. */
#define _GNU_SOURCE
#include <signal.h>

#include "tools/partition/partition_tool.h"

static volatile sig_atomic_t stopped_by;

static void stop(int sig)
{
    stopped_by = sig;
}

void part_catch_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
    struct sigaction before;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) /* nohup */
            sigaction(signals[i], &action, NULL);
}

int part_stopped(void)
{
    return stopped_by != 0;
}

void part_stop(void)
{
    signal(stopped_by, SIG_DFL);
    raise(stopped_by);
}
