/* shim/hooks/openmp.h - where PyTorch's OpenMP binds the program's threads, if it does. */
#ifndef SWN_SHIM_HOOKS_OPENMP_H
#define SWN_SHIM_HOOKS_OPENMP_H

/* Has our threads run on all of OpenMP's processors (base/thread.h). lib: a handle of dlopen, below which an OpenMP
 * library is looked for. Before the first thread is started. */
void swn_openmp_look(void *lib);

#endif
