/* ctl.h - what the files of swapnetctl share. Each command gets its own argc/argv, argv[0] being the command's name,
 * and returns the exit code.
 */
#ifndef SWN_CTL_H
#define SWN_CTL_H

enum ctl_exit {
    CTL_OK = 0,
    CTL_FAILURE = 1,
    CTL_USAGE = 2,
    /* `run` stands in for the command it starts, as env and timeout do, and keeps out of the way of its exit codes. */
    CTL_RUN_FAILED = 125,
    CTL_RUN_NOT_EXECUTABLE = 126,
    CTL_RUN_NOT_FOUND = 127,
};

int ctl_run(int argc, char **argv);
int ctl_status(int argc, char **argv);
int ctl_cache(int argc, char **argv);

/* "swapnetctl: ..." on one line of stderr. */
__attribute__((format(printf, 1, 2))) void ctl_error(const char *format, ...);

/* Says what is wrong with `argv[optind - 1]`, for the '?' and ':' results of getopt_long with opterr = 0. */
void ctl_bad_option(char **argv, int result);

/* Prints the help text of a command on stdout; 0, or -ENOENT. */
int ctl_help(const char *command);

#endif
