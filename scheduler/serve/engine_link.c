/* scheduler/serve/engine_link.c - see engine_link.h. */
#define _GNU_SOURCE
#include "scheduler/serve/engine_link.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "scheduler/protocol/preload.h"

extern char **environ;

#define OURS 5 /* variables that we set */
#define SOCKET_BYTES (1 << 20)
#define FREE_MS 1000
#define LOOK_NS 1000000

int swn_engine_link_init(struct swn_engine_link *link)
{
    *link = (struct swn_engine_link){.socket = -1, .pid = -1};
    link->in = swn_engine_packet_new();
    link->out = swn_engine_packet_new();
    return link->in && link->out ? 0 : -ENOMEM;
}

void swn_engine_link_free(struct swn_engine_link *link)
{
    swn_engine_link_end(link, FREE_MS);
    swn_engine_packet_free(link->in);
    swn_engine_packet_free(link->out);
    link->in = link->out = NULL;
}

/* ---- start ---- */

struct launch {
    const char *program;
    char *argv[8], **env;
    char socket[16], buffer[16];
    char *ours[OURS]; /* malloc'd */
    int socket_fd, buffer_fd;
    pid_t parent;
};

static int is_set_by_us(const char *variable, const struct launch *l)
{
    for (int i = 0; i < OURS; i++) {
        size_t name = l->ours[i] ? strcspn(l->ours[i], "=") + 1 : 0;
        if (name && strncmp(variable, l->ours[i], name) == 0)
            return 1;
    }
    return 0;
}

static int make_environment(struct launch *l, const struct swn_engine_start *s)
{
    size_t n = 0, count = 0;
    char *list = NULL;
    int rc = s->preload ? swn_preload_list(s->preload, getenv("LD_PRELOAD"), &list) : 0;

    if (rc == 0 && asprintf(&l->ours[0], "SWAPNET_BUDGET=%" PRIu64, s->budget_bytes) < 0)
        rc = -ENOMEM;
    if (rc == 0 && list && asprintf(&l->ours[1], "LD_PRELOAD=%s", list) < 0)
        rc = -ENOMEM;
    if (rc == 0 && s->threads && asprintf(&l->ours[2], "OMP_NUM_THREADS=%u", s->threads) < 0)
        rc = -ENOMEM;
    if (rc == 0 && s->threads && asprintf(&l->ours[3], "MKL_NUM_THREADS=%u", s->threads) < 0)
        rc = -ENOMEM;
    /* swapnetd knows the server alone, which divides what it has. */
    if (rc == 0 && !(l->ours[4] = strdup("SWAPNET_DAEMON=off")))
        rc = -ENOMEM;
    free(list);
    while (environ[count])
        count++;
    l->env = rc ? NULL : calloc(count + OURS + 1, sizeof *l->env);
    if (!l->env)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        if (!is_set_by_us(environ[i], l))
            l->env[n++] = environ[i];
    for (int i = 0; i < OURS; i++)
        if (l->ours[i])
            l->env[n++] = l->ours[i];
    return 0;
}

static void make_command(struct launch *l, const struct swn_engine_start *s)
{
    int n = 0;

    l->program = s->program;
    snprintf(l->socket, sizeof l->socket, "%d", l->socket_fd);
    snprintf(l->buffer, sizeof l->buffer, "%d", l->buffer_fd);
    const char *words[] = {s->program,
                           "--socket",
                           l->socket,
                           "--buffer",
                           l->buffer,
                           s->is_worker ? "--worker"
                           : s->torch   ? "--torch"
                                        : NULL,
                           s->is_worker ? NULL : s->torch};
    for (size_t i = 0; i < sizeof words / sizeof *words && words[i]; i++)
        l->argv[n++] = (char *)(uintptr_t)words[i];
}

/* In the child of a process with threads: system calls alone. */
static void become_engine(const struct launch *l, int report)
{
    sigset_t none;

    sigemptyset(&none);
    setpgid(0, 0); /* what a terminal's keys end is swapnet-serve, which then ends its engines in order */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != l->parent)
        _exit(1);
    fcntl(l->socket_fd, F_SETFD, 0);
    fcntl(l->buffer_fd, F_SETFD, 0);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvpe(l->program, l->argv, l->env);
    int err = errno;
    ssize_t ignored = write(report, &err, sizeof err);
    (void)ignored;
    _exit(127);
}

/* 0, or -errno of the exec: the pipe closes when it succeeds. */
static int launch(struct swn_engine_link *link, const struct launch *l)
{
    int report[2], err = 0;
    ssize_t n;

    if (pipe2(report, O_CLOEXEC))
        return -errno;
    link->pid = fork();
    if (link->pid == 0)
        become_engine(l, report[1]);
    err = link->pid < 0 ? errno : 0;
    close(report[1]);
    if (!err) {
        do
            n = read(report[0], &err, sizeof err);
        while (n < 0 && errno == EINTR);
        if (n != sizeof err)
            err = 0;
    }
    close(report[0]);
    if (err && link->pid > 0)
        waitpid(link->pid, NULL, 0);
    if (err)
        link->pid = -1;
    return -err;
}

int swn_engine_link_start(struct swn_engine_link *link, const struct swn_engine_start *s, uint64_t now_ns,
                          char why[SWN_ERRMSG])
{
    struct launch l = {.buffer_fd = s->buffer_fd, .parent = getpid()};
    int ends[2], bytes = SOCKET_BYTES, rc;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return swn_errmsg(why, -errno, "cannot make a socket for the engine: %s", strerror(errno));
    for (int i = 0; i < 2; i++)
        setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    l.socket_fd = ends[1];
    make_command(&l, s);
    rc = make_environment(&l, s);
    if (rc == 0)
        rc = launch(link, &l);
    free(l.env);
    for (int i = 0; i < OURS; i++)
        free(l.ours[i]);
    close(ends[1]);
    if (rc) {
        close(ends[0]);
        return swn_errmsg(why, rc, "cannot start the engine '%s': %s", s->program, strerror(-rc));
    }
    link->socket = ends[0];
    link->state = SWN_ENGINE_IS_STARTING;
    link->is_ours_to_kill = link->is_closed = 0;
    link->buffer_bytes = s->buffer_bytes;
    link->first = 0;
    link->count = 1;
    link->told[0] = (struct swn_engine_told){.op = SWN_ENGINE_READY};
    link->since_ns = now_ns;
    return 0;
}

/* ---- messages ---- */

int swn_engine_link_tell(struct swn_engine_link *link, const struct swn_engine_message *m, uint64_t now_ns)
{
    int rc;

    if (link->socket < 0 || link->state == SWN_ENGINE_IS_ENDING)
        return -EPIPE;
    if (link->count == SWN_ENGINE_TOLD)
        return -EBUSY;
    rc = swn_engine_wire_send(link->socket, link->out, m);
    if (rc || m->op == SWN_ENGINE_DROP)
        return rc;
    if (link->count == 0)
        link->since_ns = now_ns;
    link->told[(link->first + link->count++) % SWN_ENGINE_TOLD] =
        (struct swn_engine_told){.op = (enum swn_engine_op)m->op, .request = m->request, .model = m->model};
    return 0;
}

const struct swn_engine_told *swn_engine_link_doing(const struct swn_engine_link *link)
{
    return link->count ? &link->told[link->first] : NULL;
}

/* The answer to `op`; READY is the answer to the start. */
static uint32_t answer_to(enum swn_engine_op op)
{
    return op == SWN_ENGINE_READY ? op : op + 1;
}

int swn_engine_link_hear(struct swn_engine_link *link, struct swn_engine_message *m, uint64_t now_ns)
{
    const struct swn_engine_told *told = swn_engine_link_doing(link);
    int rc = link->socket < 0 ? 0 : swn_engine_wire_receive(link->socket, link->in, link->buffer_bytes, m);

    if (rc != 1)
        return rc;
    if (!told || m->op != answer_to(told->op))
        return -EPROTO;
    if (told->op == SWN_ENGINE_RUN || told->op == SWN_ENGINE_STORE ? m->request != told->request
                                                                   : m->model != told->model)
        return -EPROTO;
    if (told->op == SWN_ENGINE_READY) {
        link->state = SWN_ENGINE_IS_UP;
        snprintf(link->version, sizeof link->version, "%s", m->text);
        swn_one_line(link->version);
    }
    link->first = (link->first + 1) % SWN_ENGINE_TOLD;
    link->count--;
    link->since_ns = now_ns;
    return 1;
}

/* ---- end ---- */

void swn_engine_link_kill(struct swn_engine_link *link)
{
    if (link->pid <= 0)
        return;
    link->is_ours_to_kill = 1;
    link->state = SWN_ENGINE_IS_ENDING;
    kill(link->pid, SIGKILL);
}

int swn_engine_link_is_dead(const struct swn_engine_link *link)
{
    siginfo_t info = {0};

    return link->pid > 0 && waitid(P_PID, (id_t)link->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

void swn_engine_link_closed(struct swn_engine_link *link)
{
    link->is_closed = 1;
    link->state = SWN_ENGINE_IS_ENDING;
}

int swn_engine_link_reap(struct swn_engine_link *link, int *status)
{
    *status = 0;
    if (swn_engine_link_is_dead(link))
        kill(-link->pid,
             SIGKILL); /* the children of a model in Python; nobody else has this number before it is reaped */
    if (link->pid > 0 && waitpid(link->pid, status, WNOHANG) == 0)
        return 0;
    if (link->socket >= 0)
        close(link->socket);
    link->socket = -1;
    link->pid = -1;
    link->state = SWN_ENGINE_IS_DOWN;
    return 1;
}

int swn_engine_link_end(struct swn_engine_link *link, unsigned patience_ms)
{
    const struct timespec look = {.tv_nsec = LOOK_NS};
    int status, is_over;

    swn_engine_link_kill(link);
    while (!(is_over = swn_engine_link_reap(link, &status)) && patience_ms--)
        nanosleep(&look, NULL);
    return is_over;
}
