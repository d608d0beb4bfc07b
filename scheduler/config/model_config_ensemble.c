/* scheduler/config/model_config_ensemble.c - ensemble_scheduling of config.pbtxt: Triton's steps, and conditions on
 * them. */
#include <errno.h>
#include <string.h>

#include "scheduler/config/ensemble.h"
#include "scheduler/config/model_config_fields.h"

static const struct swn_config_field map_fields[] = {
    {.name = "key", .kind = SWN_FIELD_TEXT, SWN_FIELD_AT(swn_ensemble_map, key), .room = SWN_WIRE_TENSOR_NAME},
    {.name = "value", .kind = SWN_FIELD_TEXT, SWN_FIELD_AT(swn_ensemble_map, value), .room = SWN_WIRE_TENSOR_NAME},
    {0},
};

static void *begin_input_map(void *to)
{
    struct swn_ensemble_step *s = to;

    return swn_config_grow(&s->inputs, &s->input_count, SWN_ENSEMBLE_MAPS, sizeof *s->inputs);
}

static void *begin_output_map(void *to)
{
    struct swn_ensemble_step *s = to;

    return swn_config_grow(&s->outputs, &s->output_count, SWN_ENSEMBLE_MAPS, sizeof *s->outputs);
}

/* -1 is Triton's word for the newest. */
static int read_version(struct swn_pbtxt *p, void *to)
{
    struct swn_ensemble_step *s = to;
    int rc = swn_pbtxt_signed(p, &s->version);

    if (rc < 0)
        return rc;
    if (s->version != -1 && s->version < 1)
        return swn_pbtxt_fail(p, "a version must be at least 1, or -1 for the newest");
    s->version = s->version < 0 ? 0 : s->version;
    return 0;
}

/* ---- conditions: one kind each ---- */

static int choose(struct swn_pbtxt *p, struct swn_ensemble_condition *c, enum swn_condition_kind kind)
{
    if (c->kind != SWN_CONDITION_NONE && c->kind != kind)
        return swn_pbtxt_fail(p, "a condition is one of argmax, max_above and count_above");
    c->kind = kind;
    return 0;
}

static int read_label(struct swn_pbtxt *p, void *to)
{
    struct swn_ensemble_condition *c = to;

    if (choose(p, c, SWN_CONDITION_ARGMAX))
        return -EINVAL;
    if (c->label_count == SWN_ENSEMBLE_LABELS)
        return swn_pbtxt_fail(p, "there are more than %d labels", SWN_ENSEMBLE_LABELS);
    return swn_pbtxt_unsigned(p, INT64_MAX, &c->labels[c->label_count++]);
}

static int read_max_above(struct swn_pbtxt *p, void *to)
{
    struct swn_ensemble_condition *c = to;

    return choose(p, c, SWN_CONDITION_MAX_ABOVE) ? -EINVAL : swn_pbtxt_real(p, &c->threshold);
}

static int read_threshold(struct swn_pbtxt *p, void *to)
{
    struct swn_ensemble_condition *c = to;

    return swn_pbtxt_real(p, &c->threshold);
}

static int read_count(struct swn_pbtxt *p, void *to)
{
    struct swn_ensemble_condition *c = to;

    return swn_pbtxt_unsigned(p, INT64_MAX, &c->count);
}

static const struct swn_config_field count_fields[] = {
    {.name = "threshold", .kind = SWN_FIELD_VALUE, .read = read_threshold},
    {.name = "count", .kind = SWN_FIELD_VALUE, .read = read_count},
    {0},
};

static void *begin_count(void *to)
{
    struct swn_ensemble_condition *c = to;

    if (c->kind != SWN_CONDITION_NONE)
        return NULL;
    c->kind = SWN_CONDITION_COUNT_ABOVE;
    c->count = 1;
    return c;
}

static const struct swn_config_field condition_fields[] = {
    {.name = "tensor",
     .kind = SWN_FIELD_TEXT,
     SWN_FIELD_AT(swn_ensemble_condition, name),
     .room = SWN_WIRE_TENSOR_NAME},
    {.name = "argmax", .kind = SWN_FIELD_VALUE, .is_repeated = 1, .read = read_label},
    {.name = "max_above", .kind = SWN_FIELD_VALUE, .read = read_max_above},
    {.name = "count_above", .kind = SWN_FIELD_MESSAGE, .fields = count_fields, .begin = begin_count},
    {0},
};

static void *begin_condition(void *to)
{
    struct swn_ensemble_step *s = to;

    return &s->condition;
}

static const struct swn_config_field step_fields[] = {
    {.name = "model_name", .kind = SWN_FIELD_TEXT, SWN_FIELD_AT(swn_ensemble_step, model), .room = SWN_ENSEMBLE_MODEL},
    {.name = "model_version", .kind = SWN_FIELD_VALUE, .read = read_version},
    {.name = "input_map", .kind = SWN_FIELD_MESSAGE, .is_repeated = 1, .fields = map_fields, .begin = begin_input_map},
    {.name = "output_map",
     .kind = SWN_FIELD_MESSAGE,
     .is_repeated = 1,
     .fields = map_fields,
     .begin = begin_output_map},
    {.name = "condition", .kind = SWN_FIELD_MESSAGE, .fields = condition_fields, .begin = begin_condition},
    {0},
};

static void *begin_step(void *to)
{
    struct swn_ensemble *e = to;

    return swn_config_grow(&e->steps, &e->step_count, SWN_ENSEMBLE_STEPS, sizeof *e->steps);
}

const struct swn_config_field swn_ensemble_fields[] = {
    {.name = "step", .kind = SWN_FIELD_MESSAGE, .is_repeated = 1, .fields = step_fields, .begin = begin_step},
    {0},
};
