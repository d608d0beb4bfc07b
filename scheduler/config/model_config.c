/* scheduler/config/model_config.c - config.pbtxt, protobuf's text form: see model_config.h.
 *
 * Tables say which fields a message has and where their values go; one function walks a message by its table. It calls
 * itself for a message in a message, at most DEPTH deep, and what is left aside is skipped without any recursion.
 */
#include "scheduler/config/model_config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/config/model_config_fields.h"

/* The field's value, by its kind. The next token is the value. */
static int read_value(struct swn_pbtxt *p, const struct swn_config_field *f, void *to)
{
    void *at = (char *)to + f->offset;
    uint64_t number;
    int rc;

    switch (f->kind) {
    case SWN_FIELD_TEXT:
        return swn_pbtxt_text(p, at, f->room);
    case SWN_FIELD_FLAG:
        return swn_pbtxt_flag(p, at);
    case SWN_FIELD_COUNT:
        rc = swn_pbtxt_unsigned(p, SWN_FIELD_COUNT_MOST, &number);
        if (rc == 0)
            *(uint32_t *)at = (uint32_t)number;
        return rc;
    case SWN_FIELD_NUMBER:
        return swn_pbtxt_unsigned(p, UINT64_MAX, at);
    default:
        return f->read(p, to);
    }
}

static int read_message(struct swn_pbtxt *p, const struct swn_config_field *fields, void *to, char close);

/* One value or message of the field; the token that begins it is next. */
static int read_one(struct swn_pbtxt *p, const struct swn_config_field *f, void *to)
{
    char close;
    int rc;

    if (f->kind != SWN_FIELD_MESSAGE)
        return read_value(p, f, to);
    rc = swn_pbtxt_open(p, &close);
    if (rc < 0)
        return rc;
    if (f->begin) {
        to = f->begin(to);
        if (!to)
            return swn_pbtxt_fail(p, "'%s' is one too many", f->name);
    }
    rc = read_message(p, f->fields, to, close);
    if (rc == 0)
        swn_pbtxt_close(p);
    return rc;
}

/* What follows the field's name. */
static int read_field(struct swn_pbtxt *p, const struct swn_config_field *f, void *to)
{
    int has_colon, rc;

    if (f->kind == SWN_FIELD_REFUSED)
        return swn_pbtxt_fail(p, "'%s' is not supported", f->name);
    has_colon = swn_pbtxt_take(p, ':');
    if (f->kind == SWN_FIELD_IGNORED)
        return swn_pbtxt_skip(p, has_colon);
    if (f->kind != SWN_FIELD_MESSAGE && !has_colon)
        return swn_pbtxt_fail(p, "'%s' must be followed by ':'", f->name);
    if (!f->is_repeated || !swn_pbtxt_take(p, '['))
        return read_one(p, f, to);
    if (swn_pbtxt_take(p, ']'))
        return 0;
    do {
        rc = read_one(p, f, to);
        if (rc < 0)
            return rc;
    } while (swn_pbtxt_take(p, ','));
    return swn_pbtxt_take(p, ']') ? 0 : swn_pbtxt_fail(p, "',' or ']' is missing in '%s'", f->name);
}

static void note_ignored(struct swn_pbtxt *p, const char *name)
{
    char *ignored = p->ignored;
    size_t used = strlen(ignored), length = strlen(name);

    if (used + length + 3 > SWN_ERRMSG || p->depth)
        return;
    snprintf(ignored + used, SWN_ERRMSG - used, "%s%s", used ? ", " : "", name);
}

/* Fields up to `close`, which is taken, or to the end of the file where it is 0. */
static int read_message(struct swn_pbtxt *p, const struct swn_config_field *fields, void *to, char close)
{
    uint64_t seen = 0;

    for (;;) {
        char name[64];
        unsigned i = 0;
        int rc;
        if (close ? swn_pbtxt_take(p, close) : swn_pbtxt_is_at_end(p))
            return 0;
        rc = swn_pbtxt_name(p, name, sizeof name);
        if (rc < 0)
            return rc;
        while (fields[i].name && strcmp(fields[i].name, name) != 0)
            i++;
        if (!fields[i].name)
            return swn_pbtxt_fail(p, "there is no field '%s' here", name);
        if (!fields[i].is_repeated && (seen >> i & 1))
            return swn_pbtxt_fail(p, "'%s' is here twice", name);
        if (fields[i].kind == SWN_FIELD_IGNORED && !(seen >> i & 1))
            note_ignored(p, name);
        seen |= UINT64_C(1) << i;
        rc = read_field(p, &fields[i], to);
        if (rc < 0)
            return rc;
        if (!swn_pbtxt_take(p, ','))
            swn_pbtxt_take(p, ';');
    }
}

static int read_data_type(struct swn_pbtxt *p, void *to)
{
    struct swn_config_tensor *t = to;
    char name[64];
    int rc = swn_pbtxt_name(p, name, sizeof name);

    if (rc < 0)
        return rc;
    if (strcmp(name, "TYPE_STRING") == 0)
        t->tensor.element = SWN_ELEMENT_BYTES;
    else if (strncmp(name, "TYPE_", 5) == 0 && strcmp(name, "TYPE_BYTES") != 0)
        t->tensor.element = swn_element_named(name + 5, strlen(name + 5));
    return t->tensor.element ? 0 : swn_pbtxt_fail(p, "'%s' is no data type", name);
}

static int read_dimension(struct swn_pbtxt *p, int64_t *shape, uint32_t *rank)
{
    int64_t value;
    int rc = swn_pbtxt_signed(p, &value);

    if (rc < 0)
        return rc;
    if (value != -1 && value < 1)
        return swn_pbtxt_fail(p, "a dimension must be at least 1, or -1 for any");
    /* One place is the batch's. */
    if (*rank == SWN_WIRE_RANK - 1)
        return swn_pbtxt_fail(p, "there are more than %d dimensions", SWN_WIRE_RANK - 1);
    shape[(*rank)++] = value;
    return 0;
}

static int read_dims(struct swn_pbtxt *p, void *to)
{
    struct swn_config_tensor *t = to;

    return read_dimension(p, t->tensor.shape, &t->tensor.rank);
}

static int read_reshape_shape(struct swn_pbtxt *p, void *to)
{
    struct swn_config_tensor *t = to;

    return read_dimension(p, t->reshape.sizes, &t->reshape.rank);
}

static void *begin_reshape(void *to)
{
    struct swn_config_tensor *t = to;

    t->has_reshape = 1;
    return t;
}

static const struct swn_config_field reshape_fields[] = {
    {.name = "shape", .kind = SWN_FIELD_VALUE, .is_repeated = 1, .read = read_reshape_shape},
    {0},
};

/* A flag that is only accepted when it is false. */
static int read_never(struct swn_pbtxt *p, void *to)
{
    uint8_t flag;
    int rc = swn_pbtxt_flag(p, &flag);

    (void)to;
    return rc < 0 || !flag ? rc : swn_pbtxt_fail(p, "this is not supported");
}

static const struct swn_config_field input_fields[] = {
    {.name = "name",
     .kind = SWN_FIELD_TEXT,
     SWN_FIELD_AT(swn_config_tensor, tensor.name),
     .room = SWN_WIRE_TENSOR_NAME},
    {.name = "data_type", .kind = SWN_FIELD_VALUE, .read = read_data_type},
    {.name = "dims", .kind = SWN_FIELD_VALUE, .is_repeated = 1, .read = read_dims},
    {.name = "reshape", .kind = SWN_FIELD_MESSAGE, .fields = reshape_fields, .begin = begin_reshape},
    {.name = "optional", .kind = SWN_FIELD_FLAG, SWN_FIELD_AT(swn_config_tensor, is_optional)},
    {.name = "format", .kind = SWN_FIELD_IGNORED},
    {.name = "is_shape_tensor", .kind = SWN_FIELD_VALUE, .read = read_never},
    {.name = "allow_ragged_batch", .kind = SWN_FIELD_VALUE, .read = read_never},
    {.name = "is_non_linear_format_io", .kind = SWN_FIELD_VALUE, .read = read_never},
    {0},
};

static const struct swn_config_field output_fields[] = {
    {.name = "name",
     .kind = SWN_FIELD_TEXT,
     SWN_FIELD_AT(swn_config_tensor, tensor.name),
     .room = SWN_WIRE_TENSOR_NAME},
    {.name = "data_type", .kind = SWN_FIELD_VALUE, .read = read_data_type},
    {.name = "dims", .kind = SWN_FIELD_VALUE, .is_repeated = 1, .read = read_dims},
    {.name = "reshape", .kind = SWN_FIELD_MESSAGE, .fields = reshape_fields, .begin = begin_reshape},
    {.name = "label_filename",
     .kind = SWN_FIELD_TEXT,
     SWN_FIELD_AT(swn_config_tensor, labels),
     .room = SWN_CONFIG_NAME},
    {.name = "is_shape_tensor", .kind = SWN_FIELD_VALUE, .read = read_never},
    {.name = "is_non_linear_format_io", .kind = SWN_FIELD_VALUE, .read = read_never},
    {0},
};

void *swn_config_grow(void *list, unsigned *count, unsigned most, size_t size)
{
    char *at;
    void *more;

    memcpy(&at, list, sizeof at);
    more = *count < most ? realloc(at, (*count + 1) * size) : NULL;
    if (!more)
        return NULL;
    memcpy(list, &more, sizeof more);
    at = (char *)more + *count * size;
    memset(at, 0, size);
    ++*count;
    return at;
}

static void *begin_input(void *to)
{
    struct swn_model_config *c = to;

    return swn_config_grow(&c->inputs, &c->input_count, SWN_WIRE_TENSORS - c->output_count, sizeof *c->inputs);
}

static void *begin_output(void *to)
{
    struct swn_model_config *c = to;

    return swn_config_grow(&c->outputs, &c->output_count, SWN_WIRE_TENSORS - c->input_count, sizeof *c->outputs);
}

static int read_timeout_action(struct swn_pbtxt *p, void *to)
{
    struct swn_queue_policy *policy = to;
    char name[64];
    int rc = swn_pbtxt_name(p, name, sizeof name);

    if (rc < 0)
        return rc;
    policy->timeout_action = strcmp(name, "DELAY") == 0 ? SWN_QUEUE_DELAY : SWN_QUEUE_REJECT;
    return policy->timeout_action == SWN_QUEUE_DELAY || strcmp(name, "REJECT") == 0
               ? 0
               : swn_pbtxt_fail(p, "'%s' is neither REJECT nor DELAY", name);
}

static const struct swn_config_field policy_fields[] = {
    {.name = "timeout_action", .kind = SWN_FIELD_VALUE, .read = read_timeout_action},
    {.name = "default_timeout_microseconds",
     .kind = SWN_FIELD_NUMBER,
     SWN_FIELD_AT(swn_queue_policy, default_timeout_us)},
    {.name = "allow_timeout_override", .kind = SWN_FIELD_FLAG, SWN_FIELD_AT(swn_queue_policy, allow_override)},
    {.name = "max_queue_size", .kind = SWN_FIELD_COUNT, SWN_FIELD_AT(swn_queue_policy, max_queue_size)},
    {0},
};

static void *begin_default_policy(void *to)
{
    struct swn_config_batching *b = to;

    return &b->policy;
}

static void *begin_level_policy(void *to)
{
    struct swn_config_level *level = to;

    return &level->policy;
}

static const struct swn_config_field level_fields[] = {
    {.name = "key", .kind = SWN_FIELD_COUNT, SWN_FIELD_AT(swn_config_level, priority)},
    {.name = "value", .kind = SWN_FIELD_MESSAGE, .fields = policy_fields, .begin = begin_level_policy},
    {0},
};

static void *begin_level(void *to)
{
    struct swn_config_batching *b = to;

    return b->level_count < SWN_CONFIG_LIST ? &b->levels[b->level_count++] : NULL;
}

static int read_preferred(struct swn_pbtxt *p, void *to)
{
    struct swn_config_batching *b = to;
    uint64_t size;
    int rc = swn_pbtxt_unsigned(p, SWN_FIELD_COUNT_MOST, &size);

    if (rc < 0)
        return rc;
    if (size == 0 || b->preferred_count == SWN_CONFIG_LIST)
        return swn_pbtxt_fail(p, size ? "there are too many of 'preferred_batch_size'"
                                      : "'preferred_batch_size' must be at least 1");
    b->preferred[b->preferred_count++] = (uint32_t)size;
    return 0;
}

static const struct swn_config_field batching_fields[] = {
    {.name = "preferred_batch_size", .kind = SWN_FIELD_VALUE, .is_repeated = 1, .read = read_preferred},
    {.name = "max_queue_delay_microseconds",
     .kind = SWN_FIELD_NUMBER,
     SWN_FIELD_AT(swn_config_batching, max_queue_delay_us)},
    {.name = "preserve_ordering", .kind = SWN_FIELD_FLAG, SWN_FIELD_AT(swn_config_batching, preserve_ordering)},
    {.name = "priority_levels", .kind = SWN_FIELD_COUNT, SWN_FIELD_AT(swn_config_batching, priority_levels)},
    {.name = "default_priority_level", .kind = SWN_FIELD_COUNT, SWN_FIELD_AT(swn_config_batching, default_priority)},
    {.name = "default_queue_policy", .kind = SWN_FIELD_MESSAGE, .fields = policy_fields, .begin = begin_default_policy},
    {.name = "priority_queue_policy",
     .kind = SWN_FIELD_MESSAGE,
     .is_repeated = 1,
     .fields = level_fields,
     .begin = begin_level},
    {0},
};

static void *begin_batching(void *to)
{
    struct swn_model_config *c = to;

    c->batching.is_dynamic = 1;
    return &c->batching;
}

static int read_version(struct swn_pbtxt *p, void *to)
{
    struct swn_config_versions *v = to;
    int64_t version;
    int rc = swn_pbtxt_signed(p, &version);

    if (rc < 0)
        return rc;
    if (version < 1 || v->count == SWN_CONFIG_LIST)
        return swn_pbtxt_fail(p, version < 1 ? "a version must be at least 1" : "there are too many of 'versions'");
    v->versions[v->count++] = version;
    return 0;
}

static int read_num_versions(struct swn_pbtxt *p, void *to)
{
    struct swn_config_versions *v = to;
    uint64_t count;
    int rc = swn_pbtxt_unsigned(p, SWN_FIELD_COUNT_MOST, &count);

    if (rc < 0)
        return rc;
    v->latest = (uint32_t)count;
    return count ? 0 : swn_pbtxt_fail(p, "'num_versions' must be at least 1");
}

static const struct swn_config_field latest_fields[] = {
    {.name = "num_versions", .kind = SWN_FIELD_VALUE, .read = read_num_versions},
    {0},
};
static const struct swn_config_field all_fields[] = {
    {0},
};
static const struct swn_config_field specific_fields[] = {
    {.name = "versions", .kind = SWN_FIELD_VALUE, .is_repeated = 1, .read = read_version},
    {0},
};

/* Of the three, a config has one: `latest` is 0 until one is chosen. */
static void *choose(struct swn_config_versions *v, enum swn_version_policy policy)
{
    if (v->latest)
        return NULL;
    v->policy = policy;
    v->latest = 1;
    return v;
}

static void *begin_latest(void *to)
{
    return choose(to, SWN_VERSIONS_LATEST);
}

static void *begin_all(void *to)
{
    return choose(to, SWN_VERSIONS_ALL);
}

static void *begin_specific(void *to)
{
    return choose(to, SWN_VERSIONS_SPECIFIC);
}

static const struct swn_config_field version_fields[] = {
    {.name = "latest", .kind = SWN_FIELD_MESSAGE, .fields = latest_fields, .begin = begin_latest},
    {.name = "all", .kind = SWN_FIELD_MESSAGE, .fields = all_fields, .begin = begin_all},
    {.name = "specific", .kind = SWN_FIELD_MESSAGE, .fields = specific_fields, .begin = begin_specific},
    {0},
};

static void *begin_versions(void *to)
{
    struct swn_model_config *c = to;

    return &c->versions;
}

static const struct swn_config_field parameter_value_fields[] = {
    {.name = "string_value",
     .kind = SWN_FIELD_TEXT,
     SWN_FIELD_AT(swn_config_parameter, value),
     .room = SWN_CONFIG_VALUE},
    {0},
};

static const struct swn_config_field parameter_fields[] = {
    {.name = "key", .kind = SWN_FIELD_TEXT, SWN_FIELD_AT(swn_config_parameter, key), .room = SWN_CONFIG_NAME},
    {.name = "value", .kind = SWN_FIELD_MESSAGE, .fields = parameter_value_fields},
    {0},
};

static void *begin_parameter(void *to)
{
    struct swn_model_config *c = to;

    return swn_config_grow(&c->parameters, &c->parameter_count, SWN_CONFIG_PARAMETERS, sizeof *c->parameters);
}

static const struct swn_config_field transaction_fields[] = {
    {.name = "decoupled", .kind = SWN_FIELD_VALUE, .read = read_never},
    {0},
};

static void *begin_ensemble(void *to)
{
    struct swn_model_config *c = to;

    c->ensemble = swn_ensemble_new();
    return c->ensemble;
}

/* Triton's ModelConfig. */
static const struct swn_config_field config_fields[] = {
    {.name = "name", .kind = SWN_FIELD_TEXT, SWN_FIELD_AT(swn_model_config, name), .room = SWN_CONFIG_NAME},
    {.name = "platform", .kind = SWN_FIELD_TEXT, SWN_FIELD_AT(swn_model_config, platform), .room = SWN_CONFIG_NAME},
    {.name = "backend", .kind = SWN_FIELD_TEXT, SWN_FIELD_AT(swn_model_config, backend), .room = SWN_CONFIG_NAME},
    {.name = "default_model_filename",
     .kind = SWN_FIELD_TEXT,
     SWN_FIELD_AT(swn_model_config, file),
     .room = SWN_CONFIG_NAME},
    {.name = "max_batch_size", .kind = SWN_FIELD_COUNT, SWN_FIELD_AT(swn_model_config, max_batch_size)},
    {.name = "input", .kind = SWN_FIELD_MESSAGE, .is_repeated = 1, .fields = input_fields, .begin = begin_input},
    {.name = "output", .kind = SWN_FIELD_MESSAGE, .is_repeated = 1, .fields = output_fields, .begin = begin_output},
    {.name = "dynamic_batching", .kind = SWN_FIELD_MESSAGE, .fields = batching_fields, .begin = begin_batching},
    {.name = "version_policy", .kind = SWN_FIELD_MESSAGE, .fields = version_fields, .begin = begin_versions},
    {.name = "parameters",
     .kind = SWN_FIELD_MESSAGE,
     .is_repeated = 1,
     .fields = parameter_fields,
     .begin = begin_parameter},
    {.name = "model_transaction_policy", .kind = SWN_FIELD_MESSAGE, .fields = transaction_fields},
    {.name = "instance_group", .kind = SWN_FIELD_IGNORED, .is_repeated = 1},
    {.name = "model_warmup", .kind = SWN_FIELD_IGNORED, .is_repeated = 1},
    {.name = "optimization", .kind = SWN_FIELD_IGNORED},
    {.name = "metric_tags", .kind = SWN_FIELD_IGNORED, .is_repeated = 1},
    {.name = "cc_model_filenames", .kind = SWN_FIELD_IGNORED, .is_repeated = 1},
    {.name = "response_cache", .kind = SWN_FIELD_IGNORED},
    {.name = "model_metrics", .kind = SWN_FIELD_IGNORED},
    {.name = "runtime", .kind = SWN_FIELD_IGNORED},
    {.name = "sequence_batching", .kind = SWN_FIELD_REFUSED},
    {.name = "ensemble_scheduling", .kind = SWN_FIELD_MESSAGE, .fields = swn_ensemble_fields, .begin = begin_ensemble},
    {.name = "batch_input", .kind = SWN_FIELD_REFUSED},
    {.name = "batch_output", .kind = SWN_FIELD_REFUSED},
    {.name = "model_operations", .kind = SWN_FIELD_REFUSED},
    {.name = "model_repository_agents", .kind = SWN_FIELD_REFUSED},
    {0},
};

/* Of an ensemble, the steps' models say what they have. */
static int check_reshape(const struct swn_config_tensor *t, const char *kind, int is_ensemble, char why[SWN_ERRMSG])
{
    struct swn_shape dims = {.rank = t->tensor.rank};

    memcpy(dims.sizes, t->tensor.shape, sizeof dims.sizes);
    if (is_ensemble)
        return swn_errmsg(why, -EINVAL, "%s '%s' of an ensemble cannot have a reshape", kind, t->tensor.name);
    if (!dims.rank || !swn_reshape_is_sound(&dims, &t->reshape))
        return swn_errmsg(why, -EINVAL, "%s '%s' has different size for dims and reshape", kind, t->tensor.name);
    return 0;
}

static int check_tensors(const struct swn_config_tensor *tensors, unsigned count, const char *kind, int is_ensemble,
                         char why[SWN_ERRMSG])
{
    for (unsigned i = 0; i < count; i++) {
        const struct swn_config_tensor *t = &tensors[i];
        if (!t->tensor.name[0])
            return swn_errmsg(why, -EINVAL, "%s %u has no name", kind, i);
        if (t->tensor.element == SWN_ELEMENT_NONE)
            return swn_errmsg(why, -EINVAL, "%s '%s' has no data_type", kind, t->tensor.name);
        if (t->has_reshape && check_reshape(t, kind, is_ensemble, why))
            return -EINVAL;
        for (unsigned other = 0; other < i; other++)
            if (strcmp(t->tensor.name, tensors[other].tensor.name) == 0)
                return swn_errmsg(why, -EINVAL, "there are two of %s '%s'", kind, t->tensor.name);
    }
    return 0;
}

static int check_levels(const struct swn_config_batching *b, char why[SWN_ERRMSG])
{
    for (unsigned i = 0; i < b->level_count; i++) {
        uint32_t priority = b->levels[i].priority;
        if (priority < 1 || priority > b->priority_levels)
            return swn_errmsg(why, -EINVAL, "priority_queue_policy %u: keys are from 1 to priority_levels (%u)",
                              priority, b->priority_levels);
        for (unsigned other = 0; other < i; other++)
            if (b->levels[other].priority == priority)
                return swn_errmsg(why, -EINVAL, "there are two of priority_queue_policy %u", priority);
    }
    return 0;
}

static int check_ensemble(const struct swn_model_config *c, char why[SWN_ERRMSG])
{
    const struct swn_wire_tensor *inputs[SWN_WIRE_TENSORS], *outputs[SWN_WIRE_TENSORS];

    if (!c->ensemble)
        return swn_errmsg(why, -EINVAL, "platform is \"ensemble\", and ensemble_scheduling is missing");
    if (*c->platform && strcmp(c->platform, "ensemble") != 0)
        return swn_errmsg(why, -EINVAL, "ensemble_scheduling needs platform \"ensemble\"");
    for (unsigned i = 0; i < c->input_count; i++)
        inputs[i] = &c->inputs[i].tensor;
    for (unsigned i = 0; i < c->output_count; i++)
        outputs[i] = &c->outputs[i].tensor;
    return swn_ensemble_check(c->ensemble, inputs, c->input_count, outputs, c->output_count, why);
}

static const char *bits_of(const struct swn_model_config *c)
{
    for (unsigned i = 0; i < c->parameter_count; i++)
        if (strcmp(c->parameters[i].key, "swapnet_bits") == 0)
            return c->parameters[i].value;
    return "exact";
}

/* What only the whole of it can get wrong. */
static int check_config(const struct swn_model_config *c, char why[SWN_ERRMSG])
{
    const struct swn_config_batching *b = &c->batching;

    if (check_tensors(c->inputs, c->input_count, "input", c->ensemble != NULL, why) ||
        check_tensors(c->outputs, c->output_count, "output", c->ensemble != NULL, why))
        return -EINVAL;
    if (b->default_priority > b->priority_levels || (b->priority_levels && !b->default_priority))
        return swn_errmsg(why, -EINVAL, "default_priority_level must be from 1 to priority_levels (%u)",
                          b->priority_levels);
    if (check_levels(b, why))
        return -EINVAL;
    for (unsigned i = 0; i < b->preferred_count; i++)
        if (b->preferred[i] > c->max_batch_size)
            return swn_errmsg(why, -EINVAL, "preferred_batch_size %u exceeds max_batch_size %u", b->preferred[i],
                              c->max_batch_size);
    for (unsigned i = 0; i < c->parameter_count; i++)
        for (unsigned other = 0; other < i; other++)
            if (strcmp(c->parameters[i].key, c->parameters[other].key) == 0)
                return swn_errmsg(why, -EINVAL, "there are two of parameter '%s'", c->parameters[i].key);
    if (strcmp(bits_of(c), "exact") != 0 && strcmp(bits_of(c), "batch") != 0)
        return swn_errmsg(why, -EINVAL, "parameter 'swapnet_bits' is \"exact\" or \"batch\"");
    if (c->versions.policy == SWN_VERSIONS_SPECIFIC && c->versions.count == 0)
        return swn_errmsg(why, -EINVAL, "version_policy specific names no versions");
    if (c->ensemble || strcmp(c->platform, "ensemble") == 0)
        return check_ensemble(c, why);
    return 0;
}

uint32_t swn_model_config_joins(const struct swn_model_config *config)
{
    return config->batching.is_dynamic && config->max_batch_size > 1 && !config->ensemble ? config->max_batch_size : 0;
}

int swn_model_config_may_differ(const struct swn_model_config *config)
{
    return strcmp(bits_of(config), "batch") == 0;
}

void swn_model_config_init(struct swn_model_config *config)
{
    memset(config, 0, sizeof *config);
    config->versions.latest = 1;
}

/* malloc'd; of an empty list NULL. */
static void *copy_list(const void *from, unsigned count, size_t size, int *rc)
{
    void *to = count ? malloc(count * size) : NULL;

    if (to)
        memcpy(to, from, count * size);
    else if (count)
        *rc = -ENOMEM;
    return to;
}

int swn_model_config_copy(struct swn_model_config *to, const struct swn_model_config *from)
{
    int rc = 0;

    *to = *from;
    swn_ensemble_share(to->ensemble);
    to->inputs = copy_list(from->inputs, from->input_count, sizeof *from->inputs, &rc);
    to->outputs = copy_list(from->outputs, from->output_count, sizeof *from->outputs, &rc);
    to->parameters = copy_list(from->parameters, from->parameter_count, sizeof *from->parameters, &rc);
    if (rc)
        swn_model_config_free(to);
    return rc;
}

void swn_model_config_free(struct swn_model_config *config)
{
    swn_ensemble_free(config->ensemble);
    config->ensemble = NULL;
    free(config->inputs);
    free(config->outputs);
    free(config->parameters);
    config->inputs = config->outputs = NULL;
    config->parameters = NULL;
    config->input_count = config->output_count = config->parameter_count = 0;
}

int swn_model_config_parse(const char *text, size_t bytes, struct swn_model_config *config, char why[SWN_ERRMSG])
{
    struct swn_pbtxt p;
    int rc;

    swn_model_config_init(config);
    config->versions.latest = 0;
    if (bytes > SWN_CONFIG_BYTES)
        return swn_errmsg(why, -EFBIG, "it has more than %zu bytes", SWN_CONFIG_BYTES);
    swn_pbtxt_init(&p, text, bytes, config->ignored, why);
    rc = read_message(&p, config_fields, config, 0);
    if (!config->versions.latest)
        config->versions.latest = 1;
    rc = rc < 0 ? rc : check_config(config, why);
    if (rc < 0)
        swn_model_config_free(config);
    return rc;
}
