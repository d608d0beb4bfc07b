/* shim/hooks/openmp.c - see openmp.h. */
#define _GNU_SOURCE
#include "shim/hooks/openmp.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>

#include "base/thread.h"

/* Of a place: a core has a few. */
#define PROCESSORS 256

/* OpenMP binds threads only with these variables. The look-up must not happen without need: Intel's and LLVM's
 * libraries would initialise themselves, which reads the environment for good, and may end the process if there are two
 * of them. */
static int may_bind(void)
{
    static const char *const names[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return 1;
    return 0;
}

/* OpenMP 4.5, as in GCC since 6 and in Intel's and LLVM's: wheels and distributions have one or the other, under names
 * of their own. */
void swn_openmp_look(void *lib)
{
    int (*proc_bind)(void), (*num_places)(void), (*num_procs)(int);
    void (*proc_ids)(int, int *);
    if (!may_bind())
        return;
    *(void **)&proc_bind = dlsym(lib, "omp_get_proc_bind");
    *(void **)&num_places = dlsym(lib, "omp_get_num_places");
    *(void **)&num_procs = dlsym(lib, "omp_get_place_num_procs");
    *(void **)&proc_ids = dlsym(lib, "omp_get_place_proc_ids");
    if (!proc_bind || !num_places || !num_procs || !proc_ids || !proc_bind())
        return;
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int i = 0, n = num_places(); i < n; i++) {
        int ids[PROCESSORS], count = num_procs(i);
        if (count > PROCESSORS)
            return;
        proc_ids(i, ids);
        for (int k = 0; k < count; k++)
            if (ids[k] >= 0 && ids[k] < CPU_SETSIZE)
                CPU_SET((size_t)ids[k], &all);
    }
    if (CPU_COUNT(&all))
        swn_thread_beside_openmp(&all);
}
