/* scheduler/protocol/daemon_socket.c - see daemon_socket.h. */
#define _GNU_SOURCE
#include "scheduler/protocol/daemon_socket.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scheduler/protocol/control.h"
#include "scheduler/protocol/control_io.h"
#include "scheduler/protocol/lease_record.h"

/* 0: there is a socket, and only root or this user can have made it; -EPERM: another user can. -errno: there is none.
 */
static int look_at(const char *path)
{
    char directory[PATH_MAX];
    struct stat st;
    if (stat(path, &st))
        return -errno;
    if (!S_ISSOCK(st.st_mode))
        return -ENOTSOCK;
    if (strlen(path) >= sizeof directory)
        return -ENAMETOOLONG;
    strcpy(directory, path);
    char *slash = strrchr(directory, '/');
    if (slash == directory)
        slash++;
    *slash = '\0';
    if (stat(directory, &st))
        return -errno;
    return (st.st_uid == 0 || st.st_uid == geteuid()) && !(st.st_mode & 0022) ? 0 : -EPERM;
}

int swn_daemon_socket_find(char *to, size_t size)
{
    char directory[PATH_MAX], path[2 * PATH_MAX];
    int found = -ENOENT;

    *to = '\0';
    for (unsigned i = 0; found; i++) {
        int rc = swn_control_directory(i, directory, sizeof directory);
        if (rc == -ENOENT)
            break;
        snprintf(path, sizeof path, "%s/%s", directory, SWN_DAEMON_SOCKET);
        int has = !rc && strlen(path) < size && !look_at(path) ? swn_lease_has_daemon(path) : 0;
        if (has > 0 || (has < 0 && found == -ENOENT)) {
            strcpy(to, path);
            found = has > 0 ? 0 : has;
        }
    }
    return found;
}

int swn_daemon_connect(const char *path)
{
    struct sockaddr_un sa;
    struct ucred peer;
    socklen_t len = sizeof peer;
    int err = look_at(path);
    if (!err)
        err = swn_control_address(&sa, path);
    if (err)
        return err;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    err = connect(fd, (const struct sockaddr *)&sa, sizeof sa) ? -errno : 0;
    if (!err && (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) || (peer.uid != 0 && peer.uid != geteuid())))
        err = -EPERM;
    if (err)
        close(fd);
    return err ? err : fd;
}
