/* c10::alloc_cpu and c10::free_cpu, the only functions by which PyTorch allocates CPU memory for tensors, and the start
 * of the engine.
 *
 * The first call proves that libc10 is in this process. In every other process this file does nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "skeleton/engine/section.h"
#include "skeleton/runtime/runtime.h"
#include "skeleton/core/reentry.h"
#include "skeleton/abi/backend_file.h"
#include "skeleton/abi/torch_link.h"
#include "skeleton/abi/torch_version.h"
#include "blocks/memory/arena.h"
#include "skeleton/budget/daemon_client.h"
#include "skeleton/budget/daemon_connect.h"
#include "skeleton/engine/engine.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/budget/memory_governor.h"
#include "shim/hooks/hooks.h"
#include "shim/hooks/next_symbol.h"
#include "shim/hooks/openmp.h"
#include "skeleton/load/mapped_file.h"
#include "skeleton/observe/result_log.h"
#include "skeleton/tiling/trial_memory.h"

/* The linkage names of the two C++ functions; both take and return plain words, so C can stand in for them. */
void *swn_hook_alloc_cpu(size_t n) __asm__("_ZN3c109alloc_cpuEm") __attribute__((visibility("default")));
void swn_hook_free_cpu(void *p) __asm__("_ZN3c108free_cpuEPv") __attribute__((visibility("default")));

static void *(*real_alloc)(size_t);
static void (*real_free)(void *);
static const struct swn_torch_backend *backend;
static void *backend_lib;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic int counting; /* the engine is off, and `swapnetctl verify` asks how much memory the program takes */
/* 1: small tensors are PyTorch's, as the engine is off. Otherwise they are malloc's, as free() and malloc_usable_size()
 * must accept them; PyTorch's own allocator need not be malloc (AArch64's wheels bring mimalloc from 2.10 on). */
static _Atomic int theirs;

static _Atomic(const void *) first_caller;

static int is_c10(const char *library)
{
    const char *base = strrchr(library, '/');
    return base && !strncmp(base, "/libc10.so", 10);
}

static int find_c10(struct dl_phdr_info *info, size_t size, void *out)
{
    (void)size;
    if (!is_c10(info->dlpi_name))
        return 0;
    snprintf(out, PATH_MAX, "%s", info->dlpi_name);
    return 1;
}

/* A program may bring a second libc10, for another use. The PyTorch whose tensors these are is the one that calls. */
static void find_c10_that_calls(char *out)
{
    const char *library = swn_library_of(atomic_load(&first_caller));
    if (is_c10(library))
        snprintf(out, PATH_MAX, "%s", library);
    else
        dl_iterate_phdr(find_c10, out);
}

/* "1.13" from a library called libc10.so.1.13, else from the version.py of the wheel it lies in. */
static int torch_version(const char *c10, char *version, size_t size)
{
    const char *suffix = strstr(strrchr(c10, '/'), ".so.");
    unsigned major, minor;
    if (suffix && sscanf(suffix, ".so.%u.%u", &major, &minor) == 2)
        return snprintf(version, size, "%u.%u", major, minor), 1;
    char path[PATH_MAX];
    int dir = (int)(strrchr(c10, '/') - c10);
    snprintf(path, sizeof path, "%.*s/../version.py", dir, c10);
    return swn_torch_version_read(path, version, size) == 0;
}

static const struct swn_torch_backend *load_backend(const char *c10, char *why, size_t why_size)
{
    char version[32], name[64], directory[PATH_MAX], path[2 * PATH_MAX];
    Dl_info self;
    if (!torch_version(c10, version, sizeof version)) {
        snprintf(why, why_size, "cannot tell which PyTorch %s belongs to", c10);
        return NULL;
    }
    if (!dladdr((void *)(uintptr_t)swn_hook_alloc_cpu, &self) || !strrchr(self.dli_fname, '/')) {
        snprintf(why, why_size, "cannot find its own directory");
        return NULL;
    }
    snprintf(directory, sizeof directory, "%.*s/swapnet", (int)(strrchr(self.dli_fname, '/') - self.dli_fname),
             self.dli_fname);
    void *torch = dlopen(c10, RTLD_LAZY | RTLD_NOLOAD);
    swn_backend_name("aten", version, torch && swn_backend_has_old_strings(torch), name, sizeof name);
    if (torch)
        dlclose(torch);
    if (swn_backend_find(directory, environ, name, path, sizeof path, why, why_size) ||
        swn_torch_link(c10, why, why_size))
        return NULL;
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct swn_torch_backend *h = lib ? dlsym(lib, "swn_aten_backend") : NULL;
    if (!h || h->abi != SWN_ATEN_ABI) {
        snprintf(why, why_size, "cannot use %s: %s", path,
                 lib ? "it belongs to another swapnet; install swapnet again" : dlerror());
        return NULL;
    }
    backend_lib = lib;
    return h;
}

static const char *watch(const struct swn_config *config)
{
    const char *refused = backend->watch(swn_result_log_write_result);
    if (!refused)
        swn_result_log_write_start(config->verify_dir, swn_engine_running() ? swn_engine_one.budget.target : 0);
    return refused;
}

/* With SWAPNET=0 nothing happens, except that `swapnetctl verify` records what operators compute. */
static void start_plain(const struct swn_config *config, const char *c10)
{
    char why[2 * PATH_MAX + 512] = "";
    struct swn_runtime_services host = {.abi = SWN_ATEN_ABI};
    const char *refused = why;
    if (config->verify_dir[0] && (backend = load_backend(c10, why, sizeof why)))
        refused = backend->attach(&host);
    if (backend && !refused)
        refused = watch(config);
    if (refused && refused[0])
        swn_say("cannot record what operators compute: %s", refused);
    counting = !refused;
}

/* 0: start the engine; 1: the user did not ask for it; or -errno with a text. */
static int read_settings(struct swn_config *config, char *why, size_t why_size)
{
    if (getauxval(AT_SECURE))
        return 1;
    int err = swn_config_load(config, environ);
    for (char *line = config->warnings, *end; !err && (end = strchr(line, '\n')); line = end + 1)
        swn_say("%.*s", (int)(end - line), line);
    if (err < 0)
        snprintf(why, why_size, "%s", config->error);
    if (err)
        return err;
    swn_memory_governor_first(config);
    if (!swn_daemon_connect_find(config))
        return 0;
    snprintf(why, why_size, "%s", swn_config_no_budget());
    return -EINVAL;
}

/* Attaches the torch backend to the running engine. 0, or -ENOTSUP with a text, and the engine does not run. */
static int attach(const struct swn_config *config, char *why, size_t why_size)
{
    struct swn_runtime_services services;
    swn_engine_services(&services);
    const char *refused = backend->attach(&services);
    if (refused) {
        snprintf(why, why_size, "%s", refused);
        swn_engine_one.life.running = 0;
        return -ENOTSUP;
    }
    swn_engine_set_torch(backend);
    swn_hooks_fork_install();
    swn_hooks_signals_install();
    swn_client_start(config);
    swn_memory_governor_start(config);
    if (config->verify_dir[0] && (refused = watch(config)))
        swn_say("cannot record what operators compute: %s", refused);
    else if (services.device.type && (refused = backend->enable_device()))
        swn_say("cannot stand before PyTorch's copies to the device: %s; they are made", refused);
    return 0;
}

static void start(void)
{
    static struct swn_config config;
    char c10[PATH_MAX] = "", why[2 * PATH_MAX + 512] = "";
    SWN_SECTION();
    swn_reentry_depth++;
    find_c10_that_calls(c10);
    void *lib = c10[0] ? dlopen(c10, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (lib) {
        *(void **)&real_alloc = dlsym(lib, "_ZN3c109alloc_cpuEm");
        *(void **)&real_free = dlsym(lib, "_ZN3c108free_cpuEPv");
    }
    int err = read_settings(&config, why, sizeof why);
    if (err > 0 && !getauxval(AT_SECURE))
        start_plain(&config, c10);
    if (!err && !(backend = load_backend(c10, why, sizeof why)))
        err = -ENOENT;
    if (!err) {
        swn_openmp_look(backend_lib);
        err = swn_runtime_start(&config, why, sizeof why);
    }
    if (!err)
        err = attach(&config, why, sizeof why);
    if (!err)
        swn_mapped_file_look_before();
    if (err < 0)
        swn_say("off: %s", why);
    /* Memory that attach() has allocated is malloc's; then all other memory has to be, too. */
    theirs = !swn_engine_running() && !counting && real_alloc && real_free &&
             !atomic_load(&swn_engine_one.nonweight.small_bytes);
    if (!err && config.verbose)
        swn_say("budget %llu bytes, store %s, fetch %s, PyTorch %s", (unsigned long long)swn_engine_one.budget.target,
                config.store_dir, swn_config_fetch_name(config.fetch), backend->version);
    swn_reentry_depth--;
}

static void count(long long bytes)
{
    if (counting)
        swn_result_log_write_memory(bytes);
    else
        swn_engine_count_small(bytes);
}

static void *ordinary_alloc(size_t n)
{
    if (theirs)
        return real_alloc(n);
    void *p = NULL;
    if (n && posix_memalign(&p, 64, n)) {
        void *other = real_alloc ? real_alloc(n) : NULL; /* also fails, and throws PyTorch's own error */
        if (!other || !backend)
            return other;
        real_free(other);
        backend->raise_oom(n);
    }
    if (p)
        count((long long)malloc_usable_size(p));
    return p;
}

void *swn_hook_alloc_cpu(size_t n)
{
    if (!swn_reentry_depth) {
        if (!atomic_load(&first_caller))
            atomic_store(&first_caller, __builtin_return_address(0));
        pthread_once(&once, start);
    }
    if (!swn_engine_running())
        return ordinary_alloc(n);
    if (n < SWN_GRANULE) {
        swn_reentry_guard(swn_engine_install_hook);
        return ordinary_alloc(n);
    }
    int strict;
    void *p = swn_trial_alloc(n);
    if (p)
        return p;
    p = swn_engine_alloc(n, &strict);
    if (strict && backend)
        backend->raise_oom(n);
    swn_engine_settle();
    if (p)
        return p;
    p = ordinary_alloc(n); /* which may throw, as for a length that no machine has */
    if (p)
        swn_engine_count_untracked(n);
    return p;
}

void swn_hook_free_cpu(void *p)
{
    if (!p || swn_engine_free(p) || swn_trial_free(p))
        return;
    if (theirs) {
        real_free(p);
        return;
    }
    count(-(long long)malloc_usable_size(p));
    free(p);
}

__attribute__((destructor)) static void at_exit(void)
{
    swn_engine_exit();
}
