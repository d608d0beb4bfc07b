/* scheduler/daemon/socket.c - where swapnetd listens. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/paths.h"
#include "scheduler/daemon/daemon.h"
#include "scheduler/protocol/control.h"
#include "scheduler/protocol/control_io.h"
#include "scheduler/protocol/lease_record.h"
#include "scheduler/protocol/systemd.h"

#define BACKLOG 256

static int lock_fd = -1;

/* The first possible directory for sockets: the session's for a user, /run/swapnet for root without a session. */
static int default_path(char *path, size_t size)
{
    char directory[PATH_MAX];
    int rc = swn_control_directory(0, directory, sizeof directory);
    if (rc)
        return rc;
    if (snprintf(path, size, "%s/%s", directory, SWN_DAEMON_SOCKET) >= (int)size)
        return -ENAMETOOLONG;
    return 0;
}

/* Others must not be able to put a socket of theirs in its place, nor have files made and removed elsewhere by a link
 * in a directory of theirs: that is what XDG_RUNTIME_DIR names after su or sudo -E. */
static int make_directory(const char *path)
{
    char name[PATH_MAX];
    int rc = swn_dir_of(path, name, sizeof name);
    if (!rc)
        rc = swn_dir_is_trusted(name);
    if (rc != -ENOENT)
        return rc;
    /* All above it has been looked at. */
    int made = mkdir(name, 0755) == 0;
    if (!made && errno != EEXIST) /* a process under swapnet makes it, too */
        return -errno;
    rc = swn_dir_is_trusted(name);
    if (rc && made)
        rmdir(name);
    return rc;
}

/* One daemon per socket, for as long as it lives. With the lock held, an existing socket file is a dead daemon's. */
static int lock(const char *path)
{
    char beside[PATH_MAX];
    if (snprintf(beside, sizeof beside, "%s.lock", path) >= (int)sizeof beside)
        return -ENAMETOOLONG;
    lock_fd = open(beside, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock_fd < 0)
        return -errno;
    return flock(lock_fd, LOCK_EX | LOCK_NB) ? -errno : 0;
}

static int bind_to(struct swd *d, const char *path)
{
    struct sockaddr_un sa;
    struct stat st;
    gid_t gid = d->options.group;
    int rc = swn_control_address(&sa, path);
    if (rc)
        return rc;
    if (!lstat(path, &st) && (!S_ISSOCK(st.st_mode) || (unlink(path) && errno != ENOENT)))
        return -EADDRINUSE;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    mode_t mode = umask(0177); /* the daemon is a process of its own: no other code sees this umask */
    rc = bind(fd, (const struct sockaddr *)&sa, sizeof sa) ? -errno : 0;
    umask(mode);
    if (!rc && gid != (gid_t)-1 && (chown(path, (uid_t)-1, gid) || chmod(path, 0660)))
        rc = -errno;
    if (!rc && listen(fd, BACKLOG))
        rc = -errno;
    if (rc) {
        close(fd);
        return rc;
    }
    d->listen_fd = fd;
    d->bound = 1;
    return 0;
}

int swd_listen(struct swd *d)
{
    char *path = d->options.socket;
    int rc = d->options.socket_given ? 0 : default_path(path, sizeof d->options.socket);
    if (!rc)
        rc = make_directory(path);
    if (rc) {
        swd_say("cannot listen on %s: %s", path[0] ? path : "a socket",
                rc == -EPERM   ? "others can write to its directory, or to one above it: --socket names another place"
                : rc == -ELOOP ? "its directory is a symbolic link"
                               : strerror(-rc));
        return rc;
    }
    rc = swn_lease_path(path, d->leases, sizeof d->leases);
    if (!rc)
        rc = swn_lease_stopped_path(path, d->stopped, sizeof d->stopped);
    if (rc)
        return rc;
    rc = lock(path);
    if (rc == -EWOULDBLOCK)
        swd_say("another swapnetd serves %s", path);
    else if (rc)
        swd_say("cannot lock %s.lock: %s", path, strerror(-rc));
    if (rc)
        return rc;
    unlink(d->stopped); /* if this daemon is killed, programs are to wait for the next one */
    int handed = swn_notify_socket();
    if (handed >= 0) {
        d->listen_fd = handed;
        return 0;
    }
    if (handed != -ENOENT) {
        swd_say("socket activation: exactly one listening socket is wanted");
        return handed;
    }
    rc = bind_to(d, path);
    if (rc)
        swd_say("cannot listen on %s: %s", path, strerror(-rc));
    return rc;
}

void swd_note_end(struct swd *d)
{
    if (d->bound) /* without a socket file programs do not wait anyway */
        return;
    int fd = open(d->stopped, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        swd_say("cannot write %s: %s; as long as programs hold leases, others wait for a swapnetd when they start",
                d->stopped, strerror(errno));
    else
        close(fd);
}

void swd_unlisten(struct swd *d)
{
    if (d->bound)
        unlink(d->options.socket);
    if (d->listen_fd >= 0)
        close(d->listen_fd);
    d->listen_fd = -1;
}
