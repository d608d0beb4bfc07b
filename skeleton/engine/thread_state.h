/* skeleton/engine/thread_state.h - the engine's state of each thread that runs operators. */
#ifndef SWN_SKELETON_ENGINE_THREAD_STATE_H
#define SWN_SKELETON_ENGINE_THREAD_STATE_H

#include "skeleton/engine/engine_internal.h"

void swn_window_thread_exit(void);
/* The calling thread's state, or NULL: it has run no operator yet. */
struct swn_thread_state *swn_window_self(void);
/* The next weight that the thread reads does not follow the last one that it was seen reading. */
void swn_window_lost(struct swn_thread_state *t);
/* The calling thread's state, made if need be; NULL: no memory. */
struct swn_thread_state *swn_window_thread(struct swn_engine *e);

#endif
