/* scheduler/serve/serve_trace.h - the timeline of --trace; nothing where there is none. For the serving thread. */
#ifndef SWN_SCHEDULER_SERVE_SERVE_TRACE_H
#define SWN_SCHEDULER_SERVE_SERVE_TRACE_H

#include "scheduler/serve/serving_internal.h"

/* The request ends. how: what goes before the model's name. */
void swn_serve_trace_request(struct swn_serving *s, const struct swn_job *job, const char *how, uint64_t now_ns);
/* The engine has run a layer group of the request. */
void swn_serve_trace_group(struct swn_serving *s, unsigned engine, const struct swn_job *job,
                           const struct swn_engine_message *m, uint64_t now_ns);

#endif
