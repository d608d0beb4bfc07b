/* scheduler/serve/serve_trace.c - see serve_trace.h.
 *
 * Engine n is row n of the track "compute". Where exactly an engine read within a group is in the trace of its own that
 * SWAPNET_TRACE makes; here a group that read has a span on "disk" with all of the bytes.
 */
#include "scheduler/serve/serve_trace.h"

#include <inttypes.h>
#include <stdio.h>

void swn_serve_trace_request(struct swn_serving *s, const struct swn_job *job, const char *how, uint64_t now)
{
    char name[SWN_TRACE_NAME];

    if (!s->trace)
        return;
    snprintf(name, sizeof name, "%.15s%.30s", how, s->models[job->item.model]->name);
    swn_trace_span(s->trace, SWN_TRACK_REQUEST, (unsigned)job->item.id, name, job->item.arrived_ns, now, 0);
}

void swn_serve_trace_group(struct swn_serving *s, unsigned engine, const struct swn_job *job,
                           const struct swn_engine_message *m, uint64_t now)
{
    uint64_t *last = &s->engines[engine].traced_ns, begin = m->ns < now ? now - m->ns : 0;
    char name[64];

    if (!s->trace)
        return;
    begin = begin < *last ? *last : begin; /* the answer came later than the group ended, and the next one has begun */
    *last = now;
    snprintf(name, sizeof name, "%.20s %" PRIu32 " #%" PRIu64, s->models[job->item.model]->name, m->group,
             job->item.id);
    swn_trace_span(s->trace, SWN_TRACK_COMPUTE, engine, name, begin, now, 0);
    if (m->reads.bytes)
        swn_trace_span(s->trace, SWN_TRACK_DISK, 0, name, begin, now, m->reads.bytes);
}
