/* shim/hooks/hook_threads.c - pthread_create: counts the program's threads, as a second thread could copy a pointer out
 * of a running operator's window.
 *
 * Threads of compute pools run kernels and nothing else; they do not count. All other threads do. The wrapper runs in
 * every process, also before PyTorch is loaded, because a thread that exists by then would be unknown for ever; it
 * costs one small allocation and one look-up per thread, which takes no lock (shim/hooks/next_symbol.h). */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "skeleton/engine/engine.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/engine/program_threads.h"
#include "shim/hooks/hooks.h"
#include "shim/hooks/next_symbol.h"
#include "base/thread.h"
#include "skeleton/core/op_window.h"
#include "skeleton/engine/thread_state.h"

typedef int (*create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
SWN_NEXT(pthread_create, create_fn)

struct wrapped {
    void *(*fn)(void *);
    void *arg;
    int number;
};

static pthread_key_t exit_key;
static int has_key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void thread_gone(void *unused)
{
    (void)unused;
    if (swn_engine_running())
        swn_window_thread_exit();
    swn_threads_ended();
}

static void make_key(void)
{
    has_key = !pthread_key_create(&exit_key, thread_gone);
}

/* The program has taken all keys. Then a thread counts as gone a little early: before the destructors of its own. */
static void *run_without_key(struct wrapped w)
{
    void *result;
    pthread_cleanup_push(thread_gone, NULL);
    result = w.fn(w.arg);
    pthread_cleanup_pop(1);
    return result;
}

static void *run(void *arg)
{
    struct wrapped w = *(struct wrapped *)arg;
    free(arg);
    swn_threads_set_number(w.number);
    swn_hooks_signals_thread_begins();
    if (!has_key ||
        pthread_setspecific(exit_key, (void *)1)) /* also runs when the thread is cancelled or calls pthread_exit */
        return run_without_key(w);
    return w.fn(w.arg);
}

static int is_compute_pool(void *(*fn)(void *))
{
    static const char *const pools[] = {"libgomp",     "libiomp5",    "libomp",       "openblas",
                                        "libblis",     "libmkl",      "libtorch_cpu", "libpthreadpool",
                                        "libjemalloc", "libtcmalloc", "libcuda"};
    const char *path = swn_library_of((const void *)(uintptr_t)fn), *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
        if (strstr(base, pools[i]))
            return 1;
    return 0;
}

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                                                          void *(*fn)(void *), void *arg)
{
    create_fn create = next_pthread_create();
    if (is_compute_pool(fn))
        return create(thread, attr, fn, arg);
    pthread_once(&key_once, make_key);
    struct wrapped *w = malloc(sizeof *w);
    int created = swn_threads_starting();
    if (!w) /* the thread counts for ever: slower, never wrong */
        return create(thread, attr, fn, arg);
    *w = (struct wrapped){fn, arg, created};
    int err = create(thread, attr, run, w);
    if (err) {
        free(w);
        swn_threads_ended();
    }
    return err;
}

__attribute__((constructor)) void swn_hooks_threads_install(void)
{
    create_fn create = next_pthread_create();
    if (create)
        swn_thread_create = create;
}
