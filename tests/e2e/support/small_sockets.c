/* small_sockets.c - sockets hold no more than Linux lets them by default (net.core.wmem_max), whatever this machine
 * allows. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>

#define WMEM_MAX 212992

int setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
    int (*next)(int, int, int, const void *, socklen_t) = dlsym(RTLD_NEXT, "setsockopt");
    const int most = WMEM_MAX;

    if (level == SOL_SOCKET && name == SO_SNDBUF && *(const int *)value > most)
        return next(fd, level, name, &most, sizeof most);
    return next(fd, level, name, value, length);
}
