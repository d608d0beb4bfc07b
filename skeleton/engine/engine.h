/* skeleton/engine/engine.h - the engine of one process: budget, residency, fetching and order, behind the hooks.
 *
 * All functions are thread-safe and may be called before swn_engine_start; then they do nothing, or return "not mine".
 */
#ifndef SWN_SKELETON_ENGINE_ENGINE_H
#define SWN_SKELETON_ENGINE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "skeleton/abi/abi.h"
#include "skeleton/engine/config.h"
#include "scheduler/protocol/stats.h"

/* Exit status when a weight could not be read back, or not as it was; documented in swapnet(7). */
#define SWN_EXIT_UNREADABLE 5

/* 0, or -errno with a text in why[]: the process then runs as if swapnet were not there. */
int swn_engine_start(const struct swn_config *config, char *why, size_t why_size);
int swn_engine_running(void);
/* The torch backend, once it is attached. Until then nothing is spilled. */
void swn_engine_set_torch(const struct swn_torch_backend *backend);
void swn_engine_services(struct swn_runtime_services *out);

/* Memory for a tensor of n >= SWN_GRANULE bytes; NULL: the arena has no room, use ordinary memory. *strict: set when
 * the budget is exceeded and the user asked for an error. */
void *swn_engine_alloc(size_t n, int *strict);
/* A tensor that swn_engine_alloc had no room for has n bytes of ordinary memory. */
void swn_engine_count_untracked(size_t n);
/* 1: p was memory of the engine, and is freed now. */
int swn_engine_free(void *p);
/* Counts memory that is not the engine's. */
void swn_engine_count_small(long long bytes);
/* Called by the allocation hook with no lock held: does the work that is impossible under the lock. */
void swn_engine_after_alloc(void);
/* The part of swn_engine_after_alloc that small allocations do as well: when a smaller budget comes into force, the
 * program may make no other allocations, and the hook must see operators that read evicted weights. It does not handle
 * a fork. */
void swn_engine_install_hook(void);

int swn_engine_owns(uintptr_t addr);
/* Keeps [p, p+n) writable for the kernel while a system call writes it. */
void swn_engine_pin(const void *p, size_t n);
void swn_engine_unpin(const void *p, size_t n);

/* 1 when a fault at addr was the engine's and is repaired; 0 also when it keeps coming back although there is nothing
 * to repair. Async-signal-safe. */
int swn_engine_trap(uintptr_t addr);
/* 1 when addr is a weight whose bytes could not be read; writes the message. */
int swn_engine_unreadable(uintptr_t addr);
/* The same for a file that the program has mapped. */
int swn_engine_mapped_unreadable(uintptr_t addr);

void swn_engine_prefork(void);
void swn_engine_postfork_parent(void);
void swn_engine_postfork_child(void);

/* The result of a change of the budget. */
struct swn_budget_change {
    uint64_t budget_bytes;  /* in force, or to be so once `bound` */
    uint64_t minimum_bytes; /* the least budget that would have been accepted */
    int bound;              /* the counted bytes are within the new budget, and stay there */
    uint64_t took_ns;       /* time until then, and until the plan was made */
    uint64_t spilled_bytes; /* written to the spill file meanwhile: dirty bytes, at the disk's speed */
};

/* Gives the process another budget. A larger one counts at once. A thread of the engine carries out a smaller one, so
 * that an idle program, or one in a long operator, gives memory back as well; the thread makes the plan in either case.
 * This call waits up to wait_ms for both. -ERANGE: below the minimum; nothing has changed, and out->minimum_bytes is
 * the least that is possible. -EAGAIN: the change is under way and not bound yet. -ESRCH: no engine runs. Else 0. */
int swn_engine_set_budget(uint64_t bytes, unsigned wait_ms, struct swn_budget_change *out);

void swn_engine_stats(struct swn_stats *out);
void swn_engine_exit(void);

#endif
