/* shim/hooks/openmp.h - the processors to which PyTorch's OpenMP binds the program's threads, if it does. */
#ifndef SWN_SHIM_HOOKS_OPENMP_H
#define SWN_SHIM_HOOKS_OPENMP_H

/* Lets the library's threads run on all of OpenMP's processors (base/thread.h). lib: a dlopen handle, below which an
 * OpenMP library is looked for. To be called before the first thread is started. */
void swn_openmp_look(void *lib);

#endif
