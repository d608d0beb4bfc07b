/* child_of_vfork.c - a child of vfork, which Python's own calls do not give: it limits its address space, as launchers
 * do for what they start, and ends. */
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The child's exit status: 0 if the limit was set. */
int limit_space_in_child(unsigned long bytes)
{
    int status = -1;
    pid_t child = vfork();
    if (!child) {
        struct rlimit limit = {bytes, bytes};
        _exit(setrlimit(RLIMIT_AS, &limit) != 0);
    }
    return child < 0 || waitpid(child, &status, 0) != child ? -1 : status;
}
