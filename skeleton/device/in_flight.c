/* skeleton/device/in_flight.c - blocks in flight to a device. A thread waits for the end of a copy only where it must:
 * operators are launched behind the copy, and the next block is prepared meanwhile. */
#define _GNU_SOURCE
#include "skeleton/device/swapper_internal.h"
#include "skeleton/engine/section.h"

int swn_devflight_land(struct swn_devswap *s, uint64_t flight)
{
    if (flight <= s->landed)
        return 0;
    swn_unlock(&s->lock);
    int err = swn_devpool_arrived(&s->pool, flight);
    swn_lock(&s->lock);
    s->landed = flight; /* even after an error: the device is gone then, and nothing arrives any more */
    pthread_cond_broadcast(&s->changed);
    return err;
}

int swn_devflight_begin(struct swn_devswap *s)
{
    uint64_t next = s->departed + 1;
    return next > SWN_DEVPOOL_FLIGHTS ? swn_devflight_land(s, next - SWN_DEVPOOL_FLIGHTS) : 0;
}

int swn_devflight_end(struct swn_devswap *s, struct swap_group *b)
{
    int err = swn_devpool_depart(&s->pool, s->departed + 1);
    if (!err)
        b->flight = ++s->departed;
    return err;
}

int swn_devflight_follow(struct swn_devswap *s, const struct swap_group *b, void *stream)
{
    return b->flight > s->landed ? swn_devpool_follow(&s->pool, b->flight, stream) : 0;
}
