/* tools/cli.c - see cli.h. */
#include "tools/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/errmsg.h"

static const struct swn_cli *cli;

static int show_version(int argc, char **argv);
static int show_help(int argc, char **argv);

static const struct swn_cli_command common[] = {
    {"version", show_version, "show the version",
     "Usage: %s version [-o table|json|csv]\n"
     "\n"
     "  -o, --output FORMAT  table (default), json or csv\n"
     "  -h, --help           show this text\n"},
    {"help", show_help, "show help, also of one command", "Usage: %s help [COMMAND]\n"},
};
#define COMMON (sizeof common / sizeof *common)

void swn_cli_error(const char *format, ...)
{
    char text[2 * PATH_MAX];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    swn_one_line(text);
    fprintf(stderr, "%s: %s\n", cli->program, text);
}

void swn_cli_print_name(FILE *out, const char *name, int width)
{
    char *text = strdup(name);
    if (text)
        swn_one_line(text);
    fprintf(out, "%-*s", width, text ? text : "?");
    free(text);
}

void swn_cli_print_json(const json_t *root, size_t flags)
{
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_ENSURE_ASCII | flags) : NULL;
    for (const char *p = text; p && *p; p++)
        if (*p == 0x7f) /* the one control character that jansson leaves */
            fputs("\\u007F", stdout);
        else
            putchar(*p);
    if (text)
        putchar('\n');
    free(text);
}

json_t *swn_cli_json_text(const char *text)
{
    json_t *value = text ? json_string(text) : json_null();
    char *copy = value ? NULL : strdup(text);
    if (copy) {
        swn_make_utf8(copy);
        value = json_string(copy);
    }
    free(copy);
    return value;
}

void swn_cli_bad_option(char **argv, int result)
{
    const char *word = argv[optind - 1];
    if (result == ':')
        swn_cli_error("option '%s' needs a value; see '%s help %s'", word, cli->program, argv[0]);
    else if (strncmp(word, "--", 2) != 0) /* with several letters in one word, optopt is the wrong one */
        swn_cli_error("unknown option '-%c'; see '%s help %s'", optopt, cli->program, argv[0]);
    else
        swn_cli_error("unknown or wrong option '%s'; see '%s help %s'", word, cli->program, argv[0]);
}

int swn_cli_format(const char *text, enum swn_cli_format last)
{
    static const char *const names[] = {"table", "json", "csv"}, *const lists[] = {"table", "table or json",
                                                                                   "table, json or csv"};
    for (int i = SWN_CLI_TABLE; i <= (int)last; i++)
        if (strcmp(names[i], text) == 0)
            return i;
    swn_cli_error("unknown format '%s': use %s", text, lists[last]);
    return -EINVAL;
}

int swn_cli_only_format(int argc, char **argv, enum swn_cli_format last, int *format)
{
    static const struct option options[] = {
        {"output", required_argument, NULL, 'o'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    int opt;
    while ((opt = getopt_long(argc, argv, ":o:h", options, NULL)) != -1) {
        if (opt == 'h') {
            swn_cli_help(argv[0]);
            return 1;
        }
        if (opt != 'o')
            swn_cli_bad_option(argv, opt);
        if (opt != 'o' || (*format = swn_cli_format(optarg, last)) < 0)
            return -EINVAL;
    }
    return 0;
}

/* The i-th command, NULL behind the last. */
static const struct swn_cli_command *command(size_t i)
{
    if (i < cli->count)
        return &cli->commands[i];
    return i - cli->count < COMMON ? &common[i - cli->count] : NULL;
}

static const struct swn_cli_command *find(const char *name)
{
    const struct swn_cli_command *c;
    for (size_t i = 0; (c = command(i)); i++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

int swn_cli_help(const char *name)
{
    const struct swn_cli_command *c = find(name), *other;
    if (!c)
        return -ENOENT;
    for (size_t i = 0; !c->help && (other = command(i)); i++)
        if (other->run == c->run && other->help)
            c = other;
    if (c >= common && c < common + COMMON)
        printf(c->help, cli->program);
    else
        fputs(c->help, stdout);
    return 0;
}

static void overview(FILE *out)
{
    const struct swn_cli_command *c;
    fprintf(out, "Usage: %s COMMAND [OPTION]...\n\n%s\n\n", cli->program, cli->purpose);
    for (size_t i = 0; (c = command(i)); i++)
        fprintf(out, "  %-8s  %s\n", c->name, c->summary);
    fprintf(out, "\nSee '%s help COMMAND', %s.\n", cli->program, cli->see);
}

static int show_version(int argc, char **argv)
{
    static const char *const texts[] = {
        "%s " SWAPNET_VERSION "\n",
        "{\"schema\": 1, \"program\": \"%s\", \"version\": \"" SWAPNET_VERSION "\"}\n",
        "program,version\n%s," SWAPNET_VERSION "\n",
    };
    int format = SWN_CLI_TABLE, rc = swn_cli_only_format(argc, argv, SWN_CLI_CSV, &format);
    if (rc)
        return rc == 1 ? SWN_CLI_OK : SWN_CLI_USAGE;
    if (optind < argc) {
        swn_cli_error("unexpected argument '%s'", argv[optind]);
        return SWN_CLI_USAGE;
    }
    printf(texts[format], cli->program);
    return SWN_CLI_OK;
}

static int show_help(int argc, char **argv)
{
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")))
        argv[1] = argv[0];
    if (argc > 2) {
        swn_cli_error("unexpected argument '%s'", argv[2]);
        return SWN_CLI_USAGE;
    }
    if (argc < 2) {
        overview(stdout);
    } else if (swn_cli_help(argv[1]) != 0) {
        swn_cli_error("no such command: '%s'", argv[1]);
        return SWN_CLI_USAGE;
    }
    return SWN_CLI_OK;
}

int swn_cli_main(const struct swn_cli *program, int argc, char **argv)
{
    cli = program;
    if (argc < 2) {
        overview(stderr);
        return SWN_CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    const struct swn_cli_command *c = find(name);
    if (!c) {
        swn_cli_error("no such command: '%s'; see '%s help'", name, cli->program);
        return SWN_CLI_USAGE;
    }
    opterr = 0;
    optind = 1;
    int rc = c->run(argc - 1, argv + 1);
    if ((fflush(stdout) != 0 || ferror(stdout)) && rc == SWN_CLI_OK) {
        swn_cli_error("cannot write to standard output: %s", strerror(errno));
        rc = SWN_CLI_FAILURE;
    }
    return rc;
}
