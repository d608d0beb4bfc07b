/* scheduler/serve/serve_watch.c - see serve_watch.h. */
#define _GNU_SOURCE
#include "scheduler/serve/serve_watch.h"

#include <sys/epoll.h>

#include "scheduler/serve/serving_internal.h"

/* A request that has been here for so long is worth two system calls: one to watch its client, one to cease. */
#define WATCH_NS (2 * SWN_SERVE_MS)

void swn_serve_watch_clients(struct swn_serving *s, uint64_t now)
{
    for (struct swn_serve_item *item = s->queue.first; item; item = item->next) {
        struct swn_job *job = (struct swn_job *)item;
        if (job->is_watched || job->client < 0 || now < item->arrived_ns + WATCH_NS)
            continue;
        swn_serve_watch(s, job->client, SWN_SERVE_TAG(SWN_TAG_CLIENT, item->id), EPOLLRDHUP);
        job->is_watched = 1;
    }
}

uint64_t swn_serve_watch_due(const struct swn_serving *s)
{
    uint64_t due = 0;

    for (const struct swn_serve_item *item = s->queue.first; item; item = item->next) {
        const struct swn_job *job = (const struct swn_job *)item;
        if (!job->is_watched && job->client >= 0 && (!due || item->arrived_ns + WATCH_NS < due))
            due = item->arrived_ns + WATCH_NS;
    }
    return due;
}

void swn_serve_unwatch(struct swn_serving *s, struct swn_job *job)
{
    if (job->is_watched)
        swn_serve_watch(s, job->client, 0, 0);
    job->is_watched = 0;
}
