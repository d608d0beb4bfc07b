/* skeleton/tiling/part_waits.h - how the threads of a math library wait for each other while an operator takes a weight
 * in parts.
 *
 * OpenBLAS's threads wait by calling sched_yield over and over. Where other programs use the processors, each call
 * gives one away for milliseconds, although the awaited thread mostly needs microseconds. A product of 25088 terms
 * waits some hundred times; in 50 slices it waits 50 times as often, so VGG-19's linear layers took ten times as
 * long as without slices beside a build. So while parts are computed sched_yield looks whether it gave the processor
 * away. For a while after that it keeps it for a moment instead, and then sleeps for the shortest time: the kernel lets
 * a thread that wakes up go first, and a thread that has yielded last.
 */
#ifndef SWN_SKELETON_TILING_PART_WAITS_H
#define SWN_SKELETON_TILING_PART_WAITS_H

/* From any thread: an operator computes parts with up to `threads` threads from now on, until swn_parts_end with what
 * this returns. Waits stay as they are where these threads share a processor: there the awaited one needs it. */
int swn_parts_begin(unsigned threads);
void swn_parts_end(int begun);
/* Called in place of sched_yield, also in a signal handler: 1: a moment of the wait has passed; 0: no parts are
 * computed. */
int swn_part_wait(void);
void swn_parts_fork_child(void);

#endif
