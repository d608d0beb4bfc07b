/* scheduler/serve/serve_steps.c - what each file of the serving thread does with a socket, a job, or a line to say. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "scheduler/serve/serving_internal.h"

void swn_serve_say(const char *format, ...)
{
    char line[1024] = "swapnet-serve: ";
    size_t begin = strlen(line), length;
    va_list args;

    va_start(args, format);
    vsnprintf(line + begin, sizeof line - begin - 1, format, args);
    va_end(args);
    swn_one_line(line);
    length = strlen(line);
    line[length++] = '\n';
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
