/* skeleton/load/untracked.c - see untracked.h. */
#define _GNU_SOURCE
#include "skeleton/load/untracked.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/process.h"
#include "base/size.h"
#include "skeleton/engine/accounting.h"
#include "skeleton/engine/engine_internal.h"
#include "skeleton/engine/section.h"

#define PLACES 4096
#define LOOK_EACH 256 /* allocations */
/* Memory that the interpreter and its libraries may take. */
#define OTHERS_MOST ((uint64_t)256 << 20)
#define SAID_PART 8 /* of the budget */

struct place {
    uintptr_t data;
    size_t bytes;
    int reads; /* up to 2: what is read once may be an input */
};

/* By address; no two have a byte in common. Guarded by the engine's lock. */
static struct place places[PLACES];
static size_t taken;
static int said;

/* The first one that ends behind `at`. */
static size_t place_behind(uintptr_t at)
{
    size_t low = 0, high = taken;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (places[middle].data + places[middle].bytes > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void take_out(struct swn_engine *e, size_t from, size_t end)
{
    for (size_t i = from; i < end; i++)
        e->counters.untracked_weights -= places[i].reads == 2 ? places[i].bytes : 0;
    memmove(places + from, places + end, (taken - end) * sizeof *places);
    taken -= end - from;
}

/* Large arrays are mappings of their own, which end with them; MS_ASYNC does nothing but look. */
static int is_gone(const struct place *p)
{
    uintptr_t from = p->data / SWN_PAGE * SWN_PAGE;
    return msync((void *)from, p->data + p->bytes - from, MS_ASYNC) != 0;
}

static void forget_what_is_gone(struct swn_engine *e)
{
    for (size_t i = taken; i-- > 0;)
        if (is_gone(&places[i]))
            take_out(e, i, i + 1);
}

/* If all places are taken, looking for weights that are gone is a system call for each: not at every read. */
static int has_place(struct swn_engine *e)
{
    static unsigned left; /* reads until it is worth another look */
    if (taken < PLACES)
        return 1;
    if (left > 0) {
        left--;
        return 0;
    }
    forget_what_is_gone(e);
    left = taken == PLACES ? PLACES : 0;
    return taken < PLACES;
}

uint64_t swn_untracked_bytes(struct swn_engine *e)
{
    forget_what_is_gone(e);
    return e->counters.untracked_weights;
}

static uint64_t much(const struct swn_engine *e)
{
    return e->config.verbose ? 1 : e->budget.limit / SAID_PART;
}

static void say(struct swn_engine *e)
{
    char a[32];
    if (said || e->counters.untracked_weights < much(e) || swn_untracked_bytes(e) < much(e))
        return;
    said = 1;
    swn_say(
        "at least %s of weights lie in memory that PyTorch did not allocate (arrays of numpy's, files mapped shared or "
        "for reading "
        "only, shared memory); the budget does not cover them. torch.tensor(array), or mmap_mode=\"c\", brings them in",
        swn_format_mib(a, e->counters.untracked_weights));
}

void swn_untracked_read(struct swn_engine *e, uintptr_t data, size_t bytes)
{
    if (bytes < SWN_GRANULE || bytes > UINTPTR_MAX - data)
        return;
    size_t i = place_behind(data), end = place_behind(data + bytes);
    end += end < taken && places[end].data < data + bytes;
    if (end != i + 1 || places[i].data != data || places[i].bytes != bytes) { /* other memory is there by now */
        take_out(e, i, end);
        if (!has_place(e))
            return;
        i = place_behind(data);
        memmove(places + i + 1, places + i, (taken++ - i) * sizeof *places);
        places[i] = (struct place){.data = data, .bytes = bytes};
    }
    if (places[i].reads == 2 || ++places[i].reads < 2)
        return;
    e->counters.untracked_weights += bytes;
    say(e);
}

void swn_untracked_look(void)
{
    static _Atomic unsigned allocations;
    struct swn_engine *e = &swn_engine_one;
    uint64_t own;
    if ((atomic_fetch_add(&allocations, 1) + 1) % LOOK_EACH || atomic_load(&e->life.hook_state) ||
        atomic_load(&e->life.retired) || swn_process_own_memory(getpid(), &own))
        return;
    swn_lock(&e->lock);
    uint64_t known = swn_engine_resident(e) + OTHERS_MOST + e->budget.limit / SAID_PART;
    swn_unlock(&e->lock);
    if (own > known)
        atomic_store(&e->life.want_hook, 1);
}
