/* base/log.c - see log.h. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/errmsg.h"

/* What descriptor 2 is when the process begins, or was made by dup2 later. A program may close it, and then its next
 * file or connection has this number: no line of ours belongs there. */
static struct {
    _Atomic dev_t dev;
    _Atomic ino_t ino;
    _Atomic int open;
    pid_t pid;
} known;

static void know(void)
{
    struct stat st;
    int open = !fstat(STDERR_FILENO, &st);
    atomic_store(&known.dev, open ? st.st_dev : 0);
    atomic_store(&known.ino, open ? st.st_ino : 0);
    atomic_store(&known.open, open);
}

/* Not in a child of vfork or posix_spawn, which shares its parent's memory until it calls exec. */
static void fork_child(void)
{
    known.pid = getpid();
}

__attribute__((constructor)) static void begin(void)
{
    fork_child();
    know();
    pthread_atfork(NULL, NULL, fork_child);
}

void swn_say_redirected(void)
{
    int saved = errno;
    if (getpid() == known.pid) /* not of a child that shares our memory until it calls exec */
        know();
    errno = saved;
}

static int is_stderr(void)
{
    struct stat st;
    return atomic_load(&known.open) && !fstat(STDERR_FILENO, &st) && st.st_dev == atomic_load(&known.dev) &&
           st.st_ino == atomic_load(&known.ino);
}

void swn_say(const char *format, ...)
{
    char line[1200] = "swapnet: ";
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line + 9, sizeof line - 10, format, args);
    va_end(args);
    swn_one_line(line); /* names of files come from outside */
    size_t len = n < 0 ? 9 : 9 + ((size_t)n < sizeof line - 11 ? (size_t)n : sizeof line - 11);
    line[len++] = '\n';
    int saved = errno;
    ssize_t ignored = is_stderr() ? write(STDERR_FILENO, line, len) : 0;
    (void)ignored;
    errno = saved;
}
