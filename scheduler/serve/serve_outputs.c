/* scheduler/serve/serve_outputs.c - see serve_outputs.h. */
#include "scheduler/serve/serve_outputs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Larger answers are not worth holding room while the last group computes. */
#define ROOM_MOST (UINT64_C(64) << 10)

/* How many of the largest answers have room beside requests, as far as half of the buffer goes: some wait to be sent,
 * and as JSON one takes several times its bytes. */
#define ANSWERS_KEPT 8

/* What is made early may never be asked for: it lies in the buffer only while half of that stays free, as bodies of
 * requests find their room without asking the serving thread. */
static int has_room_early(struct swn_serving *s, uint64_t bytes)
{
    struct swn_buffer_use use;

    swn_buffer_use(s->buffer, &use);
    return bytes <= use.bytes / 2 && use.used_bytes <= use.bytes / 2 - bytes;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + SWN_SLOT_ALIGN - 1) & ~(SWN_SLOT_ALIGN - 1);
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

void swn_outputs_keep_room(struct swn_serving *s)
{
    uint64_t largest = 0, most = s->options.buffer_bytes / 2;

    for (size_t i = 0; i < s->count; i++)
        if (s->models[i]->state == SWN_MODEL_READY && s->models[i]->answer_bytes > largest)
            largest = s->models[i]->answer_bytes;
    swn_buffer_keep(s->buffer, largest < most / ANSWERS_KEPT ? largest * ANSWERS_KEPT : most);
}

int swn_outputs_find_room(struct swn_serving *s, struct swn_job *job)
{
    struct swn_infer *infer = job->infer;
    uint64_t all = 0;
    int rc;

    if (infer->outputs.span) /* they have it, and the engine has not been told */
        return 0;
    for (unsigned i = 0; i < infer->output_count; i++)
        all += aligned(infer->tensors[i].bytes);
    rc = has_room(s, job, all) ? swn_slot_take(s->buffer, all, &infer->outputs) : -ENOSPC;
    for (unsigned i = 0; i < infer->output_count && rc == 0; i++)
        infer->tensors[i].offset = infer->tensors[i].bytes ? infer->tensors[i].offset + infer->outputs.offset : 0;
    return rc;
}

int swn_outputs_place(struct swn_serving *s, struct swn_job *job, const struct swn_engine_message *m)
{
    struct swn_served *model = s->models[job->item.model];
    struct swn_infer *infer = job->infer;
    uint64_t all = 0, bytes;

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
        if (__builtin_add_overflow(all, aligned(t->bytes), &all))
            return -EFBIG;
    }
    if (model->answer_bytes != all) {
        model->answer_bytes = all;
        swn_outputs_keep_room(s);
    }
    swn_slot_give(s->buffer, &infer->outputs);
    return swn_outputs_find_room(s, job);
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
