/* ctl.h - what the files of swapnetctl share. */
#ifndef SWN_CTL_H
#define SWN_CTL_H

#include "swn_cli.h"

/* Beyond those of swn_cli.h. */
enum ctl_exit {
    /* `run` stands in for the command it starts, as env and timeout do, and keeps out of the way of its exit codes. */
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
int ctl_profile(int argc, char **argv);
int ctl_cache(int argc, char **argv);

#endif
