/* scheduler/protocol/control_server.c - the serving end of the status socket: directory, socket, thread. It runs inside
 * the program's process, so it never prints, takes no lock, and leaves the program's signals, umask and descriptors
 * alone.
 */
#define _GNU_SOURCE
#include "scheduler/protocol/control.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"
#include "base/wakeup_pipe.h"
#include "scheduler/protocol/control_io.h"
#include "base/fd_registry.h"
#include "scheduler/protocol/stats_json.h"
#include "base/thread.h"
#include "scheduler/protocol/wire.h"

#define SYSTEM_DIRECTORY "/run/swapnet"
#define BACKLOG 16
/* When accept fails for lack of descriptors, the connection stays pending, and poll returns at once. */
#define ACCEPT_PAUSE_MS 100

struct swn_control {
    void (*fill)(void *user, struct swn_stats *out);
    char *(*status)(void *user);
    char *(*set)(void *user, unsigned has, uint64_t budget, double urgency);
    void *user;
    pid_t owner; /* a forked child must not unlink its parent's socket */
    int listen_fd;
    struct swn_wakeup_pipe stop; /* signalled, and never drained, once stop has begun */
    _Atomic int client_fd;
    pthread_t thread;
    char path[PATH_MAX];
    char request[SWN_CONTROL_MAX_BYTES];
};

/* ---- requests ---- */

static char *error_answer(const char *text)
{
    json_t *root = json_pack("{s:i, s:s}", "schema", 1, "error", text);
    char *answer = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return answer;
}

static char *status_answer(struct swn_control *c)
{
    struct swn_stats stats;
    if (c->status)
        return c->status(c->user);
    memset(&stats, 0, sizeof(stats));
    c->fill(c->user, &stats);
    return swn_stats_to_json(&stats);
}

/* Whether the client has closed its end: a process that was stopped meanwhile finds requests of clients that have told
 * their users that it does not answer. A client that only sends no more is there. */
static int has_left(int fd)
{
    struct pollfd p = {.fd = fd};
    return poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR);
}

/* The answer to c->request, malloc'd; NULL when out of memory, or when there is no one to answer. */
static char *answer_request(struct swn_control *c, int fd)
{
    struct swn_wire *m = malloc(sizeof *m);
    char why[SWN_WIRE_TEXT], *answer;
    const unsigned settable = SWN_HAS_BUDGET | SWN_HAS_URGENCY;
    if (!m)
        return NULL;
    if (swn_wire_decode(m, c->request, strlen(c->request), why))
        answer = error_answer(why);
    else if (m->op == SWN_WIRE_STATUS)
        answer = status_answer(c);
    else if (m->op != SWN_WIRE_SET || !c->set)
        answer = error_answer("unknown op: this process knows \"status\" and \"set\"");
    else if (!(m->has & settable))
        answer = error_answer("set needs a budget or an urgency");
    else if (has_left(fd))
        answer = NULL;
    else
        answer = c->set(c->user, m->has & settable, m->budget, m->urgency);
    free(m);
    return answer;
}

static int peer_allowed(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

static void serve(struct swn_control *c, int fd)
{
    int64_t deadline_ms = swn_control_now_ms() + SWN_CONTROL_TIMEOUT_MS;
    if (!peer_allowed(fd))
        return;
    char *answer;
    int stop = swn_wakeup_pipe_poll_fd(&c->stop);
    int rc = swn_control_read_line(fd, c->request, sizeof(c->request), stop, deadline_ms);
    if (rc == 0)
        answer = answer_request(c, fd);
    else if (rc == -EMSGSIZE)
        answer = error_answer("the request is longer than 65536 bytes");
    else if (rc == -EBADMSG || rc == -EPROTO)
        answer = error_answer("the request is not one line of text");
    else
        return; /* the client is too slow or gone, or the thread stops: there is no one to answer */
    if (answer && swn_control_write(fd, answer, strlen(answer), stop, deadline_ms) == 0)
        (void)swn_control_write(fd, "\n", 1, stop, deadline_ms);
    free(answer);
}

static void *control_main(void *arg)
{
    struct swn_control *c = arg;
    swn_thread_stays(); /* starts before swapnetd knows the process, and so before swapnetd can bind it */
    pthread_setname_np(pthread_self(), "swn-control");
    for (;;) {
        struct pollfd p[2] = {{.fd = c->listen_fd, .events = POLLIN},
                              {.fd = swn_wakeup_pipe_poll_fd(&c->stop), .events = POLLIN}};
        if (!swn_fd_is_ours(c->listen_fd) || p[1].fd < 0)
            return NULL; /* the program closed the descriptors, as daemons do, and may have its own files under their
                            numbers */
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return NULL;
        if (p[1].revents)
            return NULL;
        if (!swn_fd_is_ours(c->listen_fd))
            return NULL;
        int fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EBADF || errno == ENOTSOCK || errno == EINVAL || errno == EOPNOTSUPP)
                return NULL;
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                (void)poll(&p[1], 1, ACCEPT_PAUSE_MS);
            continue;
        }
        fd = swn_fd_registry(fd);
        atomic_store(&c->client_fd, fd);
        serve(c, fd);
        atomic_store(&c->client_fd,
                     -1); /* first: a child forked between the two may leak a descriptor, never close a foreign one */
        swn_fd_registry_close(fd);
    }
}

/* ---- directory and socket ---- */

int swn_control_directory(unsigned index, char *buf, size_t size)
{
    const char *base = secure_getenv("XDG_RUNTIME_DIR");
    int has_base = base && base[0] == '/';
    int n;
    if (index == 0 && has_base)
        n = snprintf(buf, size, "%s/swapnet", base);
    else if (index == (has_base ? 1u : 0u))
        n = snprintf(buf, size, "%s", SYSTEM_DIRECTORY);
    else
        return -ENOENT;
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

/* The directory must be the user's own, no link, and writable by no other user: then paths below it are free of races.
 */
static int check_directory(const char *path, int is_private)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) /* the kernel says ENOTDIR of a link here */
        return lstat(path, &st) == 0 && S_ISLNK(st.st_mode) ? -ELOOP : -errno;
    int rc = 0;
    if (fstat(fd, &st) != 0)
        rc = -errno;
    else if (st.st_uid != geteuid() && (is_private || st.st_uid != 0))
        rc = -EPERM;
    else if (is_private && (st.st_mode & 0777) != 0700)
        rc = fchmod(fd, 0700) == 0 ? 0 : -errno;
    else if (!is_private && (st.st_mode & 0002))
        rc = -EPERM;
    close(fd);
    if (rc == 0 && access(path, W_OK | X_OK) != 0)
        rc = -errno;
    return rc;
}

static int make_directory(const char *path, int is_private)
{
    if (mkdir(path, is_private ? 0700 : 0755) != 0 && errno != EEXIST)
        return -errno;
    return check_directory(path, is_private);
}

/* Of root's processes: after su or sudo -E XDG_RUNTIME_DIR is a user's, who could have files made and removed elsewhere
 * by a link, and would find a directory of root's there. */
static int is_anothers(const char *directory)
{
    char above[PATH_MAX];
    struct stat st;
    return geteuid() == 0 && !swn_dir_of(directory, above, sizeof above) && !stat(above, &st) && st.st_uid != 0;
}

/* The directory for the socket, made and checked. */
static int choose_directory(const char *runtime_dir, char *buf, size_t size)
{
    if (runtime_dir) {
        int n = snprintf(buf, size, "%s/swapnet", runtime_dir);
        return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : make_directory(buf, 1);
    }
    int rc = -ENOENT;
    for (unsigned i = 0; rc == -ENOENT; i++) { /* continues only where XDG_RUNTIME_DIR names nothing */
        rc = swn_control_directory(i, buf, size);
        if (rc)
            return rc;
        if (is_anothers(buf)) {
            rc = -ENOENT;
            continue;
        }
        rc = make_directory(buf, strcmp(buf, SYSTEM_DIRECTORY) != 0);
    }
    return rc;
}

/* A file with this process's pid is a dead predecessor's, unless a process of another pid namespace shares the
 * directory. */
static int remove_stale(const char *path, const struct sockaddr_un *sa)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(st.st_mode))
        return -EADDRINUSE;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int dead = connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) != 0 && errno == ECONNREFUSED;
    close(fd);
    if (!dead)
        return -EADDRINUSE;
    return unlink(path) == 0 || errno == ENOENT ? 0 : -errno;
}

static int open_socket(struct swn_control *c)
{
    struct sockaddr_un sa;
    int rc = swn_control_address(&sa, c->path);
    if (rc == 0)
        rc = remove_stale(c->path, &sa);
    if (rc)
        return rc;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    /* on Linux the file takes the socket's mode; umask would be the whole program's */
    if (fchmod(fd, 0600) != 0 || bind(fd, (const struct sockaddr *)&sa, sizeof(sa)) != 0) {
        rc = -errno;
    } else if (listen(fd, BACKLOG) != 0) {
        rc = -errno;
        unlink(c->path);
    }
    if (rc)
        close(fd);
    else
        c->listen_fd = swn_fd_registry(fd);
    return rc;
}

/* ---- life ---- */

static void close_all(struct swn_control *c)
{
    if (c->listen_fd >= 0)
        swn_fd_registry_close(c->listen_fd);
    swn_wakeup_pipe_close(&c->stop);
    free(c);
}

static int set_path(struct swn_control *c, const char *runtime_dir)
{
    char directory[PATH_MAX];
    int rc = choose_directory(runtime_dir, directory, sizeof(directory));
    if (rc)
        return rc;
    int n = snprintf(c->path, sizeof(c->path), "%s/%ld.sock", directory, (long)c->owner);
    return n < 0 || (size_t)n >= sizeof(c->path) ? -ENAMETOOLONG : 0;
}

int swn_control_start(struct swn_control **out, const struct swn_control_opts *opts)
{
    struct swn_control *c = malloc(sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->fill = opts->fill;
    c->status = opts->status;
    c->set = opts->set;
    c->user = opts->user;
    c->owner = getpid();
    c->listen_fd = -1;
    atomic_init(&c->client_fd, -1);
    int rc = swn_wakeup_pipe_open(&c->stop);
    if (rc == 0)
        rc = set_path(c, opts->runtime_dir);
    if (rc == 0)
        rc = open_socket(c);
    if (rc == 0) {
        rc = swn_thread_start(&c->thread, control_main, c);
        if (rc)
            unlink(c->path);
    }
    if (rc)
        close_all(c);
    else
        *out = c;
    return rc;
}

const char *swn_control_path(const struct swn_control *c)
{
    return c->path;
}

void swn_control_stop(struct swn_control *c)
{
    if (!c)
        return;
    if (c->owner != getpid()) { /* an exit handler that a forked child runs: the child has no such thread */
        swn_control_abandon(c);
        return;
    }
    unlink(c->path);
    if (swn_wakeup_pipe_signal(&c->stop)) {
        /* The program has closed the pipe: the thread still waits for the old descriptor, or has ended. It touches
         * nothing more, and cannot be joined. */
        pthread_detach(c->thread);
        return;
    }
    pthread_join(c->thread, NULL);
    close_all(c);
}

void swn_control_abandon(struct swn_control *c)
{
    if (!c)
        return;
    int fd = atomic_load(&c->client_fd);
    if (fd >= 0)
        swn_fd_registry_close(fd);
    close_all(c);
}
