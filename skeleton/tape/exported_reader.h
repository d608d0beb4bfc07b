/* skeleton/tape/exported_reader.h - what the files that read the texts of torch.export share. Not for users of
 * skeleton/tape/exported.h.
 *
 * Each function gives 0, or -EINVAL with the reason in the reader's `why`, or -ENOMEM. A pointer that is NULL stands
 * for such an error, with its reason set. Names of values are looked up in a scope, one per graph: the graph in a node
 * of `with torch.no_grad()` has its own names.
 */
#ifndef SWN_SKELETON_TAPE_EXPORTED_READER_H
#define SWN_SKELETON_TAPE_EXPORTED_READER_H

#include <jansson.h>

#include "skeleton/tape/exported.h"

struct swn_exported_chunk {
    struct swn_exported_chunk *next;
    max_align_t bytes[];
};

struct swn_exported_memory {
    struct swn_exported_chunk *chunks;
    json_t *roots[4]; /* the model, the weights, the constants, the form of the outputs */
};

struct swn_exported_reader {
    struct swn_exported *e;
    struct swn_exported_memory *memory;
    json_t *scope; /* the names of the graph that is read: numbers of values */
    int defines;   /* names are those of results */
    size_t node_room, value_room;
    const char *where; /* a node's name, for messages */
    char *why;
};

/* skeleton/tape/exported_reader.c. -EINVAL, with the text and the place as reason. */
int swn_exported_refuse(struct swn_exported_reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Zeroed memory that lives as long as the struct; NULL: there is none, or the count is too large. */
void *swn_exported_take(struct swn_exported_reader *r, size_t count, size_t size);
/* Room for one more in an array. */
int swn_exported_grow(void **array, size_t count, size_t *room, size_t size);
/* The member of an object, of a type. */
json_t *swn_exported_member(struct swn_exported_reader *r, const json_t *object, const char *key, json_type type);
const char *swn_exported_text_of(struct swn_exported_reader *r, const json_t *object, const char *key);
/* The one member of a union. */
json_t *swn_exported_only_member(struct swn_exported_reader *r, json_t *object, const char **key);
/* The number of a value that the scope does not have yet. */
int swn_exported_new_value(struct swn_exported_reader *r, const char *name, int is_tensor, int64_t *number);

/* skeleton/tape/exported_argument.c. `named`: each is an object with a name and the argument. */
int swn_exported_read_argument(struct swn_exported_reader *r, json_t *j, struct swn_exported_argument *a);
int swn_exported_read_arguments(struct swn_exported_reader *r, const json_t *list, int named,
                                struct swn_exported_argument **out, size_t *count);

/* skeleton/tape/exported_graph.c. `depth`: how many graphs this one lies in. */
int swn_exported_read_nodes(struct swn_exported_reader *r, json_t *graph, int depth);

/* skeleton/tape/exported_meta.c. `fixed`: strides and the offset are read as well, and no size may be symbolic. */
int swn_exported_read_meta(struct swn_exported_reader *r, json_t *j, int fixed, struct swn_exported_meta *m);

/* skeleton/tape/exported_weights.c */
int swn_exported_read_weights(struct swn_exported_reader *r, json_t *root, struct swn_exported_weights *w);

/* skeleton/tape/exported_signature.c */
int swn_exported_read_inputs(struct swn_exported_reader *r, json_t *graph, json_t *signature);
int swn_exported_read_outputs(struct swn_exported_reader *r, json_t *graph, json_t *signature, json_t *module);
/* Names of arguments of forward(), where the graph's own are others. */
void swn_exported_name_inputs(struct swn_exported_reader *r, json_t *module);

/* skeleton/tape/exported_guards.c. The ranges come first: a guard may narrow one. */
int swn_exported_read_ranges(struct swn_exported_reader *r, json_t *root);
int swn_exported_read_guards(struct swn_exported_reader *r, json_t *root);

#endif
