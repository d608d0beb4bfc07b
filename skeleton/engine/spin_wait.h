/* skeleton/engine/spin_wait.h - waiting for a read without giving the processor away.
 *
 * A layer's bytes often arrive within a fraction of a millisecond. A thread that sleeps meanwhile loses its processor:
 * OpenMP's threads use theirs as long as they wait for this thread, and OpenBLAS's threads compete for one for a tenth
 * of a second after each product. ResNet-101 at a quarter of its weights sleeps 50 times in a pass, and on 4 processors
 * lost 8 ms of 70 without a processor although its bytes had arrived. So a thread spins through a short wait, as in
 * adaptive mutexes. It sleeps where recent waits were longer, and on a single processor, which the reading thread
 * needs.
 */
#ifndef SWN_SKELETON_ENGINE_SPIN_WAIT_H
#define SWN_SKELETON_ENGINE_SPIN_WAIT_H

#include <stdatomic.h>
#include <stdint.h>

/* A thread sleeps through longer waits. */
#define SWN_AWAKE_NS ((uint64_t)1000000)

/* Zeroed: nothing is known yet. */
struct swn_spin_wait {
    _Atomic unsigned told;
    double mean_ns; /* mean of waits, weighted towards the newest; guarded by the caller's lock */
};

/* Tells waiting threads that a frame came. From any thread. */
void swn_spin_wait_tell(struct swn_spin_wait *a);
/* The number of such calls; a waiting thread reads it before it checks its condition. */
unsigned swn_spin_wait_told(const struct swn_spin_wait *a);
/* Whether a wait that began at begin_ns (of CLOCK_MONOTONIC) should continue without sleep. */
int swn_spin_wait_worth(const struct swn_spin_wait *a, uint64_t begin_ns);
/* Spins until the number of calls exceeds `seen`, or the wait has become too long to spin. No lock held. */
void swn_spin_wait_wait(const struct swn_spin_wait *a, unsigned seen, uint64_t begin_ns);
/* A moment for the other hardware thread of this core, if there is one. */
void swn_spin_wait_relax(void);
/* A wait is over, and took `ns`. */
void swn_spin_wait_learn(struct swn_spin_wait *a, uint64_t ns);

#endif
