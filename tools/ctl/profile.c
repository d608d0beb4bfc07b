/* tools/ctl/profile.c - `swapnetctl profile`: runs a program, and turns the library's records into a profile with the
 * coefficients of the delay model; `--show` prints a profile, `--disk` is in tools/ctl/disk.c. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/ctl/ctl.h"
#include "tools/ctl/disk.h"
#include "profiles/probe_layers.h"
#include "profiles/profile.h"
#include "base/size.h"

#define DEFAULT_OUTPUT "swapnet-profile.json"

enum { OPT_SHOW = 256, OPT_DISK };

struct options {
    const char *output, *show; /* may be NULL */
    int disk, budget, store;   /* which options were given */
    /* The run writes its profile into a new directory beside the old profile, so that the result is certainly new, and
     * the old profile stays until then. */
    char directory[PATH_MAX], made[PATH_MAX];
    char **command;
    int count;
};

/* 0; 1 when help was shown; -EINVAL. */
static int take_options(struct options *o, int argc, char **argv)
{
    static const struct option options[] = {
        {"output", required_argument, NULL, 'o'},
        {"budget", required_argument, NULL, 'b'},
        {"store", required_argument, NULL, 's'},
        {"show", required_argument, NULL, OPT_SHOW},
        {"disk", no_argument, NULL, OPT_DISK},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int opt;
    while ((opt = getopt_long(argc, argv, "+:o:b:s:h", options, NULL)) != -1) {
        if (opt == 'h') {
            swn_cli_help(argv[0]);
            return 1;
        } else if (opt == 'o') {
            o->output = optarg;
        } else if (opt == OPT_SHOW) {
            o->show = optarg;
        } else if (opt == OPT_DISK) {
            o->disk = 1;
        } else if (opt == 'b' || opt == 's') {
            *(opt == 'b' ? &o->budget : &o->store) = 1;
            if (setenv(opt == 'b' ? "SWAPNET_BUDGET" : "SWAPNET_STORE", optarg, 1))
                return -EINVAL;
        } else {
            swn_cli_bad_option(argv, opt);
            return -EINVAL;
        }
    }
    o->command = argv + optind;
    o->count = argc - optind;
    if ((o->count != 0) + (o->show != NULL) + o->disk != 1 || (o->output && !o->output[0])) {
        swn_cli_error("give a command to run, or --disk, or --show with a profile; see 'swapnetctl help profile'");
        return -EINVAL;
    }
    if (o->show && (o->output || o->budget || o->store)) {
        swn_cli_error("--show takes no other option: for programs, the profile itself is JSON");
        return -EINVAL;
    }
    if (o->disk && o->budget) {
        swn_cli_error("--disk runs nothing that a budget could be for");
        return -EINVAL;
    }
    return 0;
}

/* --- the report --- */

static void print_fit(FILE *out, const struct swn_profile *p, int which, const char *what)
{
    const struct swn_profile_fit *f = &p->fit[which];
    if (f->rc)
        fprintf(out, "  %-10s not fitted: %s\n", what, swn_fit_error(f->rc));
    else
        fprintf(out,
                "  %-10s %zu measurements, %zu of them outliers; R^2 %.3f, residuals %.4f ms rms, %.4f ms at most\n",
                what, f->fit.samples, f->fit.outliers, f->fit.r2, f->fit.rms * 1e3, f->fit.worst * 1e3);
}

static void print_coefficient(FILE *out, const struct swn_profile *p, unsigned bit, const char *name, double value,
                              const char *unit)
{
    const char *doubt = swn_profile_doubt(p, bit);
    if (p->known & bit)
        fprintf(out, "  %-6s %11.4g %s%s\n", name, value, unit, p->estimates & bit ? " (estimate)" : "");
    else
        fprintf(out, "  %-6s %11s %s\n", name, "-", unit);
    if (doubt)
        fprintf(out, "         %s\n", doubt);
}

static void print_report(FILE *out, const struct swn_profile *p)
{
    fprintf(out, "coefficients of the delay model:\n");
    print_coefficient(out, p, SWN_ALPHA, "alpha", p->c.alpha, "s/byte");
    print_coefficient(out, p, SWN_BETA, "beta", p->c.beta, "s/reference");
    print_coefficient(out, p, SWN_GAMMA, "gamma", p->c.gamma, "s/FLOP");
    print_coefficient(out, p, SWN_ETA, "eta", p->c.eta, "s/reference");
    if (p->kind == SWN_PROFILE_DEVICE) {
        ctl_disk_print(out, &p->queue);
        return;
    }
    fprintf(out, "how well they fit:\n");
    print_fit(out, p, SWN_FIT_IN, "swap-in");
    print_fit(out, p, SWN_FIT_EX, "execution");
    print_fit(out, p, SWN_FIT_OUT, "swap-out");
}

/* SwapNet's table 2, with measured times. */
static void print_layers(const struct swn_profile *p)
{
    char size[32], other[32];
    printf("%-40s %12s %5s %12s %10s %12s\n", "LAYER", "SIZE", "DEPTH", "FLOPS", "MS", "ACTIVATIONS");
    for (size_t i = 0; i < p->layer_count; i++) {
        const struct swn_profile_layer *l = &p->layers[i];
        char ms[32] = "-";
        if (l->l.compute_s >= 0)
            snprintf(ms, sizeof ms, "%.3f", l->l.compute_s * 1e3);
        swn_cli_print_name(stdout, l->name, 40);
        printf(" %12s %5llu %12llu %10s %12s\n", swn_format_mib(size, l->l.bytes), (unsigned long long)l->l.depth,
               (unsigned long long)l->l.flops, ms, swn_format_mib(other, l->activation_bytes));
    }
    printf("\n%zu layers; nonweight bytes %s", p->layer_count, swn_format_mib(other, p->other_bytes));
    if (p->latency_s >= 0)
        printf("; a pass took %.3f ms (median of %llu)", p->latency_s * 1e3, (unsigned long long)p->passes);
    if (p->latency_s > 0 && p->busy_latency_s > 0)
        printf(", %.1f %% more while the disk is read from", 100 * (p->busy_latency_s / p->latency_s - 1));
    if (p->latency_s > 0 && p->watching_s > 0)
        printf(", %.1f %% less where nothing has to be watched", 100 * p->watching_s / p->latency_s);
    printf("\n\n");
}

static int show(const char *path)
{
    struct swn_profile *p;
    char why[SWN_PROFILE_WHY];
    if (swn_profile_load(&p, path, why)) {
        swn_cli_error("%s: %s", path, why);
        return SWN_CLI_FAILURE;
    }
    if (p->kind == SWN_PROFILE_MODEL)
        print_layers(p);
    print_report(stdout, p);
    swn_profile_free(p);
    return SWN_CLI_OK;
}

/* --- the run --- */

/* The budget is all of the memory, even under a daemon: then nothing is streamed, and computing is measured
 * undisturbed. */
static int default_budget(void)
{
    char text[32];
    const char *set = getenv("SWAPNET_BUDGET");
    if (set && *set)
        return 0;
    long long bytes = (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    snprintf(text, sizeof text, "%lld", bytes > 0 ? bytes : 1ll << 40);
    return setenv("SWAPNET_BUDGET", text, 1) || setenv("SWAPNET_DAEMON", "off", 1) ? -errno : 0;
}

/* Measures swap-ins and swap-outs of such layers, if the run had none, or none that tell the coefficients apart. 0 or
 * -ENOMEM. */
static int probe_disk(struct swn_profile *p)
{
    char dir[PATH_MAX];
    struct swn_queue_depth queue;
    int rc = ctl_disk_dir(dir, sizeof dir);
    if (!rc) {
        queue = ctl_disk_queue(dir);
        rc = swn_probe(p, &swn_io_sys, dir, &queue);
    }
    if (rc)
        swn_cli_error("cannot measure the disk: %s; some coefficients are left out", strerror(-rc));
    return swn_profile_fit(p);
}

/* Anything else with that name (a pipe, a device, a link) must not be replaced. 0 or -errno; printed. */
static int make_place(struct options *o)
{
    struct stat st;
    int rc = !lstat(o->output, &st) && !S_ISREG(st.st_mode) ? -EEXIST : 0;
    if (!rc && snprintf(o->directory, sizeof o->directory, "%s.XXXXXX", o->output) >= (int)sizeof o->directory)
        rc = -ENAMETOOLONG;
    if (!rc && !mkdtemp(o->directory))
        rc = -errno;
    /* The command may change its directory before it computes anything. */
    if (!rc && (!realpath(o->directory, o->made) || strlen(o->made) + sizeof "/profile" > sizeof o->made)) {
        rc = -ENAMETOOLONG;
        rmdir(o->directory);
    }
    if (rc)
        swn_cli_error("cannot write %s: %s", o->output, rc == -EEXIST ? "it is no regular file" : strerror(-rc));
    else
        strcat(o->made, "/profile");
    return rc;
}

static void leave_place(const struct options *o)
{
    unlink(o->made);
    if (rmdir(o->directory))
        swn_cli_error("cannot remove %s: %s", o->directory, strerror(errno));
}

static const struct options *placed; /* whose directory there is */

/* Whoever sees the exit status sees which signal it was. */
static void leave_early(int signal_number)
{
    unlink(placed->made);
    rmdir(placed->directory);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* Before and after the command runs, which ctl_run_child passes signals on to. Ignored signals stay so, as under nohup.
 */
static void leave_place_when_ended(const struct options *o)
{
    static const int endings[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = leave_early}, before;
    sigfillset(&action.sa_mask);
    placed = o;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (!sigaction(endings[i], NULL, &before) && before.sa_handler != SIG_IGN)
            sigaction(endings[i], &action, NULL);
}

/* A profile is written when a program ends in the ordinary way. */
static void say_why_none(int status)
{
    if (status >= CTL_RUN_FAILED && status <= 127)
        swn_cli_error("no profile came of it");
    else if (status > 128 && status < 128 + NSIG)
        swn_cli_error(
            "no profile came of it: the program ended before it wrote one, with status %d as of signal %d (%s)", status,
            status - 128, strsignal(status - 128));
    else
        swn_cli_error(
            "no profile came of it: the program (exit status %d) wrote none; it has to load PyTorch and to end "
            "by itself, not by a signal or os._exit",
            status);
}

static int finish(const struct options *o, int status)
{
    struct swn_profile *p;
    char why[SWN_PROFILE_WHY];
    signal(SIGXFSZ, SIG_IGN); /* a write beyond RLIMIT_FSIZE fails, and the command says so */
    int rc = swn_profile_load(&p, o->made, why);
    if (rc == -ENOENT)
        say_why_none(status);
    else if (rc)
        swn_cli_error("no profile came of it: %s", why);
    if (rc)
        return SWN_CLI_FAILURE;
    rc = swn_profile_fit(p);
    if (!p->layer_count)
        swn_cli_error("the program read no weights again and again: there is nothing to fit");
    else if (!rc && (p->fit[SWN_FIT_IN].rc || p->fit[SWN_FIT_OUT].rc))
        rc = probe_disk(p);
    char *base = strrchr(o->command[o->count > 1], '/');
    char *name = strdup(base ? base + 1 : o->command[o->count > 1]);
    if (name && *name) {
        free(p->name);
        p->name = name;
    }
    if (!rc)
        rc = swn_profile_save(p, o->made);
    if (!rc && rename(o->made, o->output))
        rc = -errno;
    if (rc)
        swn_cli_error("cannot write %s: %s", o->output, strerror(-rc));
    else if (p->layer_count)
        print_report(stderr, p);
    int empty = !p->layer_count;
    swn_profile_free(p);
    return rc || empty ? SWN_CLI_FAILURE : SWN_CLI_OK;
}

int ctl_profile(int argc, char **argv)
{
    static struct options o; /* for leave_early, to the end of the process */
    int rc = take_options(&o, argc, argv);
    if (rc == 1)
        return SWN_CLI_OK;
    if (rc)
        return CTL_RUN_FAILED;
    if (o.show)
        return show(o.show);
    if (o.disk)
        return ctl_disk_profile(o.output);
    o.output = o.output ? o.output : DEFAULT_OUTPUT;
    if (make_place(&o))
        return CTL_RUN_FAILED;
    leave_place_when_ended(&o);
    rc = setenv("SWAPNET_PROFILE", o.made, 1) ? -errno : default_budget();
    if (!rc)
        rc = ctl_run_child(o.command, o.count, NULL);
    int finished = rc < 0 ? CTL_RUN_FAILED : finish(&o, rc);
    if (rc < 0)
        swn_cli_error("cannot run it: %s", strerror(-rc));
    leave_place(&o);
    return rc > 0 ? rc : finished;
}
