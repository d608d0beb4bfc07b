/* shim/serve/main.c - swapnet-engine: runs models for swapnet-serve, which starts it.
 *
 * PyTorch is not linked: which one to use is found at start, and the serve backend for it is loaded (torch_backend.c).
 * With --worker the process becomes the interpreter, with the worker that runs models in Python (shim/worker).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/paths.h"
#include "shim/serve/engine.h"
#include "shim/serve/torch_backend.h"

static int usage(FILE *to)
{
    fprintf(to, "usage: swapnet-engine --socket FD --buffer FD [--torch DIR | --worker]\n"
                "Runs models for swapnet-serve, which starts it.\n");
    return to == stdout ? 0 : SWN_EXIT_USAGE;
}

/* A descriptor's number, or -1. */
static int descriptor(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);

    return *end || end == text || n < 0 || n > INT32_MAX ? -1 : (int)n;
}

/* What a model prints is no output of ours, and what is typed is not for it. */
static void detach_from_terminal(void)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (null >= 0)
        dup2(null, STDIN_FILENO);
    if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        swn_say("engine: cannot redirect the output: %s", strerror(errno));
}

/* Does not return where the interpreter starts. */
static int become_worker(int socket, int buffer)
{
    const char *python = getenv("SWAPNET_PYTHON");
    char worker[PATH_MAX], ends[2][16], why[SWN_WIRE_ENGINE_TEXT];

    python = python && python[0] ? python : "python3";
    if (swn_installed("swapnet/worker", worker, sizeof worker)) {
        swn_say("engine: cannot tell where it is installed");
        return SWN_EXIT_NO_TORCH;
    }
    snprintf(ends[0], sizeof ends[0], "%d", socket);
    snprintf(ends[1], sizeof ends[1], "%d", buffer);
    /* -B: nothing is written to the repository. -u: the last words of a model that dies are seen. */
    execlp(python, python, "-B", "-u", worker, ends[0], ends[1], (char *)NULL);
    snprintf(why, sizeof why, "cannot run %s: %s", python, strerror(errno));
    swn_say("engine: %s", why);
    return SWN_EXIT_NO_TORCH;
}

static int become_engine(int socket, int buffer, const char *torch)
{
    static char why[SWN_WIRE_ENGINE_TEXT];
    const struct swn_serve_backend *backend;

    setenv("SWAPNET_MANY_MODELS", "1", 0);
    backend = swn_torch_backend_open(torch, why, sizeof why);
    if (backend == NULL) {
        swn_say("engine: %s", why);
        return SWN_EXIT_NO_TORCH;
    }
    return swn_engine_run(backend, socket, buffer);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"socket", required_argument, NULL, 's'},
        {"buffer", required_argument, NULL, 'b'},
        {"torch", required_argument, NULL, 't'},
        {"worker", no_argument, NULL, 'w'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0},
    };
    const char *torch = NULL;
    int socket = -1, buffer = -1, is_worker = 0, option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 's':
            socket = descriptor(optarg);
            break;
        case 'b':
            buffer = descriptor(optarg);
            break;
        case 't':
            torch = optarg;
            break;
        case 'w':
            is_worker = 1;
            break;
        case 'V':
            printf("swapnet-engine %s\n", SWAPNET_VERSION);
            return 0;
        case 'h':
            return usage(stdout);
        default:
            return usage(stderr);
        }
    if (socket < 0 || buffer < 0 || optind < argc)
        return usage(stderr);
    detach_from_terminal();
    /* A request that does not fit fails; the memory of others is not taken for it. */
    setenv("SWAPNET_STRICT", "1", 0);
    return is_worker ? become_worker(socket, buffer) : become_engine(socket, buffer, torch);
}
