/* tools/ctl/verify_repository.c - `swapnetctl verify --model-repository`: whether a server's answers have the bits that
 * plain PyTorch gives. A program in Python asks both (tools/verify), as PyTorch is Python's; here are the options, and
 * what is printed. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/paths.h"
#include "base/errmsg.h"
#include "base/size.h"
#include "tools/ctl/ctl.h"
#include "tools/ctl/output.h"

enum { OPT_REPOSITORY = 256, OPT_MEMORY, OPT_SERVER, OPT_THREADS, OPT_REQUESTS, OPT_SEED, OPT_SHAPE };
/* Beyond those of tools/cli.h. */
enum { VERIFY_DIFFERENT = 4, VERIFY_UNDETERMINED = 5 };
/* The document of 4096 models. */
#define DOCUMENT_MOST (16 << 20)

struct job {
    char **words; /* of the program, the last one NULL */
    int count, room;
    int format, has_memory, has_server;
    const char *repository;
    char directory[PATH_MAX], serve[PATH_MAX], memory[32];
};

static int add(struct job *j, const char *word)
{
    if (j->count + 1 >= j->room) {
        int room = j->room ? 2 * j->room : 32;
        char **more = realloc(j->words, (size_t)room * sizeof *more);
        if (!more)
            return -ENOMEM;
        j->words = more;
        j->room = room;
    }
    j->words[j->count++] = (char *)(uintptr_t)word;
    j->words[j->count] = NULL;
    return 0;
}

static int add_pair(struct job *j, const char *option, const char *value)
{
    return add(j, option) || add(j, value) ? -ENOMEM : 0;
}

/* ---- options ---- */

static const struct option options[] = {
    {"model-repository", required_argument, NULL, OPT_REPOSITORY},
    {"memory", required_argument, NULL, OPT_MEMORY},
    {"server", required_argument, NULL, OPT_SERVER},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"requests", required_argument, NULL, OPT_REQUESTS},
    {"seed", required_argument, NULL, OPT_SEED},
    {"shape", required_argument, NULL, OPT_SHAPE},
    {"budget", required_argument, NULL, 'b'}, /* of a program: refused here */
    {"store", required_argument, NULL, 's'},
    {"output", required_argument, NULL, 'o'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static int is_number(const char *text, unsigned long long most)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && n <= most;
}

/* HOST:PORT */
static int is_address(const char *text)
{
    const char *colon = strrchr(text, ':');
    return colon && colon > text && colon[1] != '0' && is_number(colon + 1, 65535);
}

static int take_memory(struct job *j, const char *text)
{
    uint64_t bytes;
    if (swn_parse_size(text, &bytes) || !bytes) {
        swn_cli_error("memory '%s' is no size: use e.g. 800M", text);
        return -EINVAL;
    }
    j->has_memory = 1;
    snprintf(j->memory, sizeof j->memory, "%" PRIu64, bytes);
    return add_pair(j, "--memory", j->memory);
}

static int take_option(struct job *j, int opt, const char *value)
{
    const char *name = opt == OPT_SERVER     ? "--server"
                       : opt == OPT_THREADS  ? "--threads"
                       : opt == OPT_REQUESTS ? "--requests"
                       : opt == OPT_SEED     ? "--seed"
                                             : "--shape";
    int is_wrong = opt == OPT_SERVER     ? !is_address(value)
                   : opt == OPT_THREADS  ? !is_number(value, 1024) || !strcmp(value, "0")
                   : opt == OPT_REQUESTS ? !is_number(value, 1000) || !strcmp(value, "0")
                   : opt == OPT_SEED     ? !is_number(value, INT32_MAX)
                                         : !strchr(value, ':');
    if (opt == OPT_REPOSITORY) {
        j->repository = value;
        return 0;
    }
    if (opt == OPT_MEMORY)
        return take_memory(j, value);
    if (is_wrong) {
        swn_cli_error("%s '%s' is not right; see 'swapnetctl help verify'", name, value);
        return -EINVAL;
    }
    j->has_server |= opt == OPT_SERVER;
    return add_pair(j, name, value);
}

/* 0; 1 when help was shown; -EINVAL, -ENOMEM. */
static int take_options(struct job *j, int argc, char **argv)
{
    int opt, rc = 0;
    while (!rc && (opt = getopt_long(argc, argv, ":b:s:o:h", options, NULL)) != -1) {
        if (opt == 'h')
            return swn_cli_help(argv[0]), 1;
        if (opt == '?' || opt == ':') {
            swn_cli_bad_option(argv, opt);
            rc = -EINVAL;
        } else if (opt == 'b') {
            swn_cli_error("a server has --memory, and no --budget");
            rc = -EINVAL;
        } else if (opt == 'o') {
            rc = (j->format = swn_cli_format(optarg, SWN_CLI_CSV)) < 0 ? -EINVAL : 0;
        } else if (opt == 's') {
            rc = setenv("SWAPNET_STORE", optarg, 1) ? -errno : 0;
        } else {
            rc = take_option(j, opt, optarg);
        }
    }
    if (!rc && j->has_memory && j->has_server) {
        swn_cli_error("a server that runs has its own memory: --memory is for one that is started");
        rc = -EINVAL;
    }
    if (!rc && (!j->repository || !*j->repository)) {
        swn_cli_error("the value of --model-repository is empty");
        rc = -EINVAL;
    }
    if (!rc)
        rc = add_pair(j, "--repository", j->repository);
    if (!rc)
        rc = add_pair(j, "--serve", j->serve);
    if (!rc)
        rc = add(j, "--");
    for (int i = optind; i < argc && !rc; i++)
        rc = add(j, argv[i]);
    return rc;
}

/* ---- the program ---- */

/* Beside this program, as installed and as built. */
static int find_programs(struct job *j)
{
    char own[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    char *slash;
    if (n < 0)
        return -errno;
    own[n] = '\0';
    slash = strrchr(own, '/');
    *slash = '\0';
    if (snprintf(j->serve, sizeof j->serve, "%s/swapnet-serve", own) >= (int)sizeof j->serve)
        return -ENAMETOOLONG;
    int rc = swn_installed("swapnet/verify", j->directory, sizeof j->directory);
    return rc ? rc : access(j->directory, R_OK) || access(j->serve, X_OK) ? -errno : 0;
}

static void become_program(const struct job *j, int out)
{
    const char *python = getenv("SWAPNET_PYTHON");
    python = python && *python ? python : "python3";
    prctl(PR_SET_PDEATHSIG, SIGINT); /* it ends its server */
    dup2(out, STDOUT_FILENO);
    j->words[0] = (char *)(uintptr_t)python;
    execvp(python, j->words);
    swn_cli_error("cannot run '%s': %s", python, strerror(errno));
    _exit(CTL_RUN_NOT_EXECUTABLE);
}

/* All that it writes, terminated; NULL: the reason was printed. */
static char *read_all(int fd)
{
    char *text = malloc(DOCUMENT_MOST + 1);
    size_t have = 0;
    ssize_t n = text ? 1 : 0;
    while (n > 0 && have < DOCUMENT_MOST)
        if ((n = read(fd, text + have, DOCUMENT_MOST - have)) < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            have += (size_t)n;
    if (text)
        text[have] = '\0';
    else
        swn_cli_error("out of memory");
    return text;
}

/* The document, or NULL: the reason was printed. The terminal's keys reach the program, too. */
static json_t *ask(const struct job *j)
{
    int ends[2], status = 0;
    char *text;
    if (pipe2(ends, O_CLOEXEC)) {
        swn_cli_error("cannot make a pipe: %s", strerror(errno));
        return NULL;
    }
    fflush(stdout);
    pid_t pid = fork();
    if (!pid)
        become_program(j, ends[1]);
    close(ends[1]);
    signal(SIGINT, SIG_IGN);
    text = pid < 0 ? NULL : read_all(ends[0]);
    close(ends[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    signal(SIGINT, SIG_DFL);
    json_t *document = text && status == 0 ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    free(text);
    if (pid < 0)
        swn_cli_error("cannot start a process: %s", strerror(errno));
    else if (!document)
        swn_cli_error("there is no verdict; the reason is above");
    return document;
}

/* ---- the answer ---- */

static const char *text_of(char *buf, size_t size, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    snprintf(buf, size, "%s", text ? text : "-");
    swn_one_line(buf);
    return buf;
}

static void print_difference(const json_t *first)
{
    char output[160], plain[256], served[512];
    const json_t *index = json_object_get(first, "index");
    if (!json_is_object(first))
        return;
    printf("  request %" JSON_INTEGER_FORMAT "%s", json_integer_value(json_object_get(first, "request")),
           json_is_true(json_object_get(first, "at_once")) ? ", beside others" : "");
    if (json_is_string(json_object_get(first, "output")))
        printf(", output %s", text_of(output, sizeof output, first, "output"));
    if (json_is_integer(index))
        printf(", element %" JSON_INTEGER_FORMAT, json_integer_value(index));
    printf("\n    plain PyTorch: %s\n    the server:    %s\n", text_of(plain, sizeof plain, first, "plain"),
           text_of(served, sizeof served, first, "served"));
}

static void print_table(const json_t *document)
{
    char name[256], verdict[16], torch[32], reason[512], mib[32];
    const json_t *models = json_object_get(document, "models"), *memory = json_object_get(document, "memory_bytes");
    size_t i;
    json_t *m;
    printf("%-32s %7s %-14s %8s %8s %s\n", "MODEL", "VERSION", "PYTORCH", "REQUESTS", "ANSWERS", "VERDICT");
    json_array_foreach(models, i, m)
    {
        printf("%-32s %7" JSON_INTEGER_FORMAT " %-14s %8" JSON_INTEGER_FORMAT " %8" JSON_INTEGER_FORMAT " %s\n",
               text_of(name, sizeof name, m, "name"), json_integer_value(json_object_get(m, "version")),
               text_of(torch, sizeof torch, m, "torch_version"), json_integer_value(json_object_get(m, "requests")),
               json_integer_value(json_object_get(m, "answers")), text_of(verdict, sizeof verdict, m, "verdict"));
        if (json_is_string(json_object_get(m, "reason")))
            printf("  %s\n", text_of(reason, sizeof reason, m, "reason"));
        print_difference(json_object_get(m, "first_difference"));
    }
    if (json_is_integer(memory))
        printf("\nThe server had %s.\n", swn_format_mib(mib, (uint64_t)json_integer_value(memory)));
}

static void print_csv(const json_t *document)
{
    static const char *const keys[] = {"name", "version", "torch_version", "requests", "answers", "verdict", "reason"};
    ctl_print_csv(keys, sizeof keys / sizeof *keys, json_object_get(document, "models"));
}

static int exit_of(const json_t *document)
{
    const char *verdict = json_string_value(json_object_get(document, "verdict"));
    if (!verdict)
        return SWN_CLI_FAILURE;
    return !strcmp(verdict, "same")           ? SWN_CLI_OK
           : !strcmp(verdict, "different")    ? VERIFY_DIFFERENT
           : !strcmp(verdict, "undetermined") ? VERIFY_UNDETERMINED
                                              : SWN_CLI_FAILURE;
}

int ctl_verify_repository(int argc, char **argv)
{
    static void (*const print[])(const json_t *) = {print_table, ctl_print_json, print_csv};
    struct job j = {.format = SWN_CLI_TABLE};
    json_t *document = NULL;
    int code = SWN_CLI_FAILURE, rc = find_programs(&j);
    if (rc) {
        swn_cli_error("swapnet-serve, or what compares its answers, is not installed beside swapnetctl: %s",
                      strerror(-rc));
        return SWN_CLI_FAILURE;
    }
    if (!add(&j, "python3") && !add(&j, "-B") && !add(&j, j.directory))
        code = (rc = take_options(&j, argc, argv)) == 1 ? SWN_CLI_OK : rc ? SWN_CLI_USAGE : SWN_CLI_FAILURE;
    if (!rc && (document = ask(&j))) {
        print[j.format](document);
        code = exit_of(document);
    }
    json_decref(document);
    free(j.words);
    return code;
}

/* Options end at the first operand, which begins a command that may have such an option itself. */
int ctl_verifies_repository(int argc, char **argv)
{
    int opt, found = 0;
    while (!found && (opt = getopt_long(argc, argv, "+:b:s:o:h", options, NULL)) != -1)
        found = opt == OPT_REPOSITORY;
    optind = 0;
    return found;
}
