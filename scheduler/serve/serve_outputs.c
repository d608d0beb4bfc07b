/* scheduler/serve/serve_outputs.c - see serve_outputs.h. */
#include "scheduler/serve/serve_outputs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Larger answers are not worth holding room while the last group computes. */
#define ROOM_MOST (UINT64_C(64) << 10)

/* What is made early may never be asked for: it lies in the buffer only while half of that stays free, as bodies of
 * requests find their room without asking the serving thread. */
static int has_room_early(struct swn_serving *s, uint64_t bytes)
{
    struct swn_buffer_use use;

    swn_buffer_use(s->buffer, &use);
    return bytes <= use.bytes / 2 && use.used_bytes <= use.bytes / 2 - bytes;
}

int swn_outputs_has_room_early(struct swn_serving *s, const struct swn_served *model)
{
    return has_room_early(s, model->answer_bytes);
}

static int has_room(struct swn_serving *s, const struct swn_job *job, uint64_t bytes)
{
    return !job->item.upstream || has_room_early(s, bytes);
}

unsigned swn_outputs_room(struct swn_serving *s, struct swn_job *job, const struct swn_served *model,
                          struct swn_wire_tensor *room)
{
    uint32_t groups = job->item.groups ? job->item.groups : model->times.count;
    struct swn_slot *slot = &job->infer->outputs;

    if (job->item.group + 1 != groups || !model->answer_bytes || model->answer_bytes > ROOM_MOST)
        return 0;
    if (!slot->bytes && (!has_room(s, job, model->answer_bytes) || swn_slot_take(s->buffer, model->answer_bytes, slot)))
        return 0;
    *room = (struct swn_wire_tensor){.element = SWN_ELEMENT_UINT8,
                                     .rank = 1,
                                     .shape = {(int64_t)slot->bytes},
                                     .offset = slot->offset,
                                     .bytes = slot->bytes};
    return 1;
}

int swn_outputs_place(struct swn_serving *s, struct swn_job *job, const struct swn_engine_message *m)
{
    struct swn_infer *infer = job->infer;
    uint64_t all = 0, bytes;
    int rc;

    free(infer->tensors);
    infer->output_count = m->outputs;
    infer->tensors = calloc((size_t)m->outputs + 1, sizeof *infer->tensors);
    if (!infer->tensors)
        return -ENOMEM;
    for (unsigned i = 0; i < m->outputs; i++) {
        struct swn_wire_tensor *t = &infer->tensors[i];
        *t = m->tensors[m->inputs + i];
        if (swn_wire_tensor_bytes(t, &bytes) < 0)
            return -EPROTO;
        if (t->element != SWN_ELEMENT_BYTES || t->bytes < bytes)
            t->bytes = bytes;
        t->offset = all;
        if (__builtin_add_overflow(all, (t->bytes + SWN_SLOT_ALIGN - 1) & ~(SWN_SLOT_ALIGN - 1), &all))
            return -EFBIG;
    }
    s->models[job->item.model]->answer_bytes = all;
    swn_slot_give(s->buffer, &infer->outputs);
    rc = has_room(s, job, all) ? swn_slot_take(s->buffer, all, &infer->outputs) : -ENOSPC;
    for (unsigned i = 0; i < m->outputs && rc == 0; i++)
        infer->tensors[i].offset = infer->tensors[i].bytes ? infer->tensors[i].offset + infer->outputs.offset : 0;
    return rc;
}

int swn_outputs_take(struct swn_job *job, const struct swn_engine_message *m)
{
    const struct swn_slot *slot = &job->infer->outputs;

    for (unsigned i = 0; i < m->outputs; i++) {
        const struct swn_wire_tensor *t = &m->tensors[m->inputs + i];
        if (t->bytes &&
            (t->offset < slot->offset || t->bytes > slot->bytes || t->offset - slot->offset > slot->bytes - t->bytes))
            return -EPROTO;
    }
    free(job->infer->tensors);
    job->infer->output_count = m->outputs;
    job->infer->tensors = calloc((size_t)m->outputs + 1, sizeof *job->infer->tensors);
    if (!job->infer->tensors)
        return -ENOMEM;
    memcpy(job->infer->tensors, m->tensors + m->inputs, m->outputs * sizeof *job->infer->tensors);
    return 0;
}
