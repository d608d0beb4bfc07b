/* skeleton/load/untracked.c - see untracked.h. */
#define _GNU_SOURCE
#include "skeleton/load/untracked.h"

#include <stdatomic.h>
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
    size_t bytes; /* 0: nobody's */
    int reads;    /* up to 2: what is read once may be an input */
};

static struct place places[PLACES]; /* by a hash of the address; guarded by the engine's lock */
static size_t taken;
static int said;

static struct place *place_of(uintptr_t data)
{
    size_t i = (size_t)(((uint64_t)data >> 6) * 0x9e3779b97f4a7c15u >> 52) % PLACES;
    while (places[i].bytes && places[i].data != data)
        i = (i + 1) % PLACES;
    return &places[i];
}

static void say(const struct swn_engine *e)
{
    char a[32];
    if (said || e->counters.untracked < (e->config.verbose ? 1 : e->budget.limit / SAID_PART))
        return;
    said = 1;
    swn_say(
        "at least %s of weights lie in memory that PyTorch did not allocate (arrays of numpy's, files mapped shared or "
        "for reading "
        "only, shared memory); the budget does not cover them. torch.tensor(array), or mmap_mode=\"c\", brings them in",
        swn_format_mib(a, e->counters.untracked));
}

void swn_untracked_read(struct swn_engine *e, uintptr_t data, size_t bytes)
{
    struct place *p = place_of(data);
    if (!p->bytes && taken == PLACES / 4 * 3)
        return;
    taken += !p->bytes;
    if (p->bytes != bytes) { /* other memory is there by now */
        if (p->reads == 2)
            e->counters.untracked -= p->bytes;
        *p = (struct place){.data = data, .bytes = bytes};
    }
    if (p->reads == 2 || ++p->reads < 2)
        return;
    e->counters.untracked += bytes;
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
