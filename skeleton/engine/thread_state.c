/* skeleton/engine/thread_state.c - the engine's state of each thread that runs operators. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>

#include "skeleton/engine/engine_internal.h"
#include "skeleton/engine/subsystem.h"
#include "skeleton/engine/thread_state.h"
#include "skeleton/engine/section.h"

static __thread struct swn_thread_state *self_state;

struct swn_thread_state *swn_window_self(void)
{
    return self_state;
}

struct swn_thread_state *swn_window_thread(struct swn_engine *e)
{
    struct swn_thread_state *t = self_state;
    if (t)
        return t;
    /* States of ended threads are reused: a program that starts a thread per inference needs no more states than
     * threads at once. The cursor stays in place: the step from the last weight of one inference to the first of the
     * next closes the cycle, without which there is no plan. A wrong successor costs one wrong guess. */
    for (t = e->ops.threads; t; t = t->next)
        if (!t->listed)
            break;
    if (!t) {
        if (!(t = calloc(1, sizeof *t)))
            return NULL;
        t->index = e->ops.thread_count++;
        t->next = e->ops.threads;
        e->ops.threads = t;
    }
    t->listed = 1;
    t->last_weight = 0;
    t->next_plan_try = 0;
    self_state = t;
    return t;
}

void swn_window_lost(struct swn_thread_state *t)
{
    t->last_weight = 0;
    t->cursor.before = t->cursor.at = 0;
    t->walks.settled = 0;
    t->left_ns = 0;
}

void swn_window_thread_exit(void)
{
    struct swn_engine *e = &swn_engine_one;
    if (!self_state)
        return;
    swn_lock(&e->lock);
    self_state->listed = 0;
    self_state->last_access = 0;
    e->features.tiling->rows_forget(self_state);
    for (struct swn_frame *f = e->pool ? swn_pool_first(e->pool) : NULL; f; f = f->next)
        if (swn_frame_use(f)->cursor == &self_state->walks)
            swn_frame_use(f)->wanted = 0;
    swn_unlock(&e->lock);
    self_state = NULL;
}
