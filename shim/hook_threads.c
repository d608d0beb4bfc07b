/* pthread_create: is there a second thread of the program that could copy a pointer out of a running operator's window?
 *
 * Threads of compute pools run kernels and nothing else; they do not count. Everybody else's do. The wrapper runs in
 * every process, also before PyTorch is loaded, because a thread that exists by then would be unknown for ever; it
 * costs one small allocation and one look-up per thread. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "swn_engine.h"
#include "swn_engine_priv.h"
#include "swn_hooks.h"
#include "swn_real.h"
#include "swn_thread.h"

typedef int (*create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
SWN_REAL(pthread_create, create_fn)

static _Atomic int program_threads; /* besides the main thread */
static _Atomic int ever_created;
static __thread int number = -1;

struct wrapped {
    void *(*fn)(void *);
    void *arg;
    int number;
};

static pthread_key_t exit_key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void thread_gone(void *unused)
{
    (void)unused;
    if (swn_engine_running())
        swn_window_thread_exit();
    atomic_fetch_sub(&program_threads, 1);
}

static void make_key(void)
{
    pthread_key_create(&exit_key, thread_gone);
}

static void *run(void *arg)
{
    struct wrapped w = *(struct wrapped *)arg;
    free(arg);
    number = w.number;
    pthread_setspecific(exit_key, (void *)1); /* also runs when the thread is cancelled or calls pthread_exit */
    return w.fn(w.arg);
}

static int is_compute_pool(void *(*fn)(void *))
{
    static const char *const pools[] = {"libgomp",     "libiomp5",    "libomp",       "openblas",
                                        "libblis",     "libmkl",      "libtorch_cpu", "libpthreadpool",
                                        "libjemalloc", "libtcmalloc", "libcuda"};
    Dl_info info;
    if (!dladdr((void *)(uintptr_t)fn, &info) || !info.dli_fname)
        return 0;
    const char *base = strrchr(info.dli_fname, '/');
    base = base ? base + 1 : info.dli_fname;
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
        if (strstr(base, pools[i]))
            return 1;
    return 0;
}

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                                                          void *(*fn)(void *), void *arg)
{
    create_fn create = real_pthread_create();
    if (is_compute_pool(fn))
        return create(thread, attr, fn, arg);
    pthread_once(&key_once, make_key);
    struct wrapped *w = malloc(sizeof *w);
    atomic_fetch_add(&program_threads, 1);
    int created = atomic_fetch_add(&ever_created, 1) + 1;
    if (!w) /* counted for ever: slower, never wrong */
        return create(thread, attr, fn, arg);
    *w = (struct wrapped){fn, arg, created};
    int err = create(thread, attr, run, w);
    if (err) {
        free(w);
        atomic_fetch_sub(&program_threads, 1);
    }
    return err;
}

int swn_threads_many(void)
{
    return atomic_load_explicit(&program_threads, memory_order_acquire) > 0;
}

int swn_threads_number(void)
{
    if (number < 0 && gettid() == getpid())
        number = 0;
    return number;
}

void swn_threads_fork_child(void)
{
    atomic_store(&program_threads, 0);
}

__attribute__((constructor)) static void own_threads(void)
{
    create_fn create = real_pthread_create();
    if (create)
        swn_thread_create = create;
}
