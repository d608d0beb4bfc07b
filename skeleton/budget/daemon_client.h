/* skeleton/budget/daemon_client.h - this process as a client of swapnetd.
 *
 * SWAPNET_DAEMON=auto registers with the daemon whose socket is there when the program starts; =PATH with the daemon of
 * that socket, now or whenever it answers. Until it does the process has its minimum; from then on the process obeys
 * the last lease it got, also when the daemon dies. With auto, a process without a lease goes on as without a daemon
 * when none has been there for ten seconds, and no other live process has a lease on its record. No thread of the
 * program waits for the daemon, except for a moment at the very start, so that the first tensors are not limited to the
 * minimum.
 */
#ifndef SWN_SKELETON_BUDGET_DAEMON_CLIENT_H
#define SWN_SKELETON_BUDGET_DAEMON_CLIENT_H

#include <stdint.h>

#include "skeleton/engine/config.h"

struct swn_engine;

/* With SWAPNET_DAEMON=auto, and without a lease: after this time without a daemon, in ms, the process expects none any
 * more. It reads the record once in this time. Tests set it lower. */
extern int64_t swn_client_alone_ms;
/* Registers, if a daemon is to rule. To be called after the engine has started, with no lock held. */
void swn_client_start(const struct swn_config *config);
/* In a forked child that begins to use tensors: registers it as a process of its own, as its parent was, and has its
 * budget follow memory, if its parent's did. In every other process it costs one load. With no lock held. */
void swn_client_after_fork(void);
/* Wakes the client's thread: a change of the budget is bound, or the user's wish has changed. Lock held. */
void swn_client_wake(struct swn_engine *e);
void swn_client_fork_child(struct swn_engine *e);
/* Sets the most that the process may have from now on, unless a user has set a budget; at least its minimum. With no
 * lock held. */
void swn_client_cap(struct swn_engine *e, uint64_t bytes);
/* The socket of the daemon whose leases count, or whose first lease the process waits for; NULL: no daemon rules. Lock
 * held; lives as long as the process. */
const char *swn_client_daemon(const struct swn_engine *e);
/* For swn_control_opts.set: the user's own wish, within the lease. */
char *swn_client_set(void *engine, unsigned has, uint64_t budget, double urgency);

#endif
