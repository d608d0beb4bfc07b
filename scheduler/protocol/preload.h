/* scheduler/protocol/preload.h - where libswapnet.so lies, and how a program gets it in front. */
#ifndef SWN_SCHEDULER_PROTOCOL_PRELOAD_H
#define SWN_SCHEDULER_PROTOCOL_PRELOAD_H

#include <limits.h>

#include "base/errmsg.h"

/* The absolute name of the library, so that it also holds after the program changed its directory: `wanted`, or
 * libswapnet.so as installed with the calling program where that is NULL or "". 0, or -errno with `why` filled. */
int swn_preload_find(const char *wanted, char out[PATH_MAX], char why[SWN_ERRMSG]);

/* The file that execvp(command) would execute. 0, or -ENOENT. */
int swn_preload_program(const char *command, char out[PATH_MAX]);

/* Whether the program in the file `program` can have the library in it, as far as both files tell: a script is taken
 * for one of this program's own kind. 0, or -ENOEXEC with `why` filled. */
int swn_preload_fits(const char *library, const char *program, char why[SWN_ERRMSG]);

/* What LD_PRELOAD must say for `library` to be in front of what it says now (`before`, or NULL). *list is malloc'd;
 * NULL where `library` is in front already. 0 or -ENOMEM. */
int swn_preload_list(const char *library, const char *before, char **list);

#endif
