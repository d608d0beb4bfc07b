/* skeleton/budget/daemon_client.h - this process as one of those that swapnetd serves.
 *
 * SWAPNET_DAEMON=auto registers with the daemon whose socket is there when the program starts; =PATH with that one, now
 * or whenever it answers. Until it does the process has its minimum; from then on it obeys the last lease it got, also
 * when the daemon dies. With auto, one that got none goes on as without a daemon when none has been there for ten
 * seconds, and nobody else lives who has a lease on its record. Nothing here ever waits for the daemon, but for a
 * moment at the very start, so that the first tensors need not be squeezed into the minimum.
 */
#ifndef SWN_SKELETON_BUDGET_DAEMON_CLIENT_H
#define SWN_SKELETON_BUDGET_DAEMON_CLIENT_H

#include <stdint.h>

#include "skeleton/engine/config.h"

struct swn_engine;

/* With SWAPNET_DAEMON=auto, and without a lease: when no daemon has been there for so long, none will be. The record is
 * looked at as often. Tests have less time. */
extern int64_t swn_client_alone_ms;
/* Registers, if a daemon is to rule. After the engine has started, with no lock held. */
void swn_client_start(const struct swn_config *config);
/* In a forked child that begins to use tensors: registers it as a process of its own, as its parent was, and has its
 * budget follow memory, if its parent's did. Costs one look everywhere else. With no lock held. */
void swn_client_after_fork(void);
/* There is something for its thread to look at: a change of the budget is bound, or the user's wish is another. Lock
 * held. */
void swn_client_wake(struct swn_engine *e);
void swn_client_fork_child(struct swn_engine *e);
/* The most that the process is to have from now on, unless a user has set a budget; its minimum, where that is more.
 * With no lock held. */
void swn_client_cap(struct swn_engine *e, uint64_t bytes);
/* The socket of the daemon whose leases count, or whose first one is waited for; NULL: none rules. Lock held; lives as
 * long as the process. */
const char *swn_client_daemon(const struct swn_engine *e);
/* For swn_control_opts.set: the user's own wish, within the lease. */
char *swn_client_set(void *engine, unsigned has, uint64_t budget, double urgency);

#endif
