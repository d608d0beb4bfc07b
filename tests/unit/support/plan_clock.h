/* tests/unit/support/plan_clock.h - a clock that moves when the test says so, and a disk of one speed, for tests of
 * what plans come to: a plan is made of what operators and the disk take, which on a busy machine is anything.
 *
 * A test that says
 *     wraps: swn_now_ns swn_cond_wait_until swn_spin_wait_wait swn_disk_speed_get swn_engine_op_end
 * at its top gets them. An operator takes time by the bytes of its tensors. Each look at
 * the clock moves it by a tick, so that whatever waits for a moment comes to it.
 */
#ifndef SWN_TESTS_UNIT_SUPPORT_PLAN_CLOCK_H
#define SWN_TESTS_UNIT_SUPPORT_PLAN_CLOCK_H

#include <stdint.h>

/* What a plan reckons with. */
extern double plan_clock_bytes_per_ns;

void plan_clock_advance(uint64_t ns);

#endif
