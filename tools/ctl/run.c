/* tools/ctl/run.c - `swapnetctl run`: checks the settings, puts them and the library in the environment, and executes
 * the command. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/ctl/ctl.h"
#include "tools/ctl/processes.h"
#include "scheduler/protocol/control.h"
#include "scheduler/protocol/label.h"
#include "scheduler/protocol/lease_record.h"
#include "scheduler/protocol/preload.h"
#include "base/size.h"

/* Long options; values above 255 so that swn_cli_bad_option can tell them from short ones. */
enum {
    OPT_MEMORY = 256,
    OPT_STATS,
    OPT_TRACE,
    OPT_FETCH,
    OPT_STRICT,
    OPT_VERBOSE,
    OPT_LIBRARY,
    OPT_DEVICE_BUDGET,
    OPT_UNIFIED,
    OPT_NAME,
    OPT_URGENCY,
    OPT_DAEMON,
    OPT_PROFILE
};

static const struct option options[] = {
    {"budget", required_argument, NULL, 'b'},
    {"profile", required_argument, NULL, OPT_PROFILE},
    {"memory", required_argument, NULL, OPT_MEMORY},
    {"device-budget", required_argument, NULL, OPT_DEVICE_BUDGET},
    {"store", required_argument, NULL, 's'},
    {"stats", required_argument, NULL, OPT_STATS},
    {"trace", required_argument, NULL, OPT_TRACE},
    {"fetch", required_argument, NULL, OPT_FETCH},
    {"strict", no_argument, NULL, OPT_STRICT},
    {"verbose", no_argument, NULL, OPT_VERBOSE},
    {"library", required_argument, NULL, OPT_LIBRARY},
    {"unified", required_argument, NULL, OPT_UNIFIED},
    {"name", required_argument, NULL, OPT_NAME},
    {"urgency", required_argument, NULL, OPT_URGENCY},
    {"daemon", required_argument, NULL, OPT_DAEMON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static const struct {
    int option;
    const char *variable;
} variables[] = {
    {OPT_MEMORY, "SWAPNET_MEMORY"},   {'b', "SWAPNET_BUDGET"},
    {'s', "SWAPNET_STORE"},           {OPT_STATS, "SWAPNET_STATS"},
    {OPT_TRACE, "SWAPNET_TRACE"},     {OPT_FETCH, "SWAPNET_FETCH"},
    {OPT_STRICT, "SWAPNET_STRICT"},   {OPT_VERBOSE, "SWAPNET_VERBOSE"},
    {OPT_LIBRARY, "SWAPNET_LIBRARY"}, {OPT_DEVICE_BUDGET, "SWAPNET_DEVICE_BUDGET"},
    {OPT_UNIFIED, "SWAPNET_UNIFIED"}, {OPT_NAME, "SWAPNET_NAME"},
    {OPT_URGENCY, "SWAPNET_URGENCY"}, {OPT_DAEMON, "SWAPNET_DAEMON"},
};

static int set_variable(int option, const char *value)
{
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        if (variables[i].option != option)
            continue;
        if (value && !*value) {
            swn_cli_error("the value for %s is empty", variables[i].variable);
            return -EINVAL;
        }
        if (setenv(variables[i].variable, value ? value : "1", 1) != 0)
            return -errno;
    }
    return 0;
}

/* 0, or -EINVAL: the variable is set, and is none of these words. */
static int check_word(const char *variable, const char *what, const char *const *known, const char *use)
{
    const char *value = getenv(variable);
    if (!value || !*value)
        return 0;
    for (; *known; known++)
        if (strcmp(value, *known) == 0)
            return 0;
    swn_cli_error("%s '%s' is not known: use %s", what, value, use);
    return -EINVAL;
}

static int check_words(void)
{
    static const char *const fetch[] = {"auto", "uring", "pread", "buffered", NULL};
    static const char *const unified[] = {"auto", "off", "pageable", "registered", "managed", NULL};
    int rc = check_word("SWAPNET_FETCH", "fetch path", fetch, "auto, uring, pread or buffered");
    return rc ? rc
              : check_word("SWAPNET_UNIFIED", "kind of memory", unified, "auto, off, pageable, registered or managed");
}

/* The name and urgency by which swapnetd and its users know the program. */
static int check_labels(void)
{
    const char *name = getenv("SWAPNET_NAME"), *urgency = getenv("SWAPNET_URGENCY"), *daemon = getenv("SWAPNET_DAEMON");
    const char *wrong = name && *name ? swn_label_wrong(name) : NULL;
    double unused;
    if (wrong)
        swn_cli_error("name '%s' %s", name, wrong);
    else if (urgency && *urgency && swn_label_urgency(urgency, &unused))
        swn_cli_error("urgency '%s' " SWN_LABEL_NO_URGENCY, urgency);
    else if (daemon && *daemon && strcmp(daemon, "auto") && strcmp(daemon, "off") && *daemon != '/')
        swn_cli_error("'%s' is no way to a daemon: use auto, off or the absolute path of its socket", daemon);
    else
        return 0;
    return -EINVAL;
}

/* 0, or -errno: the variable is set, and is no size of a budget. */
static int check_size(const char *variable, const char *what)
{
    const char *size = getenv(variable), *why = "";
    uint64_t bytes;
    int rc = size && *size ? swn_parse_budget(size, &bytes, &why) : 0;
    if (rc)
        swn_cli_error("%s '%s' %s", what, size, why);
    return rc;
}

/* Whether the library would wait for a daemon (skeleton/budget/daemon_client.c): also for one that does not answer now,
 * or that was killed and will be followed by another. */
static int is_expected(void)
{
    char directory[PATH_MAX], path[2 * PATH_MAX];
    int yes = 0;
    for (unsigned i = 0; !yes; i++) {
        int rc = swn_control_directory(i, directory, sizeof directory);
        if (rc == -ENOENT)
            break;
        snprintf(path, sizeof path, "%s/%s", directory, SWN_DAEMON_SOCKET);
        yes = !rc && swn_lease_has_daemon(path) > 0;
    }
    return yes;
}

int ctl_has_daemon(void)
{
    const char *named = getenv("SWAPNET_DAEMON");
    json_t *answer = NULL;
    if (named && (named[0] == '/' || !strcmp(named, "off")))
        return named[0] == '/';
    int yes = !ctl_ask_daemon("{\"op\":\"version\"}", &answer) || is_expected();
    json_decref(answer);
    return yes;
}

/* On a mistake the library only prints a line on stderr and stays off, so `run` checks the settings first and fails. */
int ctl_run_check(void)
{
    const char *budget = getenv("SWAPNET_BUDGET"), *memory = getenv("SWAPNET_MEMORY");
    int whole = memory && *memory, named = budget && *budget, follows = named && !strcmp(budget, "auto");
    int rc = check_labels();
    if (!rc && !named && !whole && !ctl_has_daemon()) {
        swn_cli_error("no budget: give --budget SIZE, e.g. --budget 256M, or --memory SIZE, or run swapnetd");
        rc = -EINVAL;
    }
    if (!rc)
        rc = check_size("SWAPNET_MEMORY", "memory");
    if (!rc && !follows)
        rc = check_size("SWAPNET_BUDGET", "budget");
    if (!rc)
        rc = check_size("SWAPNET_DEVICE_BUDGET", "device budget");
    return rc ? rc : check_words();
}

/* Puts the library in front of what LD_PRELOAD says, if the command can have it. 0; -errno: said why. */
static int preload(const char *command)
{
    char library[PATH_MAX], program[PATH_MAX], why[SWN_ERRMSG], *list;
    int rc = swn_preload_find(getenv("SWAPNET_LIBRARY"), library, why);
    if (!rc && !swn_preload_program(command, program)) /* else execvp says what is wrong */
        rc = swn_preload_fits(library, program, why);
    if (rc) {
        swn_cli_error("%s", why);
        return rc;
    }
    rc = swn_preload_list(library, getenv("LD_PRELOAD"), &list);
    if (!rc && list && setenv("LD_PRELOAD", list, 1))
        rc = -errno;
    if (rc)
        swn_cli_error("cannot set LD_PRELOAD: %s", strerror(-rc));
    free(list);
    return rc;
}

/* Turns options into variables, and finds the profile that a percentage refers to. 0, 1 when help was shown, or -errno.
 */
static int take_options(int argc, char **argv, const char **profile)
{
    int opt, rc;
    while ((opt = getopt_long(argc, argv, "+:b:s:h", options, NULL)) != -1) {
        switch (opt) {
        case 'h':
            swn_cli_help(argv[0]);
            return 1;
        case '?':
        case ':':
            swn_cli_bad_option(argv, opt);
            return -EINVAL;
        case OPT_PROFILE:
            *profile = optarg;
            break;
        default:
            rc = set_variable(opt, optarg);
            if (rc)
                return rc;
        }
    }
    if (optind >= argc) {
        swn_cli_error("no command to run; see 'swapnetctl help run'");
        return -EINVAL;
    }
    return 0;
}

int ctl_run(int argc, char **argv)
{
    const char *profile = NULL;
    int rc = take_options(argc, argv, &profile);
    if (rc == 1)
        return SWN_CLI_OK;
    if (rc || ctl_share_resolve(profile) || ctl_run_check() != 0 || preload(argv[optind]) != 0)
        return CTL_RUN_FAILED;
    char **command = argv + optind;
    execvp(command[0], command);
    rc = errno;
    swn_cli_error("cannot run '%s': %s", command[0], strerror(rc));
    return rc == ENOENT ? CTL_RUN_NOT_FOUND : CTL_RUN_NOT_EXECUTABLE;
}

/* --- as a child --- */

static volatile sig_atomic_t got_signal;
static volatile pid_t child;

static void on_signal(int sig)
{
    got_signal = sig;
    if (child > 0 && sig != SIGINT && sig != SIGQUIT)
        kill(child, sig);
}

int ctl_run_interrupted(void)
{
    return got_signal;
}

static void become(char **argv, int argc, void (*prepare)(void))
{
    if (prepare)
        prepare();
    optind = 0;
    _exit(ctl_run(argc, argv));
}

int ctl_run_child(char **command, int count, void (*prepare)(void))
{
    static const int passed[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
    enum { PASSED = sizeof passed / sizeof *passed };
    struct sigaction act = {.sa_handler = on_signal}, before[PASSED];
    char **argv = calloc((size_t)count + 3, sizeof *argv);
    sigset_t set, mask;
    if (!argv)
        return -ENOMEM;
    argv[0] = "run";
    argv[1] = "--";
    memcpy(&argv[2], command, (size_t)count * sizeof *argv);
    sigemptyset(&set);
    for (int i = 0; i < PASSED; i++)
        sigaddset(&set, passed[i]);
    /* Blocks signals from fork until the child's pid is known. */
    sigprocmask(SIG_BLOCK, &set, &mask);
    got_signal = 0;
    pid_t pid = fork();
    if (!pid) {
        sigprocmask(SIG_SETMASK, &mask, NULL);
        become(argv, count + 2, prepare);
    }
    child = pid;
    for (int i = 0; i < PASSED; i++)
        sigaction(passed[i], &act, &before[i]);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    int status = 0, rc = pid < 0 ? -errno : 0;
    while (!rc && waitpid(pid, &status, 0) != pid)
        rc = errno == EINTR ? 0 : -errno;
    child = 0;
    for (int i = 0; i < PASSED; i++)
        sigaction(passed[i], &before[i], NULL);
    free(argv);
    return rc ? rc : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
