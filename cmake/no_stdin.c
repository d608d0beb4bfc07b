/* no_stdin.c - lets Debian's libjansson.a into libswapnet.so. Its load.o compares a FILE * with stdin, compiled for
 * executables only; with -Wl,--wrap=stdin it compares with this one. A preload library reads nobody's stdin anyway. */
#include <stdio.h>

extern FILE *const __wrap_stdin;
FILE *const __wrap_stdin = NULL;
