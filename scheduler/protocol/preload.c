/* scheduler/protocol/preload.c - see preload.h. */
#define _GNU_SOURCE
#include "scheduler/protocol/preload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"
#include "scheduler/protocol/elf_file.h"

#define LIBRARY "libswapnet.so"

int swn_preload_find(const char *wanted, char out[PATH_MAX], char why[SWN_ERRMSG])
{
    char beside[PATH_MAX] = LIBRARY;
    struct stat st;
    int rc = 0;
    if (!wanted || !*wanted) {
        rc = swn_installed(LIBRARY, beside, sizeof(beside));
        wanted = beside;
    }
    if (rc == 0 && (!realpath(wanted, out) || stat(out, &st) != 0 || access(out, R_OK) != 0))
        rc = -errno;
    if (rc == 0 && !S_ISREG(st.st_mode))
        rc = -EINVAL;
    if (rc)
        return swn_errmsg(why, rc, "cannot use the library '%s': %s; give its place with --library", wanted,
                          strerror(-rc));
    if (strpbrk(out, ": ")) /* both characters separate entries of LD_PRELOAD, and neither can be quoted */
        return swn_errmsg(why, -EINVAL,
                          "the library '%s' has a space or a colon in its path: LD_PRELOAD cannot name it", out);
    struct swn_elf elf;
    rc = swn_elf_read(out, &elf);
    if (!rc && !elf.is_shared)
        rc = -ENOEXEC;
    if (rc)
        return swn_errmsg(why, rc, "cannot use the library '%s': %s", out,
                          rc == -ENOEXEC ? "it is no shared library, or not a whole one" : strerror(-rc));
    return 0;
}

/* Whether execvp would take the file, or say what is wrong with it. */
static int is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

int swn_preload_program(const char *command, char out[PATH_MAX])
{
    const char *path = getenv("PATH");
    if (strchr(command, '/')) {
        snprintf(out, PATH_MAX, "%s", command);
        return strlen(command) < PATH_MAX && is_program(command) ? 0 : -ENOENT;
    }
    for (const char *at = path ? path : "/bin:/usr/bin", *end; *command; at = end + 1) {
        end = strchrnul(at, ':');
        int len = snprintf(out, PATH_MAX, "%.*s%s%s", (int)(end - at), at, end > at ? "/" : "", command);
        if (len < PATH_MAX && is_program(out))
            return 0;
        if (!*end)
            break;
    }
    return -ENOENT;
}

int swn_preload_fits(const char *library, const char *program, char why[SWN_ERRMSG])
{
    struct swn_elf it, ours;
    /* What cannot be looked at may still run. */
    if (swn_elf_read(library, &ours) || (swn_elf_read(program, &it) && swn_elf_read("/proc/self/exe", &it)))
        return 0;
    if (it.machine != ours.machine || it.bits != ours.bits)
        return swn_errmsg(why, -ENOEXEC, "'%s' is a program for %s, and the library '%s' is for %s", program,
                          swn_elf_machine(&it), library, swn_elf_machine(&ours));
    if (swn_elf_is_musl(&it))
        return swn_errmsg(
            why, -ENOEXEC,
            "'%s' is a program of musl (%s), and libswapnet.so needs glibc: use a Python that was built for "
            "glibc",
            program, it.loader);
    return 0;
}

int swn_preload_list(const char *library, const char *before, char **list)
{
    size_t len = strlen(library);
    *list = NULL;
    if (!before || !*before) {
        *list = strdup(library);
        return *list ? 0 : -ENOMEM;
    }
    if (strncmp(before, library, len) == 0 && (!before[len] || strchr(": ", before[len])))
        return 0; /* already the first entry: swapnetctl run swapnetctl run */
    if (asprintf(list, "%s:%s", library, before) < 0) {
        *list = NULL;
        return -ENOMEM;
    }
    return 0;
}
