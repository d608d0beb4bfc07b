/* scheduler/serve/serve_leases.h - how much memory each engine has: of --memory, or of what swapnetd leases to the
 * server.
 */
#ifndef SWN_SCHEDULER_SERVE_SERVE_LEASES_H
#define SWN_SCHEDULER_SERVE_SERVE_LEASES_H

#include "scheduler/serve/serving_internal.h"

/* What all engines may have together, by --memory, and now; what one has of such a total when all work. */
uint64_t swn_leases_most(const struct swn_serving *s);
uint64_t swn_leases_total(const struct swn_serving *s);
uint64_t swn_leases_base(const struct swn_serving *s, unsigned engine, uint64_t total);
/* What a user sets as the most that the server has, instead of --memory; 0: --memory. */
void swn_leases_cap(struct swn_serving *s, uint64_t bytes);
uint64_t swn_leases_cap_now(const struct swn_serving *s);
/* What the server has in all, with its buffer and itself. */
uint64_t swn_leases_budget(const struct swn_serving *s);
/* Divides the total anew, and tells engines. */
void swn_leases_review(struct swn_serving *s, uint64_t now_ns);
/* Whether the engine can be started with its lease; whether that will never be so. */
int swn_leases_has_room(const struct swn_serving *s, unsigned engine);
int swn_leases_is_hopeless(const struct swn_serving *s, unsigned engine);
void swn_leases_started(struct swn_served_engine *e);
/* Registers with swapnetd, where one rules. 0, or -errno with `why` filled. */
int swn_leases_register(struct swn_serving *s, char why[SWN_ERRMSG]);
/* A request found too little memory. */
void swn_leases_ran_short(struct swn_serving *s, uint64_t now_ns);
/* Bytes of the model's weights that need not be read now, as far as the engine's messages tell. */
uint64_t swn_leases_in_memory(const struct swn_serving *s, const struct swn_served *model);
/* What the server tells swapnetd; and tells it, where there is something to tell. */
void swn_leases_needs(const struct swn_serving *s, uint64_t now_ns, struct swn_serve_party_needs *needs);
void swn_leases_report(struct swn_serving *s, uint64_t now_ns);
/* The engine's answer. */
void swn_leases_told(struct swn_serving *s, unsigned engine, const struct swn_engine_message *m, uint64_t now_ns);

#endif
