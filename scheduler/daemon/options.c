/* scheduler/daemon/options.c - the settings of swapnetd: one table for the file and the command line. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/daemon/daemon.h"
#include "scheduler/protocol/control.h"
#include "base/cpu_binding.h"
#include "base/size.h"

#define DEFAULT_CONFIG "/etc/swapnet/swapnetd.conf"
#define FILE_MOST 65536

static const char help[] =
    "Usage: swapnetd [OPTION]...\n"
    "\n"
    "Divides one memory budget among the programs that run under swapnet. Stays in the foreground.\n"
    "\n"
    "  -t, --total SIZE|N%      what all get together; N%: that share of the memory there is, less under\n"
    "                           memory pressure (default: 75%)\n"
    "  -p, --policy NAME        minmax (default), eq1 or equal\n"
    "  -c, --cpus LIST          share these CPUs out among the programs, e.g. 0-3\n"
    "  -S, --socket PATH        where to listen (default: swapnetd.sock in $XDG_RUNTIME_DIR/swapnet or /run/swapnet)\n"
    "  -g, --group NAME         members of this group may connect, too\n"
    "      --clients N          connections at most (default: 256)\n"
    "      --clients-per-user N connections of one user at most (default: 200)\n"
    "  -f, --config FILE        read settings from here (default: " DEFAULT_CONFIG ")\n"
    "  -h, --help               show this text\n"
    "  -V, --version            show the version\n"
    "\n"
    "Exit status: 0 when told to end; 1 when it cannot go on; 2 for wrong usage or settings. See swapnetd(8).\n";

static int set_total(struct swd_options *o, const char *value)
{
    char *end;
    double percent = strtod(value, &end);
    if (end != value && !strcmp(end, "%")) {
        if (!(percent >= 1 && percent <= 100))
            return -EINVAL;
        o->total = 0;
        o->share = percent / 100;
        return 0;
    }
    uint64_t bytes;
    if (swn_parse_size(value, &bytes) || bytes < SWN_BUDGET_UNASKED_BYTES || bytes > SWN_WIRE_BYTES_MOST)
        return -EINVAL;
    o->total = bytes;
    return 0;
}

static int set_policy(struct swd_options *o, const char *value)
{
    return swn_divide_parse(value, &o->policy);
}

static int set_cpus(struct swd_options *o, const char *value)
{
    return swn_cpus_parse(value, &o->cpus);
}

static int set_socket(struct swd_options *o, const char *value)
{
    if (value[0] != '/' || strlen(value) >= sizeof o->socket)
        return -EINVAL;
    strcpy(o->socket, value);
    o->socket_given = 1;
    return 0;
}

static int set_group(struct swd_options *o, const char *value)
{
    const struct group *g = getgrnam(value);
    if (!g)
        return -EINVAL;
    o->group = g->gr_gid;
    return 0;
}

static int number(const char *value, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(value, &end, 10);
    if (*value < '0' || *value > '9' || *end || errno || n < 1 || n > most)
        return -EINVAL;
    *out = n;
    return 0;
}

static int set_clients(struct swd_options *o, const char *value)
{
    return number(value, 4096, &o->clients);
}

static int set_per_user(struct swd_options *o, const char *value)
{
    return number(value, 4096, &o->clients_per_user);
}

static const struct setting {
    const char *name;
    int letter;
    int (*set)(struct swd_options *o, const char *value);
    const char *expected;
} settings[] = {
    {"total", 't', set_total, "a size from 8M to " SWN_MEMORY_MOST_TEXT ", e.g. 2G, or a share like 75%"},
    {"policy", 'p', set_policy, "eq1, equal or minmax"},
    {"cpus", 'c', set_cpus, "a list of CPUs like 0-3,6"},
    {"socket", 'S', set_socket, "an absolute path"},
    {"group", 'g', set_group, "the name of a group that this machine has"},
    {"clients", 256, set_clients, "a number from 1 to 4096"},
    {"clients-per-user", 257, set_per_user, "a number from 1 to 4096"},
};
#define SETTINGS (sizeof settings / sizeof *settings)

static int apply(struct swd_options *o, const struct setting *s, const char *value, const char *where)
{
    if (!s->set(o, value))
        return 0;
    swd_say("%s%s '%s' is not right: use %s", where, s->name, value, s->expected);
    return -EINVAL;
}

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t len = strlen(text);
    while (len && strchr(" \t\r", text[len - 1]))
        text[--len] = '\0';
    return text;
}

/* "name = value"; '#' begins a comment. */
static int take_line(struct swd_options *o, char *line, const char *where)
{
    line[strcspn(line, "#")] = '\0';
    char *name = trim(line), *equals = strchr(name, '=');
    if (!*name)
        return 0;
    if (!equals) {
        swd_say("%s'%s' is no setting: write NAME = VALUE", where, name);
        return -EINVAL;
    }
    *equals = '\0';
    name = trim(name);
    for (size_t i = 0; i < SETTINGS; i++)
        if (!strcmp(settings[i].name, name))
            return apply(o, &settings[i], trim(equals + 1), where);
    swd_say("%sthere is no setting '%s'", where, name);
    return -EINVAL;
}

static int take_file(struct swd_options *o)
{
    char text[FILE_MOST + 1], where[PATH_MAX + 32], *save = NULL;
    FILE *f = fopen(o->config, "re");
    if (!f && errno == ENOENT && !o->config_given)
        return 0;
    size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    int err = !f || ferror(f) ? errno ? -errno : -EIO : n > FILE_MOST ? -EFBIG : 0;
    if (f)
        fclose(f);
    if (err) {
        swd_say("cannot read %s: %s", o->config, strerror(-err));
        return -EINVAL;
    }
    text[n] = '\0';
    unsigned number_of_line = 0;
    /* strsep, not strtok: empty lines count */
    save = text;
    for (char *line = strsep(&save, "\n"); line && !err; line = strsep(&save, "\n")) {
        snprintf(where, sizeof where, "%s:%u: ", o->config, ++number_of_line);
        err = take_line(o, line, where);
    }
    return err;
}

/* Takes the options that count before the file is read: 0, 1, -EINVAL. With `file_only` skips all others. */
static int take_words(struct swd_options *o, int argc, char **argv, int file_only)
{
    static const struct option options[] = {
        {"total", required_argument, NULL, 't'},
        {"policy", required_argument, NULL, 'p'},
        {"cpus", required_argument, NULL, 'c'},
        {"socket", required_argument, NULL, 'S'},
        {"group", required_argument, NULL, 'g'},
        {"clients", required_argument, NULL, 256},
        {"clients-per-user", required_argument, NULL, 257},
        {"config", required_argument, NULL, 'f'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0},
    };
    int opt;
    optind = 0;
    opterr = 0;
    while ((opt = getopt_long(argc, argv, ":t:p:c:S:g:f:hV", options, NULL)) != -1) {
        if (opt == '?' || opt == ':') {
            swd_say("%s '%s'; see swapnetd --help", opt == ':' ? "a value is missing behind" : "unknown option",
                    argv[optind - 1]);
            return -EINVAL;
        }
        if (opt == 'h' || opt == 'V') {
            fputs(opt == 'h' ? help : "swapnetd " SWAPNET_VERSION "\n", stdout);
            return fflush(stdout) ? -EINVAL : 1;
        }
        if (opt == 'f' && file_only) {
            o->config_given = 1;
            if (snprintf(o->config, sizeof o->config, "%s", optarg) >= (int)sizeof o->config) {
                swd_say("--config: the name of the file is too long");
                return -EINVAL;
            }
        }
        for (size_t i = 0; i < SETTINGS && !file_only; i++)
            if (settings[i].letter == opt && apply(o, &settings[i], optarg, "--"))
                return -EINVAL;
    }
    if (optind < argc) {
        swd_say("unexpected argument '%s'; see swapnetd --help", argv[optind]);
        return -EINVAL;
    }
    return 0;
}

/* CPUs that are not there are left out: a program whose part has only such would be bound to none. 0 or -EINVAL. */
static int take_present_cpus(struct swd_options *o)
{
    char text[4096], missing[256], rest[256];
    FILE *f = CPU_COUNT(&o->cpus) ? fopen("/sys/devices/system/cpu/online", "re") : NULL;
    cpu_set_t online, absent;
    int has_line = f && fgets(text, sizeof text, f);

    if (f)
        fclose(f);
    if (has_line)
        text[strcspn(text, "\n")] = '\0';
    if (!has_line || swn_cpus_parse(text, &online))
        return 0;
    CPU_XOR(&absent, &o->cpus, &online);
    CPU_AND(&absent, &absent, &o->cpus);
    if (!CPU_COUNT(&absent))
        return 0;
    CPU_AND(&o->cpus, &o->cpus, &online);
    swn_cpus_format(missing, sizeof missing, &absent);
    if (!CPU_COUNT(&o->cpus)) {
        swd_say("cpus '%s' are not there: this machine has %s", missing, swn_cpus_format(rest, sizeof rest, &online));
        return -EINVAL;
    }
    swd_say("cpus '%s' are not there: programs share %s", missing, swn_cpus_format(rest, sizeof rest, &o->cpus));
    return 0;
}

int swd_options_take(struct swd_options *o, int argc, char **argv)
{
    *o = (struct swd_options){.share = 0.75,
                              .policy = SWN_DIVIDE_MINMAX,
                              .clients = 256,
                              .clients_per_user = 200,
                              .config = DEFAULT_CONFIG,
                              .group = (gid_t)-1};
    int rc = take_words(o, argc, argv, 1);
    if (!rc)
        rc = take_file(o);
    if (!rc)
        rc = take_words(o, argc, argv, 0);
    return rc ? rc : take_present_cpus(o);
}
