/* scheduler/serve/serving.c - the loop of the serving thread: jobs, engines, signals and time. See serving.h. */
#define _GNU_SOURCE
#include "scheduler/serve/serving.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "scheduler/protocol/systemd.h"
#include "scheduler/serve/serve_leases.h"
#include "scheduler/serve/serve_outputs.h"
#include "scheduler/serve/serve_watch.h"
#include "scheduler/serve/serving_internal.h"

#define EVENTS 64
/* Jobs that are taken between two looks at engines. */
#define JOBS_MOST 64
#define TICK_NS (UINT64_C(1000) * SWN_SERVE_MS)
/* While it drains, the loop looks this often whether the last byte of the last answer is sent. */
#define DRAIN_LOOK_NS (UINT64_C(20) * SWN_SERVE_MS)
/* How long the end of the server waits for the end of an engine. */
#define END_MS 2000

/* ---- jobs ---- */

void swn_serving_wake(struct swn_serving *s)
{
    const uint64_t one = 1;
    ssize_t ignored = write(s->event_fd, &one, sizeof one);

    (void)ignored;
}

void swn_serving_post(struct swn_serving *s, struct swn_job *job)
{
    int was_empty;

    job->next = NULL;
    pthread_mutex_lock(&s->inbox_lock);
    if (s->is_closed) { /* nobody would take it out */
        pthread_mutex_unlock(&s->inbox_lock);
        swn_serve_refuse(s, job, 503, "the server is shutting down");
        return;
    }
    was_empty = s->inbox == NULL;
    *s->inbox_end = job;
    s->inbox_end = &job->next;
    pthread_mutex_unlock(&s->inbox_lock);
    if (was_empty)
        swn_serving_wake(s);
}

static void take_job(struct swn_serving *s, struct swn_job *job)
{
    job->error.status = 200;
    switch (job->kind) {
    case SWN_JOB_INFER:
        swn_requests_admit(s, job, swn_now_ns());
        break;
    case SWN_JOB_LOAD:
        swn_models_load_job(s, job);
        break;
    case SWN_JOB_UNLOAD:
        swn_models_unload_job(s, job);
        break;
    default:
        swn_answers_give(s, job);
    }
}

/* The first of those that wait, or NULL. */
static struct swn_job *next_job(struct swn_serving *s)
{
    struct swn_job *job;

    pthread_mutex_lock(&s->inbox_lock);
    job = s->inbox;
    if (job) {
        s->inbox = job->next;
        job->next = NULL;
    }
    if (!s->inbox)
        s->inbox_end = &s->inbox;
    pthread_mutex_unlock(&s->inbox_lock);
    return job;
}

/* So many at most that engines are heard between them; a load reads the repository, so one of these. */
static void take_inbox(struct swn_serving *s, unsigned most)
{
    struct swn_job *job;
    uint64_t some;
    ssize_t ignored = read(s->event_fd, &some, sizeof some);

    (void)ignored;
    while (most && (job = next_job(s))) {
        most = job->kind == SWN_JOB_LOAD ? 0 : most - 1;
        take_job(s, job);
    }
    if (!most)
        swn_serving_wake(s); /* there may be more */
}

/* ---- events ---- */

static void begin_drain(struct swn_serving *s, uint64_t now)
{
    if (s->is_draining) { /* a second signal: no more patience */
        s->exit_at_ns = now;
        return;
    }
    s->is_draining = 1;
    s->exit_at_ns = now + s->options.exit_ms * SWN_SERVE_MS;
    swn_notify("STOPPING=1");
    swn_serve_say("told to end; %zu requests are on their way", s->queue.count);
    s->hooks->quiesce(s->hooks->user);
}

static void take_signal(struct swn_serving *s, uint64_t now)
{
    struct signalfd_siginfo info;

    if (read(s->signal_fd, &info, sizeof info) != sizeof info)
        return;
    if (info.ssi_signo == SIGCHLD)
        swn_engines_bury(s, now);
    else if (info.ssi_signo != SIGHUP || !s->is_draining) /* a terminal that is closed sends it, and its shell too */
        begin_drain(s, now);
}

static void client_is_gone(struct swn_serving *s, uint64_t id)
{
    struct swn_job *job = (struct swn_job *)swn_serve_queue_find(&s->queue, id);

    if (!job)
        return;
    swn_serve_unwatch(s, job);
    job->client = -1;
    swn_requests_drop(s, job, 499, SWN_FAILURE_CANCELED, "the client has closed the connection");
}

static void handle(struct swn_serving *s, uint64_t tag, uint64_t now)
{
    uint64_t number = tag & ((UINT64_C(1) << 56) - 1);

    switch (tag >> 56) {
    case SWN_TAG_INBOX:
        take_inbox(s, JOBS_MOST);
        break;
    case SWN_TAG_SIGNAL:
        take_signal(s, now);
        break;
    case SWN_TAG_ENGINE:
        swn_engines_readable(s, (unsigned)number, now);
        break;
    case SWN_TAG_PARTY:
        swn_serve_party_hear(s->limits.party, now);
        break;
    case SWN_TAG_CLIENT:
        client_is_gone(s, number);
    }
}

static void drop_late(struct swn_serving *s, uint64_t now)
{
    struct swn_serve_item *late;

    while ((late = swn_serve_queue_late(&s->queue, now)))
        swn_requests_drop(s, (struct swn_job *)late, 503, SWN_FAILURE_REJECTED, "the request's time is over");
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return !a || (b && b < a) ? b : a;
}

/* Milliseconds to wait, rounded up: a deadline has passed when the loop wakes for it. */
static int patience(const struct swn_serving *s, uint64_t tick_ns, uint64_t now)
{
    uint64_t due = sooner(sooner(tick_ns, swn_serve_queue_deadline(&s->queue)), swn_engines_due(s));

    due = sooner(sooner(due, swn_serve_watch_due(s)), swn_requests_room_due(s, now));
    if (s->is_draining)
        due = sooner(sooner(due, s->exit_at_ns), now + DRAIN_LOOK_NS);
    return due <= now ? 0 : (int)((due - now + SWN_SERVE_MS - 1) / SWN_SERVE_MS);
}

static int is_drained(const struct swn_serving *s, uint64_t now)
{
    if (!s->is_draining)
        return 0;
    return now >= s->exit_at_ns || (!s->queue.count && !s->loads && !s->hooks->requests(s->hooks->user));
}

static void tick(struct swn_serving *s, uint64_t *next, uint64_t now)
{
    if (now < *next)
        return;
    *next = now + TICK_NS;
    s->hooks->tick(s->hooks->user);
    swn_trace_flush(s->trace);
    swn_notify("WATCHDOG=1");
}

/* What is left when patience has ended. */
static void refuse_all(struct swn_serving *s)
{
    struct swn_job *job;

    while ((job = next_job(s)))
        take_job(s, job);
    while ((job = (struct swn_job *)s->queue.first)) {
        if (job->run)
            swn_ensembles_abandon(job->run);
        swn_serve_queue_remove(&s->queue, &job->item);
        swn_serve_unwatch(s, job);
        swn_serve_refuse(s, job, 503, "the server is shutting down");
    }
    while ((job = s->loads)) {
        s->loads = job->next;
        swn_serve_refuse(s, job, 503, "the server is shutting down");
    }
}

/* The last answers are sent to their last byte, but for clients that do not take them. */
static void see_off(struct swn_serving *s)
{
    const struct timespec look = {.tv_nsec = DRAIN_LOOK_NS};
    uint64_t until = swn_now_ns() + TICK_NS;

    while (s->hooks->requests(s->hooks->user) && swn_now_ns() < until) {
        nanosleep(&look, NULL);
        refuse_all(s);
    }
    pthread_mutex_lock(&s->inbox_lock);
    s->is_closed = 1;
    pthread_mutex_unlock(&s->inbox_lock);
    refuse_all(s);
}

int swn_serving_run(struct swn_serving *s, const struct swn_serving_hooks *hooks)
{
    struct epoll_event events[EVENTS];
    uint64_t now = swn_now_ns(), next_tick = now + TICK_NS;

    s->hooks = hooks;
    s->status = swn_serve_status_start(s);
    while (!is_drained(s, now)) {
        int n = epoll_wait(s->epoll_fd, events, EVENTS, patience(s, next_tick, now));
        if (n < 0 && errno != EINTR)
            return -errno;
        now = swn_now_ns();
        for (int i = 0; i < n; i++)
            handle(s, events[i].data.u64, now);
        swn_serve_watch_clients(s, now);
        drop_late(s, now);
        swn_requests_find_room(s, now);
        swn_engines_pump(s, now);
        swn_models_settle_ensembles(s);
        swn_models_settle(s);
        swn_serve_status_answer(s->status, now);
        tick(s, &next_tick, now);
    }
    swn_serve_status_stop(s->status);
    s->status = NULL;
    /* No engine writes to a slot any more when it is given back. */
    for (unsigned i = 0; i < SWN_ENGINES_MOST; i++)
        swn_engine_link_kill(&s->engines[i].link);
    for (unsigned i = 0; i < SWN_ENGINES_MOST; i++)
        if (!swn_engine_link_end(&s->engines[i].link, END_MS))
            swn_serve_say("engine %u does not end, though it is killed; the kernel has it", i);
    refuse_all(s);
    see_off(s);
    return 0;
}

/* ---- begin and end ---- */

int swn_serving_is_draining(const struct swn_serving *s)
{
    return s->is_draining;
}

struct swn_buffer *swn_serving_buffer(struct swn_serving *s)
{
    return s->buffer;
}

/* Signals are blocked before there is another thread, which then has them blocked as well. */
static int open_events(struct swn_serving *s)
{
    struct sigaction hangup;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) /* nohup has it ignored */
        sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->epoll_fd < 0 || s->event_fd < 0 || s->signal_fd < 0)
        return -errno;
    swn_serve_watch(s, s->event_fd, SWN_SERVE_TAG(SWN_TAG_INBOX, 0), EPOLLIN);
    swn_serve_watch(s, s->signal_fd, SWN_SERVE_TAG(SWN_TAG_SIGNAL, 0), EPOLLIN);
    return 0;
}

int swn_serving_new(struct swn_serving **out, const struct swn_serving_options *options, char why[SWN_ERRMSG])
{
    struct swn_serving *s = calloc(1, sizeof *s);
    int rc;

    if (!s)
        return swn_errmsg(why, -ENOMEM, "out of memory");
    s->options = *options;
    s->epoll_fd = s->event_fd = s->signal_fd = s->limits.party_socket = -1;
    s->inbox_end = &s->inbox;
    pthread_mutex_init(&s->inbox_lock, NULL);
    for (int i = 0; i < SWN_ENGINES_MOST; i++)
        s->engines[i].link = (struct swn_engine_link){.socket = -1, .pid = -1};
    rc = open_events(s);
    if (rc)
        swn_errmsg(why, rc, "cannot wait for events: %s", strerror(-rc));
    if (rc == 0 && options->trace && (rc = swn_trace_open(&s->trace, options->trace)))
        swn_errmsg(why, rc, "cannot write the trace %s: %s", options->trace, strerror(-rc));
    if (rc == 0 && (rc = swn_buffer_open(&s->buffer, options->buffer_bytes)))
        swn_errmsg(why, rc, "cannot make the buffer: %s", strerror(-rc));
    if (rc == 0)
        rc = swn_repository_open(&s->repository, options->repository, why);
    for (int i = 0; i < SWN_ENGINES_MOST && rc == 0; i++)
        if ((rc = swn_engine_link_init(&s->engines[i].link)))
            swn_errmsg(why, rc, "out of memory");
    if (rc == 0 && !(s->lane = swn_serve_lane_new(options->policy, options->time_error / 100.0)))
        rc = swn_errmsg(why, -ENOMEM, "out of memory");
    if (rc == 0)
        rc = swn_models_start(s, why);
    s->engines[0].is_wanted = 1;
    if (rc == 0)
        rc = swn_leases_register(s, why);
    if (rc) {
        swn_serving_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void swn_serving_free(struct swn_serving *s)
{
    if (!s)
        return;
    for (int i = 0; i < SWN_ENGINES_MOST; i++)
        swn_engine_link_free(&s->engines[i].link);
    swn_serve_party_close(s->limits.party);
    if (swn_trace_close(s->trace))
        swn_serve_say("the trace is not complete: its file could not be written");
    swn_serve_lane_free(s->lane);
    swn_models_free(s);
    swn_repository_close(s->repository);
    swn_buffer_close(s->buffer);
    for (int *fd = (int[]){s->epoll_fd, s->event_fd, s->signal_fd, -2}; *fd != -2; fd++)
        if (*fd >= 0)
            close(*fd);
    pthread_mutex_destroy(&s->inbox_lock);
    free(s);
}
