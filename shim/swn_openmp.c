#define _GNU_SOURCE
#include "swn_openmp.h"

#include <dlfcn.h>
#include <sched.h>

#include "swn_thread.h"

/* Of a place: a core has a few. */
#define PROCESSORS 256

/* OpenMP 4.5, as in GCC since 6 and in Intel's and LLVM's: wheels and distributions have one or the other, under names
 * of their own. */
void swn_openmp_look(void *lib)
{
    int (*proc_bind)(void), (*num_places)(void), (*num_procs)(int);
    void (*proc_ids)(int, int *);
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
