/* scheduler/oip/labels.h - names for the classes of a model's outputs: line i of an output's file is the label of class
 * i.
 *
 * Labels do not change once they are shared: each holder reads them without a lock, and the last to drop them frees
 * them. Files are hostile input: what they take in memory is bounded before any of it is taken.
 */
#ifndef SWN_SCHEDULER_OIP_LABELS_H
#define SWN_SCHEDULER_OIP_LABELS_H

#include <stddef.h>
#include <stdint.h>

#define SWN_LABELS_BYTES ((size_t)1 << 20) /* of all labels of a model, with 4 for each line */
#define SWN_LABEL_BYTES 1023               /* of one label */

struct swn_labels;

/* None yet, with one holder. NULL: no memory. */
struct swn_labels *swn_labels_new(void);
/* Those of the output of that name; the text is copied. A line may end with CR and LF. 0; -EFBIG: the model's labels,
 * or one of them, are larger than that; -EILSEQ: it is no UTF-8; -E2BIG: more outputs than a model has; -ENOMEM. Only
 * while there is one holder. */
int swn_labels_add(struct swn_labels *labels, const char *output, const char *text, size_t bytes);

/* Both take NULL, too: no labels. Thread-safe. */
struct swn_labels *swn_labels_hold(struct swn_labels *labels);
void swn_labels_drop(struct swn_labels *labels);

/* The label of a class of that output, without a terminator and *bytes long; NULL: it has none. */
const char *swn_labels_get(const struct swn_labels *labels, const char *output, uint64_t class, size_t *bytes);
/* An upper bound of the bytes that the labels of any `classes` different classes of that output have together. */
size_t swn_labels_room(const struct swn_labels *labels, const char *output, size_t classes);

#endif
