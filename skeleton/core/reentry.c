/* skeleton/core/reentry.c - see reentry.h. */
#include "skeleton/engine/engine.h"
#include "skeleton/core/reentry.h"
#include "skeleton/engine/section.h"

__thread int swn_reentry_depth;

void swn_reentry_guard(void (*what)(void))
{
    if (swn_reentry_depth)
        return;
    SWN_SECTION();
    swn_reentry_depth++;
    what();
    swn_reentry_depth--;
}

void swn_engine_settle(void)
{
    swn_reentry_guard(swn_engine_after_alloc);
}
