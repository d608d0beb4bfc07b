/* tools/ctl/ctl.h - what the files of swapnetctl share. */
#ifndef SWN_TOOLS_CTL_CTL_H
#define SWN_TOOLS_CTL_CTL_H

#include "tools/cli.h"

/* Beyond those of tools/cli.h. */
enum ctl_exit {
    /* `run` replaces itself by the command that it starts, as env and timeout do, so its exit codes must not collide
     * with the command's. */
    CTL_RUN_FAILED = 125,
    CTL_RUN_NOT_EXECUTABLE = 126,
    CTL_RUN_NOT_FOUND = 127,
};

int ctl_run(int argc, char **argv);
int ctl_status(int argc, char **argv);
int ctl_top(int argc, char **argv);
int ctl_set(int argc, char **argv);
int ctl_total(int argc, char **argv);
int ctl_drain(int argc, char **argv);
int ctl_plan(int argc, char **argv);
int ctl_serve(int argc, char **argv);
int ctl_profile(int argc, char **argv);
int ctl_verify(int argc, char **argv);
/* `verify` of a server's models instead of a program; whether that is meant: an option says so, before the command. */
int ctl_verify_repository(int argc, char **argv);
int ctl_verifies_repository(int argc, char **argv);
int ctl_cache(int argc, char **argv);
int ctl_doctor(int argc, char **argv);
int ctl_add_torch(int argc, char **argv);

/* The interpreter that doctor and add-torch are about: `named`, else SWAPNET_PYTHON, else python3. */
const char *ctl_python(const char *named);

/* The exit status of the command under `swapnetctl run`, 128 + N if signal N ended it; or -errno. The program gets the
 * signals of the terminal's keys itself; ctl_run_child passes on the other signals that end programs. The new process
 * calls `prepare` first, to change its environment; NULL: nothing to do. */
int ctl_run_child(char **command, int count, void (*prepare)(void));
/* The signal that reached this process during the last ctl_run_child; 0: none. */
int ctl_run_interrupted(void);
/* Whether a daemon gives the budget: one is named, or answers, or was killed and will be followed by another. */
int ctl_has_daemon(void);
/* Turns a budget in percent into bytes, by the model profile `path`; NULL: none was named. 0; -errno: the reason was
 * printed. */
int ctl_share_resolve(const char *path);
/* Prints what is wrong with the settings for `run`, in the words of `run`. 0 or -errno. */
int ctl_run_check(void);

#endif
