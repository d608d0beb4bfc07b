/* scheduler/protocol/control_client.c - asking a control socket, and the line handling both ends share. */
#define _GNU_SOURCE
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "scheduler/protocol/control.h"
#include "scheduler/protocol/control_io.h"

int64_t swn_control_now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int swn_control_wait(int fd, short events, int cancel_fd, int64_t deadline_ms)
{
    for (;;) {
        struct pollfd p[2] = {{.fd = fd, .events = events}, {.fd = cancel_fd, .events = POLLIN}};
        int64_t left = deadline_ms - swn_control_now_ms();
        if (left <= 0)
            return -ETIMEDOUT;
        int n = poll(p, 2, (int)left);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0)
            return p[1].revents ? -ECANCELED : 0;
    }
}

int swn_control_read_line(int fd, char *buf, size_t size, int cancel_fd, int64_t deadline_ms)
{
    size_t have = 0;
    while (have < size) {
        /* the wait comes first, so that a client that sends one byte after the other meets the deadline, too */
        int rc = swn_control_wait(fd, POLLIN, cancel_fd, deadline_ms);
        if (rc)
            return rc;
        ssize_t n = recv(fd, buf + have, size - have, MSG_DONTWAIT);
        if (n == 0)
            return -EPROTO;
        if (n < 0) {
            if (errno == EINTR || errno == EAGAIN)
                continue;
            return -errno;
        }
        char *end = memchr(buf + have, '\n', (size_t)n);
        if (end) {
            *end = '\0';
            return memchr(buf, '\0', (size_t)(end - buf)) ? -EBADMSG : 0; /* the line must not contain a NUL */
        }
        have += (size_t)n;
    }
    return -EMSGSIZE;
}

int swn_control_write(int fd, const char *data, size_t len, int cancel_fd, int64_t deadline_ms)
{
    while (len) {
        ssize_t n = send(fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n >= 0) {
            data += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            int rc = swn_control_wait(fd, POLLOUT, cancel_fd, deadline_ms);
            if (rc)
                return rc;
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

int swn_control_address(struct sockaddr_un *sa, const char *path)
{
    memset(sa, 0, sizeof(*sa));
    sa->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof(sa->sun_path))
        return -ENAMETOOLONG;
    strcpy(sa->sun_path, path);
    return 0;
}

/* connect fails with EAGAIN at once when the backlog is full, and poll does not report when there is room. */
static int connect_until(int fd, const char *path, int64_t deadline_ms)
{
    struct sockaddr_un sa;
    int rc = swn_control_address(&sa, path);
    if (rc)
        return rc;
    while (connect(fd, (const struct sockaddr *)&sa, sizeof(sa)) != 0) {
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        if (swn_control_now_ms() >= deadline_ms)
            return -ETIMEDOUT;
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
    return 0;
}

static int exchange(int fd, const char *path, const char *request, char *answer, size_t size)
{
    int64_t deadline_ms = swn_control_now_ms() + SWN_CONTROL_TIMEOUT_MS;
    int rc = connect_until(fd, path, deadline_ms);
    if (rc == 0)
        rc = swn_control_write(fd, request, strlen(request), -1, deadline_ms);
    if (rc == 0)
        rc = swn_control_write(fd, "\n", 1, -1, deadline_ms);
    if (rc == 0)
        rc = swn_control_read_line(fd, answer, size, -1, deadline_ms);
    return rc;
}

int swn_control_ask(const char *socket_path, const char *request, size_t most, uid_t *uid, char **json_out)
{
    int rc = -ENOMEM;
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t len = sizeof peer;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    char *answer = malloc(most);
    if (answer)
        rc = exchange(fd, socket_path, request, answer, most);
    if (rc == 0 && uid && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0)
        *uid = peer.uid;
    if (rc == 0)
        *json_out = answer;
    else
        free(answer);
    close(fd);
    return rc;
}

int swn_control_query(const char *socket_path, const char *op, char **json_out)
{
    json_t *root = json_pack("{s:s}", "op", op);
    char *request = root ? json_dumps(root, JSON_COMPACT) : NULL;
    int rc = request ? swn_control_ask(socket_path, request, SWN_CONTROL_MAX_BYTES, NULL, json_out) : -ENOMEM;
    free(request);
    json_decref(root);
    return rc;
}
