/* shim/serve/torch_backend.c - finds a PyTorch and its serve backend: see torch_backend.h. */
#define _GNU_SOURCE
#include "shim/serve/torch_backend.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/paths.h"
#include "skeleton/abi/backend_file.h"
#include "skeleton/abi/torch_link.h"
#include "skeleton/abi/torch_version.h"

extern char **environ;

/* Prints the directory of the package torch: locating it takes no time, importing it takes seconds. Nothing is imported
 * from the working directory, which may be anybody's, and a torch.py there is not meant. */
static const char question[] = "import sys\n"
                               "sys.path[:] = [p for p in sys.path if p]\n"
                               "import importlib.util as u, os\n"
                               "d = os.path.dirname(os.path.realpath(u.find_spec('torch').origin))\n"
                               "print(d)\n";

/* First line that the interpreter prints, without its newline. 0 or -1. */
static int ask_python(const char *python, char *line, size_t size)
{
    char *argv[] = {(char *)(uintptr_t)python, (char *)(uintptr_t) "-c", (char *)(uintptr_t)question, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2], status = -1, rc = -1;
    pid_t pid;

    if (pipe(ends) < 0)
        return -1;
    if (posix_spawn_file_actions_init(&actions) == 0) {
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        posix_spawn_file_actions_addclose(&actions, ends[0]);
        posix_spawn_file_actions_addclose(&actions, ends[1]);
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", 1, 0);
        rc = posix_spawnp(&pid, python, &actions, NULL, argv, environ) ? -1 : 0;
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    FILE *f = fdopen(ends[0], "r");
    if (f == NULL)
        close(ends[0]);
    if (rc == 0 && (f == NULL || fgets(line, (int)size, f) == NULL))
        rc = -1;
    if (f)
        fclose(f);
    while (rc == 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    line[rc == 0 ? strcspn(line, "\n") : 0] = 0;
    return rc == 0 && status == 0 && line[0] == '/' ? 0 : -1;
}

/* "2.13" from the version.py of a package, or of the package whose lib/ the directory is. */
static int version_of(const char *directory, char *version, size_t size)
{
    static const char *const places[] = {"version.py", "../version.py"};
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, places[i]) < sizeof path &&
            swn_torch_version_read(path, version, size) == 0)
            return 0;
    return -1;
}

/* A wheel's libraries find each other from where they lie. Debian's are where every library is. A handle, or NULL. */
static void *open_libraries(const char *directory, const char *version, char *why, size_t size)
{
    static const char *const places[] = {"lib/libtorch_cpu.so", "libtorch_cpu.so"};
    char path[PATH_MAX];
    void *library;

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, places[i]) < sizeof path &&
            access(path, R_OK) == 0) {
            library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
            if (library == NULL)
                snprintf(why, size, "cannot load %s", dlerror());
            return library;
        }
    snprintf(path, sizeof path, "libtorch_cpu.so.%s", version);
    library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL)
        snprintf(why, size, "no libtorch_cpu.so for the PyTorch in %s: %s", directory, dlerror());
    return library;
}

static const struct swn_serve_backend *open_backend(const char *version, void *torch, char *why, size_t size)
{
    char shipped[PATH_MAX], name[64], path[2 * PATH_MAX];
    const struct swn_serve_backend *backend;
    void *library;

    if (swn_installed("swapnet", shipped, sizeof shipped))
        shipped[0] = 0;
    swn_backend_name("serve", version, swn_backend_has_old_strings(torch), name, sizeof name);
    if (swn_backend_find(shipped, environ, name, path, sizeof path, why, size) < 0 ||
        swn_torch_link(NULL, why, size) < 0)
        return NULL;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    backend = library ? dlsym(library, "swn_serve_backend") : NULL;
    if (backend == NULL || backend->abi != SWN_SERVE_ABI) {
        snprintf(why, size, "cannot use %s: %s", path,
                 library ? "it belongs to another swapnet; install swapnet again" : dlerror());
        return NULL;
    }
    return backend;
}

const struct swn_serve_backend *swn_torch_backend_open(const char *directory, char *why, size_t size)
{
    const char *python = getenv("SWAPNET_PYTHON");
    char found[PATH_MAX], version[32];

    if (directory == NULL)
        directory = getenv("SWAPNET_TORCH");
    if (directory == NULL || directory[0] == 0) {
        python = python && python[0] ? python : "python3";
        if (ask_python(python, found, sizeof found) < 0) {
            snprintf(why, size,
                     "%s has no PyTorch; name another interpreter in SWAPNET_PYTHON, or a directory in "
                     "SWAPNET_TORCH",
                     python);
            return NULL;
        }
        directory = found;
    }
    if (version_of(directory, version, sizeof version) < 0) {
        snprintf(why, size, "cannot tell which PyTorch is in %s: it has no version.py", directory);
        return NULL;
    }
    void *torch = open_libraries(directory, version, why, size);
    return torch ? open_backend(version, torch, why, size) : NULL;
}
