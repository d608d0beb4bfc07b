/* scheduler/config/model_config_json.c - a model's configuration as Triton's clients read it: the fields of protobuf's
 * JSON form under their own names, integers as numbers. */
#include "scheduler/json/json_text.h"
#include "scheduler/config/model_config.h"

static void put_key(struct swn_json_out *text, const char *key)
{
    swn_json_puts(text, ",\"");
    swn_json_puts(text, key);
    swn_json_puts(text, "\":");
}

static void put_text(struct swn_json_out *text, const char *key, const char *value)
{
    put_key(text, key);
    swn_json_put_name(text, value);
}

static void put_number(struct swn_json_out *text, const char *key, uint64_t value)
{
    put_key(text, key);
    swn_json_put_unsigned(text, value);
}

static void put_flag(struct swn_json_out *text, const char *key, int flag)
{
    put_key(text, key);
    swn_json_puts(text, flag ? "true" : "false");
}

static void put_shape(struct swn_json_out *text, const int64_t *shape, unsigned rank)
{
    swn_json_puts(text, "[");
    for (unsigned d = 0; d < rank; d++) {
        swn_json_puts(text, d ? "," : "");
        swn_json_put_signed(text, shape[d]);
    }
    swn_json_puts(text, "]");
}

static void put_tensor(struct swn_json_out *text, const struct swn_config_tensor *t, int is_input)
{
    const char *type = t->tensor.element == SWN_ELEMENT_BYTES  ? "STRING"
                       : t->tensor.element == SWN_ELEMENT_NONE ? "INVALID"
                                                               : swn_element_name(t->tensor.element);

    swn_json_puts(text, "{\"name\":");
    swn_json_put_name(text, t->tensor.name);
    put_key(text, "data_type");
    swn_json_puts(text, "\"TYPE_");
    swn_json_puts(text, type);
    swn_json_puts(text, "\"");
    put_key(text, "dims");
    put_shape(text, t->tensor.shape, t->tensor.rank);
    if (t->has_reshape) {
        put_key(text, "reshape");
        swn_json_puts(text, "{\"shape\":");
        put_shape(text, t->reshape.sizes, t->reshape.rank);
        swn_json_puts(text, "}");
    }
    put_flag(text, "is_shape_tensor", 0);
    if (is_input) {
        put_text(text, "format", "FORMAT_NONE");
        put_flag(text, "allow_ragged_batch", 0);
        put_flag(text, "optional", t->is_optional);
    } else {
        put_text(text, "label_filename", t->labels);
    }
    swn_json_puts(text, "}");
}

static void put_tensors(struct swn_json_out *text, const char *key, const struct swn_config_tensor *tensors,
                        unsigned count, int is_input)
{
    put_key(text, key);
    swn_json_puts(text, "[");
    for (unsigned i = 0; i < count; i++) {
        swn_json_puts(text, i ? "," : "");
        put_tensor(text, &tensors[i], is_input);
    }
    swn_json_puts(text, "]");
}

static void put_versions(struct swn_json_out *text, const struct swn_config_versions *v)
{
    put_key(text, "version_policy");
    if (v->policy == SWN_VERSIONS_ALL) {
        swn_json_puts(text, "{\"all\":{}}");
    } else if (v->policy == SWN_VERSIONS_SPECIFIC) {
        swn_json_puts(text, "{\"specific\":{\"versions\":");
        put_shape(text, v->versions, v->count);
        swn_json_puts(text, "}}");
    } else {
        swn_json_puts(text, "{\"latest\":{\"num_versions\":");
        swn_json_put_unsigned(text, v->latest);
        swn_json_puts(text, "}}");
    }
}

static void put_policy(struct swn_json_out *text, const struct swn_queue_policy *policy)
{
    swn_json_puts(text, "{\"timeout_action\":");
    swn_json_put_name(text, policy->timeout_action == SWN_QUEUE_DELAY ? "DELAY" : "REJECT");
    put_number(text, "default_timeout_microseconds", policy->default_timeout_us);
    put_flag(text, "allow_timeout_override", policy->allow_override);
    put_number(text, "max_queue_size", policy->max_queue_size);
    swn_json_puts(text, "}");
}

static void put_batching(struct swn_json_out *text, const struct swn_config_batching *b)
{
    put_key(text, "dynamic_batching");
    swn_json_puts(text, "{\"preferred_batch_size\":[");
    for (unsigned i = 0; i < b->preferred_count; i++) {
        swn_json_puts(text, i ? "," : "");
        swn_json_put_unsigned(text, b->preferred[i]);
    }
    swn_json_puts(text, "]");
    put_number(text, "max_queue_delay_microseconds", b->max_queue_delay_us);
    put_flag(text, "preserve_ordering", b->preserve_ordering);
    put_number(text, "priority_levels", b->priority_levels);
    put_number(text, "default_priority_level", b->default_priority);
    put_key(text, "default_queue_policy");
    put_policy(text, &b->policy);
    put_key(text, "priority_queue_policy");
    swn_json_puts(text, "{");
    for (unsigned i = 0; i < b->level_count; i++) {
        swn_json_puts(text, i ? ",\"" : "\"");
        swn_json_put_unsigned(text, b->levels[i].priority);
        swn_json_puts(text, "\":");
        put_policy(text, &b->levels[i].policy);
    }
    swn_json_puts(text, "}}");
}

size_t swn_model_config_json(const struct swn_model_config *config, char *to, size_t room)
{
    struct swn_json_out text = {.to = to, .room = room};

    swn_json_puts(&text, "{\"name\":");
    swn_json_put_name(&text, config->name);
    put_text(&text, "platform", config->platform);
    put_text(&text, "backend", config->backend);
    put_versions(&text, &config->versions);
    put_number(&text, "max_batch_size", config->max_batch_size);
    put_tensors(&text, "input", config->inputs, config->input_count, 1);
    put_tensors(&text, "output", config->outputs, config->output_count, 0);
    if (config->batching.is_dynamic)
        put_batching(&text, &config->batching);
    put_text(&text, "default_model_filename", config->file);
    put_key(&text, "parameters");
    swn_json_puts(&text, "{");
    for (unsigned i = 0; i < config->parameter_count; i++) {
        swn_json_puts(&text, i ? "," : "");
        swn_json_put_name(&text, config->parameters[i].key);
        swn_json_puts(&text, ":{\"string_value\":");
        swn_json_put_name(&text, config->parameters[i].value);
        swn_json_puts(&text, "}");
    }
    swn_json_puts(&text, "}");
    put_key(&text, "model_transaction_policy");
    swn_json_puts(&text, "{\"decoupled\":false}}");
    return text.used;
}
