/* scheduler/protocol/systemd.c - sd_notify(3) and sd_listen_fds(3), by their documented protocols. */
#define _GNU_SOURCE
#include "scheduler/protocol/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FIRST_FD 3

int swn_notify(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    if (!path || !*path)
        return 0;
    size_t len = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || len >= sizeof sa.sun_path)
        return -EINVAL;
    memcpy(sa.sun_path, path, len);
    if (path[0] == '@')
        sa.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    ssize_t n = sendto(fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&sa,
                       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
    int err = n < 0 ? -errno : 0;
    close(fd);
    return err;
}

int swn_notify_socket(void)
{
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    int mine = pid && fds && strtol(pid, NULL, 10) == getpid();
    long count = mine ? strtol(fds, NULL, 10) : 0;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    if (!mine || count < 1)
        return -ENOENT;
    for (long i = 0; i < count && i < 1024; i++) /* no engine or child is to hold the port */
        fcntl(FIRST_FD + (int)i, F_SETFD, FD_CLOEXEC);
    if (count > 1)
        return -EINVAL;
    int is_listening = 0;
    socklen_t len = sizeof is_listening;
    if (getsockopt(FIRST_FD, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &len) || !is_listening)
        return -EINVAL;
    fcntl(FIRST_FD, F_SETFL, fcntl(FIRST_FD, F_GETFL) | O_NONBLOCK);
    return FIRST_FD;
}
