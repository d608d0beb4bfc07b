/* skeleton/engine/spin_wait.h - waiting for a read without giving the processor away.
 *
 * A layer's bytes are often there in a fraction of a millisecond. A thread that sleeps for that finds its processor
 * taken: OpenMP's threads use theirs for as long as they wait for this one, and OpenBLAS's ask for one for a tenth of a
 * second after each product. ResNet-101 at a quarter of its weights sleeps 50 times in a pass, and on 4 processors was
 * then 8 ms of 70 without one though its bytes were there. So a thread spins through a short wait, as in adaptive
 * mutexes. It sleeps where recent waits were longer, and on a single processor, which the thread that reads needs.
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
    double mean_ns; /* of waits, the last ones counting most; guarded by the caller's lock */
};

/* Tells waiting threads that something came. From any thread. */
void swn_spin_wait_tell(struct swn_spin_wait *a);
/* The number of such calls; the waiting thread reads it before it looks for what it waits for. */
unsigned swn_spin_wait_told(const struct swn_spin_wait *a);
/* Whether a wait that has begun at begin_ns (of CLOCK_MONOTONIC) is to go on without sleep. */
int swn_spin_wait_worth(const struct swn_spin_wait *a, uint64_t begin_ns);
/* Spins until more has been told than `seen`, or the wait has become too long to spin. No lock held. */
void swn_spin_wait_wait(const struct swn_spin_wait *a, unsigned seen, uint64_t begin_ns);
/* A wait is over, and took `ns`. */
void swn_spin_wait_learn(struct swn_spin_wait *a, uint64_t ns);

#endif
