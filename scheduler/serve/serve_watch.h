/* scheduler/serve/serve_watch.h - clients that leave before their answers.
 *
 * The serving thread watches the sockets of clients whose requests have been here for some ms: the end of one is an
 * event of its loop. Whoever left before is seen then, as the end of a connection lasts.
 */
#ifndef SWN_SCHEDULER_SERVE_SERVE_WATCH_H
#define SWN_SCHEDULER_SERVE_SERVE_WATCH_H

#include "scheduler/serve/serving.h"

void swn_serve_watch_clients(struct swn_serving *s, uint64_t now_ns);
/* When there is one more to be watched; 0: there is none. */
uint64_t swn_serve_watch_due(const struct swn_serving *s);
void swn_serve_unwatch(struct swn_serving *s, struct swn_job *job);

#endif
