/* skeleton/engine/section.c - see skeleton/engine/section.h. */
#include "skeleton/engine/section.h"

static __thread int depth, cancel_before;

void swn_section_enter(void)
{
    /* Counted first: a handler that runs in between does not wait for anybody. */
    if (!depth++)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_before);
}

void swn_section_leave(void)
{
    int before = cancel_before;
    if (!depth) /* what was locked before a fork is unlocked in the child */
        return;
    /* The handler of a signal that comes after this line may enter a section, too. */
    if (!--depth)
        pthread_setcancelstate(before, NULL);
}

int swn_section_interrupted(void)
{
    return depth != 0;
}

void swn_section_fork_child(void)
{
    if (depth)
        pthread_setcancelstate(cancel_before, NULL);
    depth = 0;
}
