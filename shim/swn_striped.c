/* Convolutions that compute their result in stripes: what room for them costs, and what came of it. The kernel is in
 * aten_stripes.cpp, the geometry in swn_stripe.c. */
#define _GNU_SOURCE
#include "swn_engine_priv.h"

uint64_t swn_stripes_room(size_t bytes)
{
    struct swn_engine *e = &swn_engine_one;
    if (e->config.without & SWN_WITHOUT_STRIPES)
        return 0;
    pthread_mutex_lock(&e->lock);
    uint64_t ns = swn_policy_room_ns(e, bytes);
    pthread_mutex_unlock(&e->lock);
    return ns;
}

void swn_stripes_count(size_t stripes, int refused)
{
    struct swn_engine *e = &swn_engine_one;
    pthread_mutex_lock(&e->lock);
    e->stripes += stripes;
    e->stripes_refused += refused != 0;
    pthread_mutex_unlock(&e->lock);
}
