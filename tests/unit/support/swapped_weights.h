/* tests/unit/support/swapped_weights.h - weights that come and go on a device that the stand-in is, for tests. Static;
 * one thread. */
#ifndef SWN_TESTS_UNIT_SUPPORT_SWAPPED_WEIGHTS_H
#define SWN_TESTS_UNIT_SUPPORT_SWAPPED_WEIGHTS_H

#include "tests/fakes/cuda/standin.h"
#include "skeleton/device/device.h"
#include "tests/unit/support/device_cases.h"
#include "tests/unit/support/engine_fixture.h"

#define WEIGHTS 24
#define WEIGHT_BYTES (MIB - 12345)
#define MAPPED_BUDGET (8 * MIB)
#define SHARED_BUDGET (12 * MIB) /* of which 3 are for what comes and goes */

extern struct tensor weights[WEIGHTS];
extern struct swn_device_memory *held[WEIGHTS];
extern void *closed[WEIGHTS]; /* where the device finds them */
extern void *const stream;

struct swn_stats counters(void);
int is_card(const char *device);

/* The engine, and weights of these sizes by turns; `card` is a card's budget. */
void begin_with(const char *device, size_t budget, size_t card, const size_t *sizes, size_t kinds);
/* All of WEIGHT_BYTES. */
void begin(const char *device);
void give(unsigned i);
/* Of those that went to the device, how many come and go there. */
unsigned give_all(void);
/* Until nothing is left on the device. */
void settle(void);
void take_all(void);

/* An operator that reads weight i on a stream: its launched work reads for this many microseconds. */
int read_on(unsigned i, void *on, unsigned us);
void pass(void);
/* Until nothing has been brought for a while. */
void wait_for_quiet(void);

#endif
