/* Description: SWAPNET_* variables become settings or one clear error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "skeleton/engine/config.h"

#define ENV(...) ((char *const[]){__VA_ARGS__, NULL})

static struct swn_config c;

static void minimal(void **state)
{
    (void)state;
    assert_int_equal(swn_config_load(&c, ENV("SWAPNET_BUDGET=256M", "HOME=/home/me")), 0);
    assert_int_equal(c.enabled, 1);
    assert_int_equal(c.budget_bytes, 256u << 20);
    assert_string_equal(c.store_dir, "/home/me/.cache/swapnet");
    assert_string_equal(c.stats_path, "");
    assert_string_equal(c.trace_path, "");
    assert_int_equal(c.verbose, 0);
    assert_int_equal(c.strict, 0);
    assert_int_equal(c.fetch, SWN_CONFIG_AUTO);
    assert_int_equal(c.enforce, 1);
    assert_int_equal(c.unified, SWN_CONFIG_UNIFIED_AUTO);
    assert_int_equal(c.device, SWN_CONFIG_CUDA);
    assert_string_equal(c.error, "");
    assert_string_equal(c.warnings, "");
}

static void everything(void **state)
{
    (void)state;
    assert_int_equal(
        swn_config_load(&c, ENV("SWAPNET=1", "SWAPNET_BUDGET=1.5G", "SWAPNET_BUDGET=7x", "SWAPNET_STORE=/s",
                                "SWAPNET_STATS=stats.json", "SWAPNET_TRACE=/t", "SWAPNET_VERIFY=/v",
                                "SWAPNET_VERBOSE=1", "SWAPNET_STRICT=1", "SWAPNET_MANY_MODELS=1", "SWAPNET_FETCH=pread",
                                "SWAPNET_ENFORCE=0", "SWAPNET_UNIFIED=managed", "SWAPNET_DEVICE=privateuseone",
                                "SWAPNET_WITHOUT=slices,prefetch", "SWAPNET_DEVICE_BUDGET=3G", "SWAPNET_NAME=camera-1",
                                "SWAPNET_DISK=sd.json", "SWAPNET_LIBRARY=/x", "SWAPNET_PYTHON=/p", "SWAPNET_TORCH=/t",
                                "SWAPNETWORK=1", "PATH=/bin")),
        0);
    assert_int_equal(c.budget_bytes, 3u << 29);
    assert_string_equal(c.store_dir, "/s");
    assert_string_equal(c.stats_path, "stats.json");
    assert_string_equal(c.trace_path, "/t");
    assert_string_equal(c.verify_dir, "/v");
    assert_string_equal(c.disk_path, "sd.json");
    assert_int_equal(c.verbose, 1);
    assert_int_equal(c.strict, 1);
    assert_int_equal(c.stores, SWN_MANY_MODELS);
    assert_int_equal(c.fetch, SWN_CONFIG_PREAD);
    assert_string_equal(swn_config_fetch_name(c.fetch), "pread");
    assert_int_equal(c.enforce, 0);
    assert_int_equal(c.unified, SWN_CONFIG_UNIFIED_MANAGED);
    assert_string_equal(swn_config_unified_name(c.unified), "managed");
    assert_int_equal(c.device, SWN_CONFIG_PRIVATEUSEONE);
    assert_int_equal(c.without, SWN_WITHOUT_SLICES | SWN_WITHOUT_PREFETCH);
    assert_int_equal(c.device_budget_bytes, 3ull << 30);
    assert_string_equal(c.name, "camera-1");
    assert_string_equal(c.warnings, "");
}

static void disabled(void **state)
{
    (void)state;
    assert_int_equal(swn_config_load(&c, ENV("SWAPNET_VERIFY=/v", "SWAPNET=0")), 1);
    assert_string_equal(c.verify_dir, "/v"); /* what a program computes without us */
    assert_int_equal(swn_config_load(&c, ENV("SWAPNET_BUDGET=7x", "SWAPNET=0", "SWAPNET_NONSENSE=1")), 1);
    assert_string_equal(c.verify_dir, "");
    assert_int_equal(c.enabled, 0);
    assert_string_equal(c.error, "");
    assert_string_equal(c.warnings, "");
}

static void store_defaults(void **state)
{
    (void)state;
    assert_int_equal(swn_config_load(&c, ENV("SWAPNET_BUDGET=8M", "HOME=/h", "XDG_CACHE_HOME=/c")), 0);
    assert_string_equal(c.store_dir, "/c/swapnet");
    assert_int_equal(swn_config_load(&c, ENV("SWAPNET_BUDGET=8M", "HOME=/h", "XDG_CACHE_HOME=relative")), 0);
    assert_string_equal(c.store_dir, "/h/.cache/swapnet");
    assert_int_equal(swn_config_load(&c, ENV("SWAPNET_BUDGET=8M", "HOME=/h", "XDG_CACHE_HOME=", "SWAPNET_STORE=")), 0);
    assert_string_equal(c.store_dir, "/h/.cache/swapnet");
    assert_int_equal(swn_config_load(&c, ENV("SWAPNET_BUDGET=8M")), -EINVAL);
    assert_non_null(strstr(c.error, "SWAPNET_STORE is not set"));
    assert_int_equal(c.enabled, 0);
}

static void errors(void **state)
{
    static const struct {
        const char *variable, *error;
    } rows[] = {
        {"SWAPNET_BUDGET=12x", "SWAPNET_BUDGET='12x' is not a size: use e.g. 256M or 2G"},
        {"SWAPNET_BUDGET=50%", "SWAPNET_BUDGET='50%' is refused: a percentage needs the model's size: swapnetctl run "
                               "--budget N% --profile FILE "
                               "has it; or give a size such as 256M"},
        {"SWAPNET_MEMORY=auto", "SWAPNET_MEMORY='auto' is not to be had here: give a size such as 256M"},
        {"SWAPNET_BUDGET=1M", "SWAPNET_BUDGET='1M' is below the minimum: give at least 4M (4 MiB)"},
        {"SWAPNET_BUDGET=-1", "SWAPNET_BUDGET='-1' is not a size: use e.g. 256M or 2G"},
        {"SWAPNET_BUDGET=1\n2", "SWAPNET_BUDGET='1?2' is not a size: use e.g. 256M or 2G"},
        {"SWAPNET_DAEMON=on", "SWAPNET_DAEMON='on' is no way to a daemon: use auto, off or the absolute path of its "
                              "socket"},
        {"SWAPNET_URGENCY=0", "SWAPNET_URGENCY='0' is no urgency: use a number from 0.001 to 1000, 1 is ordinary"},
        {"SWAPNET_URGENCY=1e3", "SWAPNET_URGENCY='1e3' is no urgency: use a number from 0.001 to 1000, 1 is ordinary"},
        {"SWAPNET_URGENCY=.", "SWAPNET_URGENCY='.' is no urgency: use a number from 0.001 to 1000, 1 is ordinary"},
        {"SWAPNET_NAME=two words",
         "SWAPNET_NAME='two words' is no name: use letters, digits and other characters of ASCII, without spaces"},
        {"SWAPNET_NAME=t\xc3\xbcr",
         "SWAPNET_NAME='t\xc3\xbcr' is no name: use letters, digits and other characters of ASCII, without spaces"},
        {"SWAPNET_NAME=4711", "SWAPNET_NAME='4711' is no name: it would be taken for a process's number"},
        {"SWAPNET=off", "SWAPNET='off' is not a switch: use 0 or 1"},
        {"SWAPNET_STRICT=yes", "SWAPNET_STRICT='yes' is not a switch: use 0 or 1"},
        {"SWAPNET_VERBOSE=2", "SWAPNET_VERBOSE='2' is not a switch: use 0 or 1"},
        {"SWAPNET_ENFORCE=no", "SWAPNET_ENFORCE='no' is not a switch: use 0 or 1"},
        {"SWAPNET_UNIFIED=yes",
         "SWAPNET_UNIFIED='yes' is no kind of memory: use auto, off, pageable, registered or managed"},
        {"SWAPNET_DEVICE=tpu", "SWAPNET_DEVICE='tpu' is no device: use cuda"},
        {"SWAPNET_WITHOUT=kept,", "SWAPNET_WITHOUT='kept,' names a part that is not there: use prefetch, kept, slices "
                                  "and places"},
        {"SWAPNET_WITHOUT=prefetch-and-more", "SWAPNET_WITHOUT='prefetch-and-more' names a part that is not there: use "
                                              "prefetch, kept, slices and places"},
        {"SWAPNET_FETCH=mmap", "SWAPNET_FETCH='mmap' is not a way to read: use auto, uring, pread or buffered"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char variable[64];
        snprintf(variable, sizeof(variable), "%s", rows[i].variable);
        assert_int_equal(swn_config_load(&c, ENV(variable, "SWAPNET_BUDGET=64M", "HOME=/h")), -EINVAL);
        assert_string_equal(c.error, rows[i].error);
        assert_int_equal(c.enabled, 0);
    }
    assert_int_equal(swn_config_load(&c, ENV("SWAPNET_DAEMON=off", "SWAPNET_BUDGET=", "HOME=/h")), -EINVAL);
    assert_string_equal(c.error, "SWAPNET_BUDGET is not set: give the memory for tensors, e.g. SWAPNET_BUDGET=256M, or "
                                 "SWAPNET=0 to switch swapnet off");
}

/* Without a budget it depends on whether there is a daemon, which only a look at the disk tells. */
static void daemons(void **state)
{
    (void)state;
    assert_int_equal(swn_config_load(&c, ENV("HOME=/h")), 0);
    assert_int_equal(c.daemon, SWN_DAEMON_AUTO);
    assert_int_equal(c.budget_bytes, 0);
    assert_true(c.urgency > 0.99 && c.urgency < 1.01);
    assert_int_equal(swn_config_load(&c, ENV("SWAPNET_DAEMON=/run/d.sock", "SWAPNET_URGENCY=2.5", "HOME=/h")), 0);
    assert_int_equal(c.daemon, SWN_DAEMON_PATH);
    assert_string_equal(c.daemon_path, "/run/d.sock");
    assert_true(c.urgency > 2.49 && c.urgency < 2.51);
    /* Nor is one needed where it follows what there is. */
    assert_int_equal(swn_config_load(&c, ENV("SWAPNET_DAEMON=off", "SWAPNET_BUDGET=auto", "HOME=/h")), 0);
    assert_true(c.budget_auto && !c.budget_bytes && !c.memory_bytes);
    assert_int_equal(swn_config_load(&c, ENV("SWAPNET_DAEMON=off", "SWAPNET_MEMORY=600M", "HOME=/h")), 0);
    assert_true(!c.budget_auto && !c.budget_bytes && c.memory_bytes == (uint64_t)600 << 20);
}

static void long_values(void **state)
{
    static char path[2 * PATH_MAX] = "SWAPNET_STATS=", home[PATH_MAX + 64] = "HOME=/", budget[4096] = "SWAPNET_BUDGET=";
    (void)state;
    memset(path + strlen(path), 'p', sizeof(path) - strlen(path) - 1);
    memset(home + strlen(home), 'h', PATH_MAX - 4);
    memset(budget + strlen(budget), '9', sizeof(budget) - strlen(budget) - 1);
    assert_int_equal(swn_config_load(&c, ENV(path, "SWAPNET_BUDGET=64M", "HOME=/h")), -EINVAL);
    assert_non_null(strstr(c.error, "too long"));
    assert_non_null(strstr(c.error, "...'"));
    assert_int_equal(swn_config_load(&c, ENV(home, "SWAPNET_BUDGET=64M")), -EINVAL);
    assert_non_null(strstr(c.error, "too long"));
    assert_int_equal(swn_config_load(&c, ENV(budget, "HOME=/h")), -EINVAL);
    assert_non_null(strstr(c.error, "...' is too large"));
    char name[96] = "SWAPNET_NAME=";
    memset(name + strlen(name), 'n', SWN_LABEL_NAME);
    assert_int_equal(swn_config_load(&c, ENV(name, "SWAPNET_BUDGET=64M", "HOME=/h")), -EINVAL);
    assert_non_null(strstr(c.error, "1 to 63 characters"));
    name[strlen("SWAPNET_NAME=") + SWN_LABEL_NAME - 1] = '\0';
    assert_int_equal(swn_config_load(&c, ENV(name, "SWAPNET_BUDGET=64M", "HOME=/h")), 0);
    assert_int_equal(strlen(c.name), SWN_LABEL_NAME - 1);
    path[strlen("SWAPNET_STATS=") + PATH_MAX - 1] = '\0'; /* the longest path there is */
    assert_int_equal(swn_config_load(&c, ENV(path, "SWAPNET_BUDGET=64M", "HOME=/h")), 0);
    assert_int_equal(strlen(c.stats_path), PATH_MAX - 1);
}

static void unknown_variables(void **state)
{
    char names[200][32], *env[203];
    (void)state;
    assert_int_equal(swn_config_load(&c, ENV("SWAPNET_BUDGT=64M", "SWAPNET_CHILDREN=1", "SWAPNET_", "HOME=/h")), 0);
    assert_string_equal(c.warnings, "SWAPNET_BUDGT is unknown and has no effect: see swapnet(7)\n"
                                    "SWAPNET_CHILDREN is unknown and has no effect: see swapnet(7)\n"
                                    "SWAPNET_ is unknown and has no effect: see swapnet(7)\n");

    for (int i = 0; i < 200; i++) {
        snprintf(names[i], sizeof(names[i]), "SWAPNET_X%d=1", i);
        env[i] = names[i];
    }
    env[200] = "SWAPNET_BUDGET=64M";
    env[201] = "HOME=/h";
    env[202] = NULL;
    assert_int_equal(swn_config_load(&c, env), 0);
    assert_true(strlen(c.warnings) < sizeof(c.warnings));
    assert_non_null(strstr(c.warnings, "SWAPNET_X0 is unknown"));
    static const char last[] = "more SWAPNET_* variables are unknown and have no effect\n";
    assert_string_equal(c.warnings + strlen(c.warnings) - strlen(last), last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minimal),           cmocka_unit_test(everything), cmocka_unit_test(disabled),
        cmocka_unit_test(store_defaults),    cmocka_unit_test(errors),     cmocka_unit_test(long_values),
        cmocka_unit_test(unknown_variables), cmocka_unit_test(daemons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
