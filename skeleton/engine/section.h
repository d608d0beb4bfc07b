/* skeleton/engine/section.h - sections: what a thread of the program is in the middle of while it is in our code.
 *
 * Two things may happen to a thread at any instruction, and neither may leave a lock taken or a range half mapped. It
 * may be cancelled (pthread_cancel): our calls would be cancellation points where the program has none, so within a
 * section cancellation waits. And a signal handler of the program may run on it, and call exit or fork: whoever would
 * then wait for a lock of ours asks first whether the handler has interrupted a section, which cannot go on.
 *
 * A lock of the engine or of a feature is a section. So is an entry function that makes system calls without one. Locks
 * below (of the fetch queue, the spill file, the trace) are taken within sections, and by threads of ours.
 */
#ifndef SWN_SKELETON_ENGINE_SECTION_H
#define SWN_SKELETON_ENGINE_SECTION_H

#include <pthread.h>

/* Sections may lie in one another. */
void swn_section_enter(void);
void swn_section_leave(void);
/* Whether the calling thread is in a section: for a function that no section calls, the calling thread is in a signal
 * handler that has interrupted one. */
int swn_section_interrupted(void);
/* In a forked child, whose locks are new ones: the calling thread is in no section. */
void swn_section_fork_child(void);

static inline void swn_section_left(int *unused)
{
    (void)unused;
    swn_section_leave();
}

/* From here to the end of the block, also where an exception passes. */
#define SWN_SECTION()                                                                                                  \
    __attribute__((cleanup(swn_section_left))) int section_ = 0;                                                       \
    (void)section_;                                                                                                    \
    swn_section_enter()

static inline void swn_lock(pthread_mutex_t *m)
{
    swn_section_enter();
    pthread_mutex_lock(m);
}

/* 0, or an errno: it is not taken. */
static inline int swn_trylock(pthread_mutex_t *m)
{
    swn_section_enter();
    int err = pthread_mutex_trylock(m);
    if (err)
        swn_section_leave();
    return err;
}

static inline void swn_unlock(pthread_mutex_t *m)
{
    pthread_mutex_unlock(m);
    swn_section_leave();
}

#endif
