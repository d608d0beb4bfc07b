/* blocks/memory/held_signals.h - moments that no signal handler of the program may interrupt, since a handler could
 * wait for what ends with them. Faults still get through. Short: they cost two system calls each.
 */
#ifndef SWN_BLOCKS_MEMORY_HELD_SIGNALS_H
#define SWN_BLOCKS_MEMORY_HELD_SIGNALS_H

#include <signal.h>

void swn_signals_hold(sigset_t *before);
void swn_signals_let(const sigset_t *before);
/* Those that are held. */
void swn_signals_held(sigset_t *out);

/* From here to the end of the block. */
#define SWN_HOLD_SIGNALS()                                                                                             \
    __attribute__((cleanup(swn_signals_let))) sigset_t signals_before;                                                 \
    swn_signals_hold(&signals_before)

#endif
