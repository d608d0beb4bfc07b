/* skeleton/core/reclaim.c - see reclaim.h. */
#include "skeleton/core/reclaim.h"

#include "skeleton/core/subsystem.h"

size_t swn_reclaim_bytes(void)
{
    size_t bytes = 0;
    SWN_EACH_SUBSYSTEM (s, memory)
        bytes += s->memory->bytes ? s->memory->bytes() : 0;
    return bytes;
}

size_t swn_reclaim_trim(struct swn_engine *e)
{
    size_t bytes = 0;
    SWN_EACH_SUBSYSTEM (s, memory)
        bytes += s->memory->trim ? s->memory->trim(e) : 0;
    return bytes;
}

int swn_reclaim_ask(struct swn_engine *e, size_t bytes)
{
    int some = 0;
    SWN_EACH_SUBSYSTEM (s, memory)
        some |= s->memory->ask && s->memory->ask(e, bytes);
    return some;
}

void swn_reclaim_make_way(struct swn_engine *e, size_t bytes)
{
    SWN_EACH_SUBSYSTEM (s, memory)
        if (s->memory->make_way)
            s->memory->make_way(e, bytes);
}
