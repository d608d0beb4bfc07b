/* scheduler/config/ensemble.h - several models under one name: which step's tensors go where, and which steps are left
 * out.
 *
 * A step runs a model when all of its inputs are there. Triton's ensembles run every step; here a step may have a
 * condition on a tensor that an earlier one made (a cascade), and where it does not hold the step is skipped, and with
 * it what needs its outputs. Pure: no model, no socket. For one thread; the struct is constant once it is checked, but
 * for what is counted.
 */
#ifndef SWN_SCHEDULER_CONFIG_ENSEMBLE_H
#define SWN_SCHEDULER_CONFIG_ENSEMBLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/errmsg.h"
#include "scheduler/protocol/engine_wire.h"

#define SWN_ENSEMBLE_STEPS 16
#define SWN_ENSEMBLE_MAPS 16    /* inputs or outputs of a step, at most */
#define SWN_ENSEMBLE_TENSORS 64 /* of the ensemble: its inputs, and what steps make */
#define SWN_ENSEMBLE_LABELS 32
#define SWN_ENSEMBLE_MODEL 256 /* bytes of a model's name with its terminator */

/* A tensor of the step's model, and the ensemble's tensor that it is. */
struct swn_ensemble_map {
    char key[SWN_WIRE_TENSOR_NAME], value[SWN_WIRE_TENSOR_NAME];
    unsigned tensor; /* of the ensemble; swn_ensemble_check fills it in */
};

enum swn_condition_kind {
    SWN_CONDITION_NONE,
    SWN_CONDITION_ARGMAX,      /* the index of the largest element is among `labels` */
    SWN_CONDITION_MAX_ABOVE,   /* the largest element is above `threshold` */
    SWN_CONDITION_COUNT_ABOVE, /* at least `count` elements are above `threshold` */
};

struct swn_ensemble_condition {
    enum swn_condition_kind kind;
    char name[SWN_WIRE_TENSOR_NAME];
    unsigned tensor;
    double threshold;
    uint64_t count;
    unsigned label_count;
    uint64_t labels[SWN_ENSEMBLE_LABELS];
};

struct swn_ensemble_step {
    char model[SWN_ENSEMBLE_MODEL];
    int64_t version; /* 0: the newest */
    unsigned input_count, output_count;
    struct swn_ensemble_map *inputs, *outputs; /* the ensemble's */
    struct swn_ensemble_condition condition;
    uint64_t asked, held; /* how often the condition was judged, and held */
};

struct swn_ensemble {
    unsigned users; /* configurations that have it: swn_ensemble_share, swn_ensemble_free */
    unsigned step_count, tensor_count, input_count, output_count;
    unsigned outputs[SWN_WIRE_TENSORS];             /* tensors, in the order of the outputs */
    unsigned maker[SWN_ENSEMBLE_TENSORS];           /* the step; of an input: step_count */
    const char *tensor_names[SWN_ENSEMBLE_TENSORS]; /* the first input_count are the inputs */
    char (*input_names)[SWN_WIRE_TENSOR_NAME];
    struct swn_ensemble_step *steps; /* SWN_ENSEMBLE_STEPS at most */
};

struct swn_ensemble *swn_ensemble_new(void);                     /* NULL: no memory */
struct swn_ensemble *swn_ensemble_share(struct swn_ensemble *e); /* NULL: NULL */
void swn_ensemble_free(struct swn_ensemble *e);                  /* the last user's frees it; NULL: nothing */

/* Resolves names and checks that each tensor has one maker, that every step's tensors have one before it, and that the
 * outputs are made. 0, -EINVAL or -ENOMEM with `why` filled. */
int swn_ensemble_check(struct swn_ensemble *e, const struct swn_wire_tensor *const *inputs, unsigned input_count,
                       const struct swn_wire_tensor *const *outputs, unsigned output_count, char why[SWN_ERRMSG]);

/* The tensor's number, or -1. */
int swn_ensemble_tensor(const struct swn_ensemble *e, const char *name);

/* 1: it holds for these bytes, 0: it does not; -EINVAL: the tensor has no numbers, or no element. NaN is above nothing
 * and is never the largest; of equal elements the first is. */
int swn_condition_holds(const struct swn_ensemble_condition *c, const struct swn_wire_tensor *tensor,
                        const void *bytes);

/* How far an execution is. */
enum swn_step_state {
    SWN_STEP_WAITS,
    SWN_STEP_EARLY, /* runs, and whether it is needed is not known yet (CA-preempt) */
    SWN_STEP_HELD,  /* has run early, and that is not known yet */
    SWN_STEP_RUNS,
    SWN_STEP_DONE,
    SWN_STEP_SKIPPED,
    SWN_STEP_UNWANTED, /* nobody asked for what it makes */
};

struct swn_ensemble_progress {
    enum swn_step_state steps[SWN_ENSEMBLE_STEPS];
    signed char verdicts[SWN_ENSEMBLE_STEPS]; /* of the step's condition: 1, 0; -1: not known yet */
    uint8_t has_failed[SWN_ENSEMBLE_STEPS];   /* it began early and failed: it does not begin early again */
};

void swn_ensemble_begin(const struct swn_ensemble *e, struct swn_ensemble_progress *p);

/* After it: only steps run that make wanted tensors, or what these need. */
void swn_ensemble_want(const struct swn_ensemble *e, struct swn_ensemble_progress *p,
                       const uint8_t wanted[SWN_ENSEMBLE_TENSORS]);

/* How likely it is that each step runs that has not been decided on: by how often conditions have held, and 1/2 where
 * nothing is known. 1: it runs, has run, or will when others have; 0: it does not. Conditions of one execution count as
 * if each step had that of the least likely one that it waits for. */
void swn_ensemble_expect(const struct swn_ensemble *e, const struct swn_ensemble_progress *p,
                         double probability[SWN_ENSEMBLE_STEPS]);

/* A step that could run at once, but for its condition, whose tensor another step makes now; or -1. The caller makes it
 * EARLY, and HELD when it has run. *maker: that other step. */
int swn_ensemble_to_begin_early(const struct swn_ensemble *e, const struct swn_ensemble_progress *p, unsigned *maker);

/* Early steps whose condition holds are like any others. A step that runs early and is not needed, as its condition
 * does not hold: it is SKIPPED now, and its run is to be ended; or -1. */
int swn_ensemble_to_abort(const struct swn_ensemble *e, struct swn_ensemble_progress *p);

/* A step whose condition can be judged, as its tensor is there, and has not been; or -1. The caller sets its verdict.
 */
int swn_ensemble_to_judge(const struct swn_ensemble *e, const struct swn_ensemble_progress *p);

/* A step that can start, whose state the caller sets; or -1. Steps that cannot run any more are skipped. */
int swn_ensemble_to_start(const struct swn_ensemble *e, struct swn_ensemble_progress *p);

/* 1: every step is done, skipped or not wanted. */
int swn_ensemble_is_over(const struct swn_ensemble *e, const struct swn_ensemble_progress *p);

#endif
