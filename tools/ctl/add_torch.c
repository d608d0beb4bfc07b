/* tools/ctl/add_torch.c - `swapnetctl add-torch`: builds backends for a PyTorch that none was shipped for. A program in
 * Python compiles them (tools/add_torch), which the interpreter with that PyTorch runs; here are the options and the
 * directory. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "base/system_memory.h"
#include "skeleton/abi/backend_file.h"
#include "tools/ctl/ctl.h"

static const struct option options[] = {
    {"jobs", required_argument, NULL, 'j'},
    {"no-serve", no_argument, NULL, 'n'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* Makes the user's directory. 0; -errno: said why. */
static int make_directory(char *dir, size_t size)
{
    int rc = swn_backend_user_dir(environ, dir, size);
    if (rc) {
        swn_cli_error("cannot tell where backends of yours go: neither XDG_DATA_HOME nor HOME is an absolute path");
        return rc;
    }
    rc = swn_make_trusted_dirs(dir);
    if (!rc)
        rc = swn_backend_dir_is_private(dir);
    if (rc == -EPERM || rc == -ELOOP)
        swn_cli_error("%s is not yours alone: it must be your own directory, no link, and nobody else's to write to",
                      dir);
    else if (rc)
        swn_cli_error("cannot make %s: %s", dir, strerror(-rc));
    return rc;
}

/* PyTorch's headers take a compiler more than a gigabyte. */
#define COMPILER_BYTES (UINT64_C(1536) << 20)
#define COMPILERS_MOST 8

/* As many compilers as there are processors for this process, and as memory has room for. */
static int default_jobs(void)
{
    struct swn_memory m;
    cpu_set_t set;
    uint64_t jobs = COMPILERS_MOST;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && (uint64_t)CPU_COUNT(&set) < jobs)
        jobs = (uint64_t)CPU_COUNT(&set);
    if (swn_memory_read(&m, "") == 0) {
        uint64_t room = m.cgroup_limit > m.cgroup_usage ? m.cgroup_limit - m.cgroup_usage : 0;
        room = room < m.available ? room : m.available;
        jobs = room / COMPILER_BYTES < jobs ? room / COMPILER_BYTES : jobs;
    }
    return jobs ? (int)jobs : 1;
}

static int count_of(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    return *end || end == text || n < 1 || n > 1024 ? -EINVAL : (int)n;
}

/* 0; 1: help was shown; -EINVAL: said why. */
static int take_options(int argc, char **argv, int *jobs, int *serves)
{
    int opt;
    while ((opt = getopt_long(argc, argv, ":j:h", options, NULL)) != -1) {
        if (opt == 'h')
            return swn_cli_help(argv[0]), 1;
        if (opt == 'n') {
            *serves = 0;
        } else if (opt != 'j') {
            swn_cli_bad_option(argv, opt);
            return -EINVAL;
        } else if ((*jobs = count_of(optarg)) < 0) {
            swn_cli_error("--jobs takes a number from 1 to 1024");
            return -EINVAL;
        }
    }
    if (argc - optind <= 1)
        return 0;
    swn_cli_error("more than one interpreter; see 'swapnetctl help add-torch'");
    return -EINVAL;
}

const char *ctl_python(const char *named)
{
    const char *python = named ? named : getenv("SWAPNET_PYTHON");
    return python && *python ? python : "python3";
}

int ctl_add_torch(int argc, char **argv)
{
    char dir[PATH_MAX], shipped[PATH_MAX], program[PATH_MAX + 16], number[16];
    int jobs = default_jobs(), serves = 1;
    int rc = take_options(argc, argv, &jobs, &serves);
    if (rc)
        return rc > 0 ? SWN_CLI_OK : SWN_CLI_USAGE;
    const char *python = ctl_python(optind < argc ? argv[optind] : NULL);
    if (swn_installed("swapnet", shipped, sizeof shipped)) {
        swn_cli_error("cannot tell where it is installed");
        return SWN_CLI_FAILURE;
    }
    snprintf(program, sizeof program, "%s/add_torch", shipped);
    if (access(program, R_OK)) {
        swn_cli_error("there is no %s: this swapnet was installed without what backends are built from", program);
        return SWN_CLI_FAILURE;
    }
    if (make_directory(dir, sizeof dir))
        return SWN_CLI_FAILURE;
    snprintf(number, sizeof number, "%d", jobs);
    /* -B: nothing is written beside the program. */
    execlp(python, python, "-B", program, dir, shipped, number, "aten", serves ? "serve" : NULL, (char *)NULL);
    swn_cli_error("cannot run %s: %s", python, strerror(errno));
    return SWN_CLI_FAILURE;
}
