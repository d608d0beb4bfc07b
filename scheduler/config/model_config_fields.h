/* scheduler/config/model_config_fields.h - the tables by which config.pbtxt is read: which fields a message has, and
 * where their values go. Internal to model_config*.c.
 */
#ifndef SWN_SCHEDULER_CONFIG_MODEL_CONFIG_FIELDS_H
#define SWN_SCHEDULER_CONFIG_MODEL_CONFIG_FIELDS_H

#include <stddef.h>
#include <stdint.h>

#include "scheduler/config/pbtxt.h"

#define SWN_FIELD_COUNT_MOST INT32_MAX

struct swn_config_field {
    const char *name;
    enum swn_config_kind {
        SWN_FIELD_TEXT,    /* a string into `room` bytes */
        SWN_FIELD_FLAG,    /* uint8_t */
        SWN_FIELD_COUNT,   /* uint32_t, from 0 to SWN_FIELD_COUNT_MOST */
        SWN_FIELD_NUMBER,  /* uint64_t */
        SWN_FIELD_VALUE,   /* read() reads it */
        SWN_FIELD_MESSAGE, /* of the fields `fields`; begin() says into which struct, NULL where there may be no more */
        SWN_FIELD_IGNORED, /* anything */
        SWN_FIELD_REFUSED, /* would change answers, and is not supported */
    } kind;
    uint8_t is_repeated;
    size_t offset, room;
    int (*read)(struct swn_pbtxt *p, void *to);
    const struct swn_config_field *fields;
    void *(*begin)(void *to);
};

/* One more element of `size` bytes, all 0, behind those of the list, which *list points to. NULL: no memory, or there
 * are `most`. The list moves: what pointed into it does so no more. */
void *swn_config_grow(void *list, unsigned *count, unsigned most, size_t size);

#define SWN_FIELD_AT(type, member) .offset = offsetof(struct type, member)

/* Triton's ModelEnsembling, with conditions; into a struct swn_ensemble. model_config_ensemble.c */
extern const struct swn_config_field swn_ensemble_fields[];

#endif
