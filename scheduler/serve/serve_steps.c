/* scheduler/serve/serve_steps.c - what each file of the serving thread does with a socket, a job, or a line to say. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "scheduler/serve/serving_internal.h"

/* Whether a line can be written without waiting: who reads our stderr may have stopped, and requests would stop with
 * it. A pipe that is ready has room for PIPE_BUF bytes. */
static int can_say(void)
{
    struct pollfd err = {.fd = STDERR_FILENO, .events = POLLOUT};

    return poll(&err, 1, 0) == 1 && (err.revents & POLLOUT);
}

void swn_serve_say(const char *format, ...)
{
    static atomic_uint lost;
    char line[1024] = "swapnet-serve: ";
    size_t begin = strlen(line), length;
    va_list args;

    va_start(args, format);
    vsnprintf(line + begin, sizeof line - begin - 1, format, args);
    va_end(args);
    swn_one_line(line);
    length = strlen(line);
    line[length++] = '\n';
    if (!can_say()) {
        atomic_fetch_add(&lost, 1);
        return;
    }
    unsigned count = atomic_exchange(&lost, 0);
    if (count)
        dprintf(STDERR_FILENO, "swapnet-serve: %u lines before this one are lost\n", count);
    ssize_t ignored = write(STDERR_FILENO, line, length);
    (void)ignored;
}

void swn_serve_watch(struct swn_serving *s, int fd, uint64_t tag, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u64 = tag};

    if (fd < 0)
        return;
    if (events)
        epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &event);
    else
        epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

void swn_kept_slots_give(struct swn_buffer *buffer, struct swn_kept_slot **kept)
{
    while (*kept) {
        struct swn_kept_slot *first = *kept;
        *kept = first->next;
        swn_slot_give(buffer, &first->slot);
        free(first);
    }
}

void swn_infer_free(struct swn_buffer *buffer, struct swn_infer *infer)
{
    if (!infer)
        return;
    swn_slot_give(buffer, &infer->body);
    swn_slot_give(buffer, &infer->inputs);
    swn_slot_give(buffer, &infer->outputs);
    swn_kept_slots_give(buffer, &infer->kept);
    swn_labels_drop(infer->labels);
    free(infer->classes);
    free(infer->tensors);
    free(infer);
}

void swn_serve_finish(struct swn_serving *s, struct swn_job *job)
{
    (void)s;
    job->done(job);
}

void swn_serve_refuse(struct swn_serving *s, struct swn_job *job, int status, const char *format, ...)
{
    char text[SWN_OIP_ERROR];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    swn_oip_fail(&job->error, status, "%s", text);
    swn_serve_finish(s, job);
}

void swn_serve_refuse_unknown(struct swn_serving *s, struct swn_job *job)
{
    if (job->version)
        swn_serve_refuse(s, job, 404, "Request for unknown model: '%s' version %" PRId64 " is not found", job->name,
                         job->version);
    else
        swn_serve_refuse(s, job, 404, "Request for unknown model: '%s' is not found", job->name);
}
