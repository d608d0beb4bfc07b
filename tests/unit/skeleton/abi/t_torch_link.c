/* Description: a library that asks for PyTorch by swapnet's name for it finds PyTorch's functions, whatever the
 * libraries are called that have them; of two PyTorchs in a process those of the one whose libc10 was named. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "skeleton/abi/torch_link.h"

#define VERSIONED_C10 FAKES "/1/libc10.so.2.99"
#define PLAIN_C10 FAKES "/2/libc10.so"

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            print_message("line %d: not true: %s; %s\n", __LINE__, #what, why);                                        \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static char why[8192];

static int load(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL;
}

/* Tens: which libc10 answers it; ones: which libtorch_cpu. 0: it cannot be loaded. */
static int asked(void)
{
    void *library = dlopen(FAKES "/asks.so", RTLD_NOW | RTLD_LOCAL);
    int (*numbers)(void) = NULL;
    if (library)
        *(void **)&numbers = dlsym(library, "numbers");
    return numbers ? numbers() : 0;
}

static int stack_is_executable(void)
{
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "re");
    int found = 0;
    while (maps && fgets(line, sizeof line, maps))
        found |= strstr(line, "[stack]") && strstr(line, " rwx");
    CHECK(maps);
    fclose(maps);
    return found;
}

static void other_names(void)
{
    CHECK(load(VERSIONED_C10) && load(FAKES "/1/libtorch_cpu.so.2.99"));
    CHECK(asked() == 0);
    CHECK(swn_torch_link(NULL, why, sizeof why) == 0);
    CHECK(asked() == 11);
    CHECK(!stack_is_executable());
    CHECK(swn_torch_link(NULL, why, sizeof why) == 0 && asked() == 11);
}

static int has_a_path(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    return !strncmp(info->dlpi_name, "/proc/", 6);
}

/* Who asks the dynamic loader for the library's path, as debuggers do, would open a file of his own by that name. */
static void no_path(void)
{
    int before = dup(0), after;
    close(before);
    CHECK(load(VERSIONED_C10) && load(FAKES "/1/libtorch_cpu.so.2.99"));
    CHECK(swn_torch_link(NULL, why, sizeof why) == 0);
    CHECK(!dl_iterate_phdr(has_a_path, NULL));
    after = dup(0);
    CHECK(after == before);
    close(after);
    CHECK(asked() == 11);
}

static void two_at_once(void)
{
    CHECK(load(VERSIONED_C10) && load(FAKES "/1/libtorch_cpu.so.2.99"));
    CHECK(load(PLAIN_C10) && load(FAKES "/2/libtorch_cpu.so"));
    CHECK(swn_torch_link(PLAIN_C10, why, sizeof why) == 0);
    CHECK(asked() == 22);
}

/* A second libc10, of no PyTorch. */
static void not_beside(void)
{
    CHECK(load(PLAIN_C10) && load(FAKES "/1/libtorch_cpu.so.2.99"));
    CHECK(swn_torch_link(PLAIN_C10, why, sizeof why) == 0);
    CHECK(asked() == 21);
}

/* So far the process has only loaded libc10; its libtorch_cpu lies beside it. */
static void libc10_alone(void)
{
    CHECK(load(VERSIONED_C10));
    CHECK(swn_torch_link(NULL, why, sizeof why) == 0);
    CHECK(asked() == 11);
}

static void none(void)
{
    CHECK(swn_torch_link(NULL, why, sizeof why) == -ENOENT);
    CHECK(strstr(why, "libc10"));
}

/* What is loaded stays, so each has a process of its own. */
static void in_a_process(void **state)
{
    void (*what)(void) = NULL;
    int status = -1;
    memcpy(&what, *state, sizeof what);
    pid_t pid = fork();
    if (pid == 0) {
        what();
        _exit(0);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    static void (*const tests[])(void) = {other_names, two_at_once, not_beside, libc10_alone, none, no_path};
    static const char *const names[] = {"other_names", "two_at_once", "not_beside", "libc10_alone", "none", "no_path"};
    struct CMUnitTest all[sizeof tests / sizeof *tests];
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        all[i] = (struct CMUnitTest){names[i], in_a_process, NULL, NULL, (void *)(uintptr_t)&tests[i]};
    return cmocka_run_group_tests(all, NULL, NULL);
}
