/* Description: whose memory a small tensor's is, where PyTorch's own is not malloc's (tests/fakes/c10). */
/* wraps: swn_result_log_write_memory */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "skeleton/engine/engine.h"
#include "skeleton/observe/result_log.h"

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            print_message("not true: %s\n", #what);                                                                    \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

void *alloc_cpu(size_t n) __asm__("_ZN3c109alloc_cpuEm");
void free_cpu(void *p) __asm__("_ZN3c108free_cpuEPv");

static long long counted;

void __wrap_swn_result_log_write_memory(long long bytes);
void __wrap_swn_result_log_write_memory(long long bytes)
{
    counted += bytes;
}

static int is_theirs(const void *p)
{
    Dl_info info;
    return dladdr(p, &info) && strstr(info.dli_fname, "libc10.so");
}

static void *kept(void)
{
    void *backend = dlopen(STANDIN_BACKEND, RTLD_NOW | RTLD_NOLOAD);
    void **word = backend ? dlsym(backend, "backend_kept") : NULL;
    return word ? *word : NULL;
}

/* `swapnetctl verify` counts bytes of a run without the engine: they are bytes that malloc knows of. */
static void counted_without_the_engine(void)
{
    setenv("SWAPNET", "0", 1);
    setenv("SWAPNET_VERIFY", "/var/tmp", 1);
    void *p = alloc_cpu(1000);
    CHECK(p && kept());
    CHECK(counted >= 1000 && counted < 4096);
    free_cpu(p);
    CHECK(counted == 0);
    free_cpu(kept());
}

/* Memory from before the engine was refused is freed by the allocator that gave it. */
static void refused(void)
{
    setenv("SWAPNET_BUDGET", "64M", 1);
    setenv("SWAPNET_STORE", "/var/tmp", 1);
    setenv("SWAPNET_DAEMON", "off", 1);
    setenv("HALF_REFUSES", "a test", 1);
    void *p = alloc_cpu(1000), *large = alloc_cpu(128 << 10);
    CHECK(p && large && kept() && !swn_engine_running());
    free_cpu(kept());
    free_cpu(p);
    free_cpu(large);
}

/* With SWAPNET=0 nothing is ours. */
static void disabled(void)
{
    setenv("SWAPNET", "0", 1);
    void *p = alloc_cpu(1000), *large = alloc_cpu(128 << 10);
    CHECK(is_theirs(p) && is_theirs(large));
    free_cpu(p);
    free_cpu(large);
}

static void in_a_child(void (*work)(void))
{
    int status = 0;
    pid_t pid = fork();
    if (!pid) {
        if (!dlopen(STANDIN_C10, RTLD_NOW | RTLD_GLOBAL)) {
            print_message("%s\n", dlerror());
            _exit(2);
        }
        work();
        _exit(0);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert_int_equal(status, 0);
}

#define IN_A_CHILD(work)                                                                                               \
    static void work##_in_a_child(void **state)                                                                        \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        in_a_child(work);                                                                                              \
    }

IN_A_CHILD(counted_without_the_engine)
IN_A_CHILD(refused)
IN_A_CHILD(disabled)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counted_without_the_engine_in_a_child),
        cmocka_unit_test(refused_in_a_child),
        cmocka_unit_test(disabled_in_a_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
