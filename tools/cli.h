/* tools/cli.h - what the command line programs share: `PROGRAM COMMAND [OPTION]...`, with help and version.
 *
 * For programs only: it prints, and is not thread-safe. A program is a table of commands and a main that calls
 * swn_cli_main.
 */
#ifndef SWN_TOOLS_CLI_H
#define SWN_TOOLS_CLI_H

#include <getopt.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

/* Exit codes of every program; a program may have more. */
enum swn_cli_exit {
    SWN_CLI_OK = 0,
    SWN_CLI_FAILURE = 1,
    SWN_CLI_USAGE = 2,
};

struct swn_cli_command {
    const char *name;
    /* argv[0] is the name of the command; getopt is reset, and prints nothing. Returns the exit code. */
    int (*run)(int argc, char **argv);
    const char *summary; /* a line of the overview */
    const char *help;    /* NULL: the help of the other command with the same `run` */
};

struct swn_cli {
    const char *program;
    const char *purpose; /* one sentence */
    const char *see;     /* the man pages, for the end of the overview */
    const struct swn_cli_command *commands;
    size_t count; /* without help and version, which every program has */
};

/* Runs the command that argv names. Returns the command's exit code, except that output which could not be written is a
 * failure. `cli` must live as long as the program. */
int swn_cli_main(const struct swn_cli *cli, int argc, char **argv);

/* "PROGRAM: ..." on one line of stderr. Control characters are replaced: the text has names of files and tensors, and a
 * terminal must not take them for commands. */
__attribute__((format(printf, 1, 2))) void swn_cli_error(const char *format, ...);

/* Prints a text that others chose (of a file, a tensor, a program) in at least `width` columns; swn_one_line says what
 * becomes of its characters. */
void swn_cli_print_name(FILE *out, const char *name, int width);

/* A line of JSON on stdout in ASCII, so that none of its texts acts on a terminal either; nothing when root is NULL.
 * `flags` are more of jansson's. */
void swn_cli_print_json(const json_t *root, size_t flags);
/* The text as JSON; null for NULL. Bytes that are not UTF-8, as a path on disk may have, become '?'. */
json_t *swn_cli_json_text(const char *text);

/* Prints what is wrong with `argv[optind - 1]`, for the '?' and ':' results of getopt_long. Values of long options
 * without a letter are above 255. */
void swn_cli_bad_option(char **argv, int result);

/* Prints the help text of a command on stdout; 0, or -ENOENT. */
int swn_cli_help(const char *command);

/* The argument of --output. */
enum swn_cli_format { SWN_CLI_TABLE, SWN_CLI_JSON, SWN_CLI_CSV };
/* One of the formats up to `last`; else prints what is wrong and returns -EINVAL. */
int swn_cli_format(const char *text, enum swn_cli_format last);
/* The options of a command that has only --output and --help. 0, and *format changed if given; 1 when help was shown;
 * -EINVAL after printing what is wrong. The operands begin at optind. */
int swn_cli_only_format(int argc, char **argv, enum swn_cli_format last, int *format);

#endif
