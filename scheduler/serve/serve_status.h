/* scheduler/serve/serve_status.h - the server's own status socket (scheduler/protocol/control.h), as every process
 * under swapnet has one: `swapnetctl status` shows the server with its engines and models, `swapnetctl set` changes its
 * budget.
 *
 * The socket has a thread of its own, which asks the serving thread and waits for it; nothing else is shared. Where no
 * socket can be made, the server goes on without.
 */
#ifndef SWN_SCHEDULER_SERVE_SERVE_STATUS_H
#define SWN_SCHEDULER_SERVE_SERVE_STATUS_H

#include <stdint.h>

struct swn_serving;
struct swn_serve_status;

/* NULL: there is no socket. */
struct swn_serve_status *swn_serve_status_start(struct swn_serving *s);
/* NULL: nothing. */
void swn_serve_status_stop(struct swn_serve_status *status);
/* On the serving thread, in each turn of its loop: answers what was asked. NULL: nothing. */
void swn_serve_status_answer(struct swn_serve_status *status, uint64_t now_ns);

#endif
