/* fork_in_handler.c - a preload whose signal handler forks where a thread of the program is in the middle of mapping
 * memory at an address that it has chosen: in a section of swapnet's, which nothing else is likely to do so often. Each
 * child execs, or ends at once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define EACH 7 /* mappings */
#define STATUS 3

static __thread int is_armed;
static volatile sig_atomic_t forks, failures;
static unsigned mappings;

static void on_signal(int signal)
{
    int status = 0;
    (void)signal;
    pid_t child = fork();
    if (child == 0) {
        if (forks % 2)
            execl("/bin/sh", "sh", "-c", "exit 3", (char *)NULL);
        _exit(STATUS);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != STATUS)
        failures++;
    forks++;
}

/* From now on this thread's mappings are interrupted, `most` times. */
static int left;

void fork_in_mappings(int most)
{
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &act, NULL);
    left = most;
    is_armed = 1;
}

int forks_made(void)
{
    return forks;
}

int forks_failed(void)
{
    return failures;
}

static void interrupt(int flags)
{
    if (!is_armed || !(flags & MAP_FIXED) || left <= 0 || ++mappings % EACH)
        return;
    left--;
    is_armed = 0; /* not what the handler maps */
    raise(SIGUSR1);
    is_armed = 1;
}

void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t off)
{
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real)
        real = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
    interrupt(flags);
    return real(at, bytes, prot, flags, fd, off);
}

void *mmap64(void *at, size_t bytes, int prot, int flags, int fd, off64_t off)
{
    return mmap(at, bytes, prot, flags, fd, off);
}
