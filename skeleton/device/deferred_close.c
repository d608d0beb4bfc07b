/* skeleton/device/deferred_close.c - see deferred_close.h. */
#define _GNU_SOURCE
#include "skeleton/device/deferred_close.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>

#include "skeleton/engine/engine_internal.h"
#include "base/thread.h"
#include "skeleton/engine/section.h"

/* Devices are seldom busy for longer; a thread that drops many weights of a busy device waits once. */
#define WAIT_NS 100000000u
/* The end of a capture is not signalled. */
#define RETRY_NS 20000000u

enum waiter_state { WAITS, CLOSED, NOT_YET };

struct swn_devwaiter {
    enum waiter_state state;
    int err;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* innermost lock */
static pthread_cond_t changed;
static struct swn_devclosing *queue, **end = &queue;
static struct swn_devclosing *held_up; /* entries that a capture holds up */
static int runs, behind; /* behind: a thread has waited in vain, and the queue has not been emptied since */

static void append(struct swn_devclosing *c)
{
    c->next = NULL;
    *end = c;
    end = &c->next;
    pthread_cond_broadcast(&changed);
}

static void try_again(void)
{
    struct swn_devclosing *c = held_up, *next;
    held_up = NULL;
    for (; c; c = next) {
        next = c->next;
        append(c);
    }
}

static struct swn_devclosing *next_one(void)
{
    while (!queue) {
        behind = 0;
        if (!held_up)
            pthread_cond_wait(&changed, &lock);
        else if (swn_cond_wait_until(&changed, &lock, swn_now_ns() + RETRY_NS))
            try_again();
    }
    struct swn_devclosing *c = queue;
    queue = c->next;
    if (!queue)
        end = &queue;
    return c;
}

static void answer(struct swn_devclosing *c, enum waiter_state state, int err)
{
    c->waiter->state = state;
    c->waiter->err = err;
    c->waiter = NULL;
    pthread_cond_broadcast(&changed);
}

static void *work(void *none)
{
    swn_lock(&lock);
    for (;;) {
        struct swn_devclosing *c = next_one();
        swn_unlock(&lock);
        int err = c->close(c, 0);
        swn_lock(&lock);
        if (err == -EAGAIN) {
            if (c->waiter)
                answer(c, NOT_YET, 0);
            c->next = held_up;
            held_up = c;
        } else if (c->waiter) {
            answer(c, CLOSED, err); /* c belongs to the waiting thread now */
        } else {
            swn_unlock(&lock);
            c->later(c, err);
            swn_lock(&lock);
        }
    }
    return none;
}

/* 0 or -errno. */
static int start(void)
{
    pthread_t thread;
    if (runs)
        return 0;
    swn_cond_init(&changed);
    int err = swn_thread_start(&thread, work, NULL);
    if (!err)
        pthread_detach(thread);
    runs = !err;
    return err;
}

int swn_devclose(struct swn_devclosing *c, int *err)
{
    struct swn_devwaiter waiter = {.state = WAITS};
    swn_lock(&lock);
    if (start()) { /* waiting without a limit is better than a write to memory that the device may still read */
        swn_unlock(&lock);
        *err = c->close(c, 1);
        if (*err != -EAGAIN)
            return 0;
        swn_lock(&lock);
        c->waiter = NULL;
        append(c);
        swn_unlock(&lock);
        return 1;
    }
    int waits = !behind, late = 0;
    c->waiter = waits ? &waiter : NULL;
    append(c);
    uint64_t until = swn_now_ns() + WAIT_NS;
    while (waits && waiter.state == WAITS && !late)
        late = swn_cond_wait_until(&changed, &lock, until);
    if (waits && waiter.state == WAITS) {
        c->waiter = NULL;
        behind = 1;
    }
    swn_unlock(&lock);
    *err = waiter.err;
    return waiter.state != CLOSED;
}

void swn_devclose_fork_child(void)
{
    pthread_mutex_init(&lock, NULL);
    queue = held_up = NULL; /* the parent's */
    end = &queue;
    runs = behind = 0;
}
