/* blocks/checkpoint/pickle_globals.h - the meaning of the globals of a pickle. Only for blocks/checkpoint/pickle_vm.c
 * and blocks/checkpoint/pickle_globals.c. */
#ifndef SWN_BLOCKS_CHECKPOINT_PICKLE_GLOBALS_H
#define SWN_BLOCKS_CHECKPOINT_PICKLE_GLOBALS_H

#include "blocks/checkpoint/pickle.h"

struct swn_pickle_machine {
    struct swn_bump_alloc *bump;
    const struct swn_pickle_opts *opts;
    const char *text;
    size_t len, at, op_at; /* at: next byte; op_at: the opcode that runs, for messages */
    struct swn_pickle_value **stack, **memo;
    size_t depth, stack_room, memo_count, memo_room;
    size_t *marks; /* depths */
    size_t mark_count, mark_room;
    size_t state_values; /* looked through in states of tensors */
    char *why;
};

/* -EINVAL with "NAME at byte N: ..." as text. */
int swn_pickle_fail(struct swn_pickle_machine *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
int swn_pickle_make(struct swn_pickle_machine *m, enum swn_pickle_kind kind, struct swn_pickle_value **out);

/* GLOBAL: the value of `module` `name`, or a refusal that names it. */
int swn_pickle_global(struct swn_pickle_machine *m, const char *module, size_t module_len, const char *name,
                      size_t name_len, struct swn_pickle_value **out);
/* REDUCE: the result of function(*args). */
int swn_pickle_reduce(struct swn_pickle_machine *m, struct swn_pickle_value *function, struct swn_pickle_value *args,
                      struct swn_pickle_value **out);
/* NEWOBJ: the result of class.__new__(class, *args). */
int swn_pickle_new(struct swn_pickle_machine *m, struct swn_pickle_value *class, struct swn_pickle_value *args,
                   struct swn_pickle_value **out);
/* BUILD: gives an object its state. */
int swn_pickle_build(struct swn_pickle_machine *m, struct swn_pickle_value *object, struct swn_pickle_value *state);
/* BINPERSID: the storage that a persistent id names. */
int swn_pickle_persistent(struct swn_pickle_machine *m, struct swn_pickle_value *id, struct swn_pickle_value **out);

#endif
