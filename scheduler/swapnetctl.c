/* swapnetctl.c - the command line's front door: finds the command, prints help. The commands are in ctl_*.c. */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ctl.h"

#ifndef SWN_VERSION
#define SWN_VERSION "0.1.0"
#endif

static int show_version(int argc, char **argv);
static int show_help(int argc, char **argv);

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
    const char *help;
} commands[] = {
    {"run", ctl_run, "run a program within a memory budget",
     "Usage: swapnetctl run --budget SIZE [OPTION]... [--] COMMAND [ARGUMENT]...\n"
     "\n"
     "Runs COMMAND with libswapnet.so in front of LD_PRELOAD. Options win over SWAPNET_* in the environment.\n"
     "\n"
     "  -b, --budget SIZE   memory for tensors, e.g. 256M or 1.5G (at least 8M)\n"
     "  -s, --store DIR     where block stores and spill files go\n"
     "      --stats FILE    write the counters as JSON at exit\n"
     "      --trace FILE    write a timeline for Perfetto\n"
     "      --fetch PATH    how to read: auto, uring, pread or buffered\n"
     "      --strict        fail an allocation rather than exceed the budget\n"
     "      --verbose       print the effective settings at start\n"
     "      --library FILE  the libswapnet.so to use\n"
     "  -h, --help          show this text\n"
     "\n"
     "Exit status: that of COMMAND; 125 when swapnetctl itself fails, 126 when COMMAND cannot be executed,\n"
     "127 when it is not found.\n"},
    {"status", ctl_status, "show the programs that run under swapnet",
     "Usage: swapnetctl status [-o table|json|csv] [PID]...\n"
     "\n"
     "Asks every swapnet process that you may ask, or those given, for its counters.\n"
     "\n"
     "  -o, --output FORMAT  table (default), json or csv\n"
     "  -h, --help           show this text\n"
     "\n"
     "Exit status: 0; 1 when a PID given does not answer; 2 for wrong usage.\n"},
    {"list", ctl_status, "same as status", NULL},
    {"cache", ctl_cache, "look after the cache of block stores",
     "Usage: swapnetctl cache ls [-o table|json]\n"
     "       swapnetctl cache rm NAME...|--all\n"
     "       swapnetctl cache cap [SIZE|none]\n"
     "\n"
     "Shows the block stores that checkpoints have in the cache, removes some, shows or sets how large all may be.\n"
     "\n"
     "  -o, --output FORMAT  table (default) or json\n"
     "      --all            remove every store\n"
     "  -s, --store DIR      the cache directory (SWAPNET_STORE)\n"
     "  -h, --help           show this text\n"
     "\n"
     "Exit status: 0; 1 when something cannot be read or removed; 2 for wrong usage.\n"},
    {"version", show_version, "show the version", "Usage: swapnetctl version\n"},
    {"help", show_help, "show help, also of one command", "Usage: swapnetctl help [COMMAND]\n"},
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

void ctl_error(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    fputs("swapnetctl: ", stderr);
    vfprintf(stderr, format, ap);
    fputc('\n', stderr);
    va_end(ap);
}

void ctl_bad_option(char **argv, int result)
{
    const char *word = argv[optind - 1];
    if (result == ':')
        ctl_error("option '%s' needs a value; see 'swapnetctl help %s'", word, argv[0]);
    else if (strncmp(word, "--", 2) != 0) /* of several letters in one word optopt is the one */
        ctl_error("unknown option '-%c'; see 'swapnetctl help %s'", optopt, argv[0]);
    else
        ctl_error("unknown or wrong option '%s'; see 'swapnetctl help %s'", word, argv[0]);
}

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

int ctl_help(const char *name)
{
    const struct command *c = find(name);
    if (!c)
        return -ENOENT;
    if (!c->help) /* an alias */
        for (size_t i = 0; i < COMMANDS; i++)
            if (commands[i].run == c->run && commands[i].help)
                c = &commands[i];
    fputs(c->help, stdout);
    return 0;
}

static void overview(FILE *out)
{
    fputs("Usage: swapnetctl COMMAND [OPTION]...\n\nRuns PyTorch programs within a memory budget.\n\n", out);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-8s  %s\n", commands[i].name, commands[i].summary);
    fputs("\nSee 'swapnetctl help COMMAND', swapnetctl(1) and swapnet(7).\n", out);
}

static int show_version(int argc, char **argv)
{
    if (argc > 1) {
        ctl_error("unexpected argument '%s'", argv[1]);
        return CTL_USAGE;
    }
    puts("swapnetctl " SWN_VERSION);
    return CTL_OK;
}

static int show_help(int argc, char **argv)
{
    if (argc > 2) {
        ctl_error("unexpected argument '%s'", argv[2]);
        return CTL_USAGE;
    }
    if (argc < 2) {
        overview(stdout);
    } else if (ctl_help(argv[1]) != 0) {
        ctl_error("no such command: '%s'", argv[1]);
        return CTL_USAGE;
    }
    return CTL_OK;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        overview(stderr);
        return CTL_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    const struct command *c = find(name);
    if (!c) {
        ctl_error("no such command: '%s'; see 'swapnetctl help'", name);
        return CTL_USAGE;
    }
    int rc = c->run(argc - 1, argv + 1);
    /* an answer that did not reach its reader is no success */
    if ((fflush(stdout) != 0 || ferror(stdout)) && rc == CTL_OK) {
        ctl_error("cannot write to standard output: %s", strerror(errno));
        rc = CTL_FAILURE;
    }
    return rc;
}
