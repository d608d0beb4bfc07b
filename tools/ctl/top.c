/* tools/ctl/top.c - `swapnetctl top`: repeats `status` on a terminal. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tools/ctl/ctl.h"
#include "tools/ctl/processes.h"
#include "tools/cli.h"

static volatile sig_atomic_t stopped;

static void stop(int sig)
{
    (void)sig;
    stopped = 1;
}

struct top {
    double delay_s;
    long times; /* 0: until the user stops it */
    int format;
    int terminal;
};

static int number(const char *text, double least, double most, double *out)
{
    char *end;
    double n = strtod(text, &end);
    if (end == text || *end || !(n >= least && n <= most)) {
        swn_cli_error("'%s' is not a number from %g to %g", text, least, most);
        return -EINVAL;
    }
    *out = n;
    return 0;
}

/* 0, 1 when help was shown, -EINVAL. */
static int take_options(struct top *t, int argc, char **argv)
{
    static const struct option options[] = {{"delay", required_argument, NULL, 'd'},
                                            {"times", required_argument, NULL, 'n'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int opt;
    double times = 0;
    while ((opt = getopt_long(argc, argv, ":d:n:o:h", options, NULL)) != -1) {
        if (opt == 'h') {
            swn_cli_help(argv[0]);
            return 1;
        }
        if (opt == '?' || opt == ':')
            swn_cli_bad_option(argv, opt);
        if (opt == '?' || opt == ':' || (opt == 'd' && number(optarg, 0.1, 3600, &t->delay_s)) ||
            (opt == 'n' && number(optarg, 1, 1e9, &times)) ||
            (opt == 'o' && (t->format = swn_cli_format(optarg, SWN_CLI_CSV)) < 0))
            return -EINVAL;
    }
    t->times = (long)times;
    if (optind < argc) {
        swn_cli_error("unexpected argument '%s'", argv[optind]);
        return -EINVAL;
    }
    return 0;
}

static void draw(const struct top *t)
{
    char now[64];
    time_t seconds = time(NULL);
    struct tm tm;
    if (t->terminal) { /* first: what ctl_collect says of those that do not answer stays on the screen */
        strftime(now, sizeof now, "%H:%M:%S", localtime_r(&seconds, &tm));
        printf("\033[H\033[J%s  swapnet, every %g s, Ctrl-C ends\n", now, t->delay_s);
        fflush(stdout);
    }
    json_t *root = ctl_collect(&(struct ctl_filter){0});
    ctl_print(root, t->format);
    fflush(stdout);
    json_decref(root);
}

int ctl_top(int argc, char **argv)
{
    struct top t = {.delay_s = 2, .format = SWN_CLI_TABLE};
    int rc = take_options(&t, argc, argv);
    if (rc)
        return rc == 1 ? SWN_CLI_OK : SWN_CLI_USAGE;
    t.terminal = isatty(STDOUT_FILENO) && t.format == SWN_CLI_TABLE;
    if (!t.terminal && !t.times)
        t.times = 1;                             /* into a file or a pipe: once, unless a number was given */
    struct sigaction act = {.sa_handler = stop}; /* no SA_RESTART: the sleep ends */
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    for (long i = 0; !stopped && !ferror(stdout) && (!t.times || i < t.times); i++) {
        struct timespec wait = {.tv_sec = (time_t)t.delay_s,
                                .tv_nsec = (long)((t.delay_s - (double)(time_t)t.delay_s) * 1e9)};
        if (i)
            nanosleep(&wait, NULL);
        if (!stopped)
            draw(&t);
    }
    return SWN_CLI_OK;
}
