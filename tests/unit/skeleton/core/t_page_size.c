/* Description: a kernel whose pages are larger than ours, as AArch64 kernels' may be, is left alone. */
/* wraps: sysconf */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <unistd.h>

#include "skeleton/runtime/runtime.h"
#include "blocks/memory/arena.h"
#include "skeleton/engine/engine.h"

static long page;

long __real_sysconf(int name);
long __wrap_sysconf(int name);
long __wrap_sysconf(int name)
{
    return name == _SC_PAGESIZE ? page : __real_sysconf(name);
}

/* Before anything of the engine is there: a clean page would be taken for a written one, and the other way round. */
static void larger_pages(void **state)
{
    static const struct swn_config config = {.enabled = 1, .budget_bytes = 64 << 20, .store_dir = "/proc/nowhere"};
    static const struct {
        long bytes;
        const char *said;
    } kernels[] = {{16384, "pages of 16384 bytes"}, {65536, "pages of 65536 bytes"}, {4096, "/proc/nowhere"}};
    char why[512];
    (void)state;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        page = kernels[i].bytes;
        int err = swn_runtime_start(&config, why, sizeof why);
        assert_int_equal(err, page == (long)SWN_PAGE ? -ENOENT : -ENOTSUP);
        assert_non_null(strstr(why, kernels[i].said));
        assert_false(swn_engine_running());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(larger_pages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
