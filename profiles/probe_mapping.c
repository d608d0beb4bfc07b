/* profiles/probe_mapping.c - see probe_mapping.h. */
#define _GNU_SOURCE
#include "profiles/probe_mapping.h"

#include <errno.h>
#include <string.h>

#include "blocks/memory/publish.h"
#include "base/clock.h"

static int make_tensor(struct swn_probe_refs *p, size_t i)
{
    size_t fresh;
    struct swn_range *r = p->range[i] = swn_arena_alloc(p->arena, SWN_PAGE, SWN_LONG_TERM, &fresh);
    if (!r)
        return -ENOMEM;
    memset((void *)r->addr, (int)i + 1, SWN_PAGE);
    int rc = swn_residency_spill(&p->res, r);
    struct swn_frame *f = rc ? NULL : swn_pool_take(p->pool, r->place / SWN_GRANULE, r->addr);
    struct swn_part *part = f ? swn_pool_part(f) : NULL;
    p->frame[i] = f;
    if (!part)
        return rc ? rc : -ENOMEM;
    part->range = r;
    part->range_id = r->id;
    part->bytes = part->fill = SWN_PAGE;
    part->file = r->file;
    part->off = r->extent;
    part->there = 1;
    memset(swn_pool_at(p->pool, f), (int)i + 1, SWN_PAGE);
    return 0;
}

int swn_probe_refs_open(struct swn_probe_refs *p, const struct swn_io *io, struct swn_extent_file *file)
{
    *p = (struct swn_probe_refs){.file = file, .res = {.pagemap_fd = -1}};
    int rc = swn_arena_create(&p->arena, SWN_PROBE_REFS * SWN_GRANULE, 0);
    if (!rc)
        rc = swn_pool_create(&p->pool, SWN_GRANULE, SWN_PROBE_REFS, 0);
    if (!rc)
        rc = swn_residency_init(&p->res, io, p->arena);
    p->res.pool = p->pool;
    p->res.spill = file;
    for (size_t i = 0; !rc && i < SWN_PROBE_REFS; i++)
        rc = make_tensor(p, i);
    return rc;
}

void swn_probe_refs_close(struct swn_probe_refs *p)
{
    for (size_t i = 0; i < SWN_PROBE_REFS; i++) {
        if (p->range[i])
            swn_residency_free(&p->res, p->range[i], 0);
    }
    swn_residency_fini(&p->res);
    if (p->pool)
        swn_pool_destroy(p->pool);
    if (p->arena)
        swn_arena_destroy(p->arena);
}

int swn_probe_refs_time(struct swn_probe_refs *p, size_t n, double *in_s, double *out_s)
{
    int rc = 0;
    double begin = swn_seconds();
    for (size_t i = 0; !rc && i < n; i++) {
        struct swn_range *written;
        swn_residency_publish(&p->res, &p->frame[i], 1, &written);
        rc = written ? -EBUSY : 0;
    }
    double there = swn_seconds();
    for (size_t i = 0; !rc && i < n; i++)
        rc = swn_residency_unpublish(&p->res, &p->frame[i], 1) ? -EBUSY : 0;
    *in_s = there - begin;
    *out_s = swn_seconds() - there;
    return rc;
}
