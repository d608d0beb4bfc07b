/* skeleton/engine/announced.h - the announced order: the weights that a serving process says it will read next.
 *
 * Each element is one read. It is over when an operator reads the weight; the first of several reads of a weight ends
 * first. Elements in front that no operator reads stay until the next announcement, and do no harm but to hold memory.
 * A tensor that is freed is no longer in the order, whatever gets its address.
 *
 * Engine lock held.
 */
#ifndef SWN_SKELETON_ENGINE_ANNOUNCED_H
#define SWN_SKELETON_ENGINE_ANNOUNCED_H

#include <stddef.h>
#include <stdint.h>

#include "skeleton/abi/serving.h"

struct swn_engine;
struct swn_range;

struct swn_announced_read {
    uintptr_t address;
    uint32_t id;    /* of the range there */
    uint32_t again; /* the place of the next read of the same weight; 0: there is none */
    uint8_t is_over;
    uint8_t is_repeated; /* the order, as it was announced, reads the weight more than once */
};

/* Of one weight: the places of its next and of its last read. */
struct swn_announced_weight {
    uint32_t id; /* 0: none */
    uint32_t next, last;
};

struct swn_announced {
    struct swn_announced_read *reads;     /* NULL before the first announcement */
    struct swn_announced_weight *weights; /* a hash table by id, of `slots` */
    size_t room, slots;
    const struct swn_extent_file *file; /* of the model at work */
    int is_told;                        /* the announcement said which model that is */
    int is_cut;                         /* more was announced than there is room for */
    /* The model that has the plan, if its weights come behind another model's, and those of the model at work again;
     * or NULL. */
    const struct swn_extent_file *returning;
    size_t first, count; /* all before `first` are over */
    size_t settled;      /* of the reads before it none is missing: skeleton/core/prefetch.c */
    size_t repeated;     /* of those that are not over, how many are of weights that are read repeatedly */
};

/* Takes the place of the order before. What never leaves memory is left out, and what is behind SWN_ANNOUNCED_MOST
 * others. own: a weight of the model at work that no other model has; 0: that is not known, and the first one is taken
 * for one. 0 or -ENOMEM: then there is no order. */
int swn_announced_set(struct swn_engine *e, const struct swn_serving_weight *weights, size_t n, uintptr_t own);
/* Whether reads behind the announced ones are guesses: a process that serves many models has announced all that it
 * knows, and the next request may be for any model. A model that streams by a plan is asked often. */
int swn_announced_is_all(const struct swn_engine *e);
/* Whether the order says when the model that has the plan is needed again, behind other models. Its frames follow the
 * order then: what the plan keeps would stay while the others stream, and they would leave for it in turn. */
int swn_announced_is_round(const struct swn_engine *e);
/* An operator reads r. */
void swn_announced_note_read(struct swn_engine *e, const struct swn_range *r);
/* The place of the next read of the range with this id, from 1 on; 0: there is none. */
uint32_t swn_announced_place(const struct swn_engine *e, uint32_t id);
/* A frame that the order needs at this place (0: nowhere) loses bytes, or all of them: they have to be looked for. */
void swn_announced_unsettle(struct swn_engine *e, size_t place);
/* The range of the next read that is to come, from *at on, which is 0 at first and then its place from 1 on; NULL:
 * there are no more. */
struct swn_range *swn_announced_next(struct swn_engine *e, size_t *at);

#endif
