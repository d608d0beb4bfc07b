/* Runs a function in each thread of an OpenMP team, for programs/openmp.py. */
#include <omp.h>

void in_openmp(int threads, void (*fn)(int));

void in_openmp(int threads, void (*fn)(int))
{
#pragma omp parallel num_threads(threads)
    fn(omp_get_thread_num());
}
