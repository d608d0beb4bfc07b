/* scheduler/serve/serve_outputs.h - where in the buffer the outputs of a request go. For the serving thread. */
#ifndef SWN_SCHEDULER_SERVE_SERVE_OUTPUTS_H
#define SWN_SCHEDULER_SERVE_SERVE_OUTPUTS_H

#include "scheduler/serve/serving_internal.h"

/* Whether the buffer has room for outputs as large as the model's last ones, of a step that runs early and whose
 * outputs no request may need in the end. */
int swn_outputs_has_room_early(struct swn_serving *s, const struct swn_served *model);

/* Before the request's last group: room as large as the model's last answer, if that is small and known. 1 and *room,
 * or 0. */
unsigned swn_outputs_room(struct swn_serving *s, struct swn_job *job, const struct swn_served *model,
                          struct swn_wire_tensor *room);

/* After it, where the outputs did not go there: a slot for them, each aligned as a slot is. 0, or -errno. -ENOSPC:
 * there is none now, and swn_outputs_find_room may find one later. */
int swn_outputs_place(struct swn_serving *s, struct swn_job *job, const struct swn_engine_message *m);
int swn_outputs_find_room(struct swn_serving *s, struct swn_job *job);
/* Models have come or gone, or their answers have another size: requests leave room in the buffer for some of the
 * largest ones. */
void swn_outputs_keep_room(struct swn_serving *s);

/* serve_requests.c: outputs that have waited for room in the buffer are stored, if there is some now; and when to look
 * again, 0: none wait. */
void swn_requests_find_room(struct swn_serving *s, uint64_t now_ns);
uint64_t swn_requests_room_due(const struct swn_serving *s, uint64_t now_ns);

/* Where they did. 0; -ENOMEM; -EPROTO: they lie elsewhere. */
int swn_outputs_take(struct swn_job *job, const struct swn_engine_message *m);

#endif
