/* scheduler/config/ensemble.c - see ensemble.h. */
#include "scheduler/config/ensemble.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct swn_ensemble *swn_ensemble_new(void)
{
    struct swn_ensemble *e = calloc(1, sizeof *e);

    if (e)
        e->users = 1;
    return e;
}

struct swn_ensemble *swn_ensemble_share(struct swn_ensemble *e)
{
    if (e)
        e->users++;
    return e;
}

void swn_ensemble_free(struct swn_ensemble *e)
{
    if (!e || --e->users)
        return;
    for (unsigned i = 0; i < e->step_count; i++) {
        free(e->steps[i].inputs);
        free(e->steps[i].outputs);
    }
    free(e->steps);
    free(e->input_names);
    free(e);
}

/* ---- names ---- */

int swn_ensemble_tensor(const struct swn_ensemble *e, const char *name)
{
    for (unsigned i = 0; i < e->tensor_count; i++)
        if (strcmp(e->tensor_names[i], name) == 0)
            return (int)i;
    return -1;
}

static int add_tensor(struct swn_ensemble *e, const char *name, unsigned maker, char why[SWN_ERRMSG])
{
    if (swn_ensemble_tensor(e, name) >= 0)
        return swn_errmsg(why, -EINVAL, "ensemble_scheduling: tensor '%s' is made twice", name);
    if (e->tensor_count == SWN_ENSEMBLE_TENSORS)
        return swn_errmsg(why, -EINVAL, "ensemble_scheduling: more than %d tensors", SWN_ENSEMBLE_TENSORS);
    e->maker[e->tensor_count] = maker;
    e->tensor_names[e->tensor_count++] = name;
    return 0;
}

/* The number of a tensor that step `step` needs, which inputs or steps before it make. */
static int need_tensor(const struct swn_ensemble *e, const char *name, unsigned step, unsigned *tensor,
                       char why[SWN_ERRMSG])
{
    int found = swn_ensemble_tensor(e, name);

    if (found < 0)
        return swn_errmsg(why, -EINVAL, "ensemble_scheduling: step %u needs tensor '%s', which no step before it makes",
                          step, name);
    *tensor = (unsigned)found;
    return 0;
}

static int check_keys(const struct swn_ensemble_map *maps, unsigned count, unsigned step, char why[SWN_ERRMSG])
{
    for (unsigned k = 0; k < count; k++)
        for (unsigned other = 0; other < k; other++)
            if (strcmp(maps[k].key, maps[other].key) == 0)
                return swn_errmsg(why, -EINVAL, "ensemble_scheduling: step %u maps '%s' twice", step, maps[k].key);
    return 0;
}

static int check_step(struct swn_ensemble *e, unsigned i, char why[SWN_ERRMSG])
{
    struct swn_ensemble_step *step = &e->steps[i];
    int rc = 0;

    if (!*step->model)
        return swn_errmsg(why, -EINVAL, "ensemble_scheduling: step %u has no model_name", i);
    if (step->input_count == 0 || step->output_count == 0)
        return swn_errmsg(why, -EINVAL, "ensemble_scheduling: step %u has no input_map or no output_map", i);
    if (check_keys(step->inputs, step->input_count, i, why) || check_keys(step->outputs, step->output_count, i, why))
        return -EINVAL;
    for (unsigned k = 0; k < step->input_count && rc == 0; k++)
        rc = need_tensor(e, step->inputs[k].value, i, &step->inputs[k].tensor, why);
    if (rc == 0 && step->condition.kind)
        rc = need_tensor(e, step->condition.name, i, &step->condition.tensor, why);
    for (unsigned k = 0; k < step->output_count && rc == 0; k++) {
        step->outputs[k].tensor = e->tensor_count;
        rc = add_tensor(e, step->outputs[k].value, i, why);
    }
    return rc;
}

static int can_follow(const struct swn_ensemble *e, const struct swn_ensemble_step *step)
{
    for (unsigned k = 0; k < step->input_count; k++)
        if (swn_ensemble_tensor(e, step->inputs[k].value) < 0)
            return 0;
    return step->condition.kind == SWN_CONDITION_NONE || swn_ensemble_tensor(e, step->condition.name) >= 0;
}

/* Step i becomes one whose tensors are there by then, if there is one: files may name steps in any order. */
static void put_in_order(struct swn_ensemble *e, unsigned i)
{
    for (unsigned k = i; k < e->step_count; k++)
        if (can_follow(e, &e->steps[k])) {
            struct swn_ensemble_step first = e->steps[k];
            memmove(&e->steps[i + 1], &e->steps[i], (k - i) * sizeof first);
            e->steps[i] = first;
            return;
        }
}

int swn_ensemble_check(struct swn_ensemble *e, const struct swn_wire_tensor *const *inputs, unsigned input_count,
                       const struct swn_wire_tensor *const *outputs, unsigned output_count, char why[SWN_ERRMSG])
{
    int rc = 0;

    e->tensor_count = 0;
    e->input_count = input_count;
    e->output_count = output_count;
    if (e->step_count == 0 || input_count == 0 || output_count == 0)
        return swn_errmsg(why, -EINVAL, "ensemble_scheduling: an ensemble has steps, inputs and outputs");
    free(e->input_names);
    e->input_names = calloc(input_count, sizeof *e->input_names);
    if (!e->input_names)
        return swn_errmsg(why, -ENOMEM, "ensemble_scheduling: out of memory");
    for (unsigned i = 0; i < input_count && rc == 0; i++) {
        memcpy(e->input_names[i], inputs[i]->name, sizeof e->input_names[i]);
        rc = add_tensor(e, e->input_names[i], e->step_count, why);
    }
    for (unsigned i = 0; i < e->step_count && rc == 0; i++) {
        put_in_order(e, i);
        rc = check_step(e, i, why);
    }
    for (unsigned i = 0; i < output_count && rc == 0; i++) {
        int tensor = swn_ensemble_tensor(e, outputs[i]->name);
        if (tensor < (int)input_count)
            return swn_errmsg(why, -EINVAL, "ensemble_scheduling: no step makes output '%s'", outputs[i]->name);
        e->outputs[i] = (unsigned)tensor;
    }
    return rc;
}

/* ---- conditions ---- */

static double half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent == 31 ? (fraction ? NAN : INFINITY)
                   : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                  : ldexp(fraction, -24);

    return bits >> 15 ? -value : value;
}

/* Element `i` as a number. Integers above 2^53 are rounded, which conditions can bear. */
static double element(enum swn_element type, const char *bytes, uint64_t i)
{
    union {
        uint8_t u8;
        uint16_t u16;
        uint32_t u32;
        uint64_t u64;
        int8_t i8;
        int16_t i16;
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
    } v = {.u64 = 0};
    size_t size = swn_element_bytes(type);

    memcpy(&v, bytes + i * size, size);
    switch (type) {
    case SWN_ELEMENT_INT8:
        return v.i8;
    case SWN_ELEMENT_INT16:
        return v.i16;
    case SWN_ELEMENT_INT32:
        return v.i32;
    case SWN_ELEMENT_INT64:
        return (double)v.i64;
    case SWN_ELEMENT_FP16:
        return half(v.u16);
    case SWN_ELEMENT_BF16:
        v.u32 = (uint32_t)v.u16 << 16;
        return v.f32;
    case SWN_ELEMENT_FP32:
        return v.f32;
    case SWN_ELEMENT_FP64:
        return v.f64;
    default: /* unsigned, and BOOL: the rest of the union is 0 */
        return (double)v.u64;
    }
}

int swn_condition_holds(const struct swn_ensemble_condition *c, const struct swn_wire_tensor *tensor, const void *bytes)
{
    size_t size = swn_element_bytes((enum swn_element)tensor->element);
    uint64_t n = size ? tensor->bytes / size : 0, most_at = 0, above = 0;
    double most = -INFINITY;

    if (n == 0)
        return -EINVAL;
    for (uint64_t i = 0; i < n; i++) {
        double value = element((enum swn_element)tensor->element, bytes, i);
        if (value > most) {
            most = value;
            most_at = i;
        }
        above += value > c->threshold;
    }
    switch (c->kind) {
    case SWN_CONDITION_ARGMAX:
        for (unsigned i = 0; i < c->label_count; i++)
            if (c->labels[i] == most_at)
                return 1;
        return 0;
    case SWN_CONDITION_MAX_ABOVE:
        return most > c->threshold;
    case SWN_CONDITION_COUNT_ABOVE:
        return above >= c->count;
    default:
        return 1;
    }
}

/* ---- progress ---- */

void swn_ensemble_begin(const struct swn_ensemble *e, struct swn_ensemble_progress *p)
{
    memset(p, 0, sizeof *p);
    for (unsigned i = 0; i < e->step_count; i++)
        p->verdicts[i] = e->steps[i].condition.kind ? -1 : 1;
}

void swn_ensemble_want(const struct swn_ensemble *e, struct swn_ensemble_progress *p,
                       const uint8_t wanted[SWN_ENSEMBLE_TENSORS])
{
    uint8_t needed[SWN_ENSEMBLE_TENSORS];

    memcpy(needed, wanted, sizeof needed);
    for (unsigned i = e->step_count; i-- > 0;) { /* makers come before users */
        const struct swn_ensemble_step *step = &e->steps[i];
        int is_needed = 0;
        for (unsigned k = 0; k < step->output_count; k++)
            is_needed |= needed[step->outputs[k].tensor];
        if (!is_needed) {
            p->steps[i] = SWN_STEP_UNWANTED;
            continue;
        }
        for (unsigned k = 0; k < step->input_count; k++)
            needed[step->inputs[k].tensor] = 1;
        if (step->condition.kind)
            needed[step->condition.tensor] = 1;
    }
}

/* 1: it is there; 0: not yet; -1: it never will be. */
static int tensor_is_there(const struct swn_ensemble *e, const struct swn_ensemble_progress *p, unsigned tensor)
{
    unsigned maker = e->maker[tensor];

    if (maker == e->step_count || p->steps[maker] == SWN_STEP_DONE)
        return 1;
    return p->steps[maker] == SWN_STEP_SKIPPED || p->verdicts[maker] == 0 ? -1 : 0;
}

/* Of all that the step needs: as above, the least. */
static int needs_are_there(const struct swn_ensemble *e, const struct swn_ensemble_progress *p, unsigned i)
{
    const struct swn_ensemble_step *step = &e->steps[i];
    int all = step->condition.kind ? tensor_is_there(e, p, step->condition.tensor) : 1;

    for (unsigned k = 0; k < step->input_count; k++) {
        int there = tensor_is_there(e, p, step->inputs[k].tensor);
        if (there < all)
            all = there;
    }
    return all;
}

int swn_ensemble_to_judge(const struct swn_ensemble *e, const struct swn_ensemble_progress *p)
{
    for (unsigned i = 0; i < e->step_count; i++)
        if (p->steps[i] < SWN_STEP_RUNS && p->verdicts[i] < 0 &&
            tensor_is_there(e, p, e->steps[i].condition.tensor) == 1)
            return (int)i;
    return -1;
}

/* How likely the step's maker of this tensor runs. */
static double tensor_probability(const struct swn_ensemble *e, unsigned tensor, const double *probability)
{
    return e->maker[tensor] == e->step_count ? 1 : probability[e->maker[tensor]];
}

void swn_ensemble_expect(const struct swn_ensemble *e, const struct swn_ensemble_progress *p,
                         double probability[SWN_ENSEMBLE_STEPS])
{
    for (unsigned i = 0; i < e->step_count; i++) { /* makers come before users */
        const struct swn_ensemble_step *step = &e->steps[i];
        double least = 1;

        for (unsigned k = 0; k < step->input_count; k++)
            least = fmin(least, tensor_probability(e, step->inputs[k].tensor, probability));
        if (p->verdicts[i] < 0)
            least = fmin(least, tensor_probability(e, step->condition.tensor, probability)) * ((double)step->held + 1) /
                    ((double)step->asked + 2);
        probability[i] = p->steps[i] > SWN_STEP_DONE || p->verdicts[i] == 0 ? 0
                         : p->steps[i] >= SWN_STEP_RUNS                     ? 1
                                                                            : least;
    }
}

int swn_ensemble_to_begin_early(const struct swn_ensemble *e, const struct swn_ensemble_progress *p, unsigned *maker)
{
    for (unsigned i = 0; i < e->step_count; i++) {
        const struct swn_ensemble_step *step = &e->steps[i];
        int is_ready = p->steps[i] == SWN_STEP_WAITS && p->verdicts[i] < 0 && !p->has_failed[i];

        for (unsigned k = 0; is_ready && k < step->input_count; k++)
            is_ready = tensor_is_there(e, p, step->inputs[k].tensor) == 1;
        if (!is_ready || e->maker[step->condition.tensor] == e->step_count)
            continue;
        *maker = e->maker[step->condition.tensor];
        if (p->steps[*maker] == SWN_STEP_RUNS || p->steps[*maker] == SWN_STEP_EARLY)
            return (int)i;
    }
    return -1;
}

int swn_ensemble_to_abort(const struct swn_ensemble *e, struct swn_ensemble_progress *p)
{
    for (unsigned i = 0; i < e->step_count; i++) {
        int is_early = p->steps[i] == SWN_STEP_EARLY;

        if (!is_early && p->steps[i] != SWN_STEP_HELD)
            continue;
        if (p->verdicts[i] == 0 || tensor_is_there(e, p, e->steps[i].condition.tensor) < 0) {
            p->steps[i] = SWN_STEP_SKIPPED;
            if (is_early)
                return (int)i;
        } else if (p->verdicts[i] > 0) {
            p->steps[i] = is_early ? SWN_STEP_RUNS : SWN_STEP_DONE;
        }
    }
    return -1;
}

int swn_ensemble_to_start(const struct swn_ensemble *e, struct swn_ensemble_progress *p)
{
    for (unsigned i = 0; i < e->step_count; i++) {
        int there;
        if (p->steps[i] != SWN_STEP_WAITS)
            continue;
        there = needs_are_there(e, p, i);
        if (there < 0 || p->verdicts[i] == 0)
            p->steps[i] = SWN_STEP_SKIPPED; /* steps behind it see that, as makers come before users */
        else if (there && p->verdicts[i] > 0)
            return (int)i;
    }
    return -1;
}

int swn_ensemble_is_over(const struct swn_ensemble *e, const struct swn_ensemble_progress *p)
{
    for (unsigned i = 0; i < e->step_count; i++)
        if (p->steps[i] < SWN_STEP_DONE)
            return 0;
    return 1;
}
