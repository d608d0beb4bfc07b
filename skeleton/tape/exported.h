/* skeleton/tape/exported.h - what the JSON texts of a torch.export file (.pt2) say, checked.
 *
 * The texts are hostile: sizes, counts and depth are bounded, names are resolved, and a message says what is wrong and
 * where. What an operator is, and whether its arguments fit, the front end asks PyTorch.
 *
 * Constant once it is read; all pointers live as long as the struct.
 */
#ifndef SWN_SKELETON_TAPE_EXPORTED_H
#define SWN_SKELETON_TAPE_EXPORTED_H

#include <stddef.h>
#include <stdint.h>

/* Of the texts together: their bytes; their brackets and commas, each of which stands for up to 128 bytes of memory. */
#define SWN_EXPORTED_TEXT (64u << 20)
#define SWN_EXPORTED_PARTS (4u << 20)
#define SWN_EXPORTED_COUNT (1u << 20) /* nodes, values, weights, items of one list */
#define SWN_EXPORTED_RANK 16
#define SWN_EXPORTED_WHY 512

enum swn_exported_kind {
    SWN_EXPORTED_NONE,
    SWN_EXPORTED_BOOL,
    SWN_EXPORTED_INT,
    SWN_EXPORTED_FLOAT,
    SWN_EXPORTED_STRING,
    SWN_EXPORTED_DTYPE,         /* `number`: torch.export's own enumeration */
    SWN_EXPORTED_LAYOUT,        /* the same */
    SWN_EXPORTED_MEMORY_FORMAT, /* the same */
    SWN_EXPORTED_DEVICE,        /* `text` is the device's type */
    SWN_EXPORTED_VALUE,         /* `number` is a value's */
    SWN_EXPORTED_LIST,
};

struct swn_exported_argument {
    enum swn_exported_kind kind;
    const char *name; /* the schema's word for an argument of a node; NULL elsewhere */
    int64_t number;
    double real;
    const char *text;
    struct swn_exported_argument *items;
    size_t count;
};

/* A step of the graph. The nodes of `with torch.no_grad()` stand among the others: requests need no gradients. */
struct swn_exported_node {
    const char *target; /* "torch.ops.aten.linear.default", "_operator.mul" */
    const char *name;   /* for messages */
    struct swn_exported_argument *inputs, *outputs;
    size_t input_count, output_count;
};

/* A dimension is factor * symbol + size. */
struct swn_exported_dimension {
    int64_t size;
    int64_t factor; /* 0: always `size` */
    uint32_t symbol;
    int any; /* the file says something else, which is not checked */
};

struct swn_exported_meta {
    int64_t dtype, layout;
    uint32_t rank;
    struct swn_exported_dimension sizes[SWN_EXPORTED_RANK];
    int64_t strides[SWN_EXPORTED_RANK], offset; /* of weights */
    int requires_grad;                          /* operators choose their way by it */
};

struct swn_exported_symbol {
    const char *name;
    int64_t least, most; /* as a request is checked: a least of 2 or below is 0, as torch.export takes it */
};

enum swn_exported_source { SWN_EXPORTED_USER, SWN_EXPORTED_WEIGHT, SWN_EXPORTED_CONSTANT };

struct swn_exported_input {
    enum swn_exported_source source;
    const char *name;              /* the model's word: of an argument of forward(), or of a weight */
    int64_t value;                 /* -1: a number or nothing, which the export has fixed */
    struct swn_exported_meta meta; /* of tensors that the request brings */
};

struct swn_exported_output {
    char *name;
    struct swn_exported_argument what;
    struct swn_exported_meta meta; /* with rank and dtype where `what` is a tensor */
    int is_tensor;
};

struct swn_exported_weight {
    const char *name, *path; /* of the record, below data/weights/ or data/constants/ */
    struct swn_exported_meta meta;
};

struct swn_exported_weights {
    struct swn_exported_weight *all;
    size_t count;
};

struct swn_exported {
    struct swn_exported_node *nodes;
    size_t node_count;
    uint8_t *is_tensor; /* per value; the others are numbers */
    size_t value_count;
    struct swn_exported_input *inputs;
    size_t input_count;
    struct swn_exported_output *outputs;
    size_t output_count;
    struct swn_exported_symbol *symbols;
    size_t symbol_count;
    struct swn_exported_weights weights, constants;
    void *memory; /* what the pointers above lead to */
};

/* Reads models/NAME.json and the two configurations, data/weights/NAME_weights_config.json and
 * data/constants/NAME_constants_config.json, which need no terminator. 0; -EINVAL with the reason in `why`; -ENOMEM. */
int swn_exported_read(struct swn_exported **out, const char *model, size_t model_bytes, const char *weights,
                      size_t weights_bytes, const char *constants, size_t constants_bytes, char why[SWN_EXPORTED_WHY]);
void swn_exported_free(struct swn_exported *e); /* NULL: nothing */

#endif
