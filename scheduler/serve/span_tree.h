/* scheduler/serve/span_tree.h - the free spans of a range of addresses, so that the first one that is large enough is
 * found without a look at the others.
 *
 * A treap by address, in which each node knows the largest span of its subtree. Each step takes time that grows with
 * the logarithm of the number of spans, whatever their order: priorities are random numbers of the tree's own.
 */
#ifndef SWN_SCHEDULER_SERVE_SPAN_TREE_H
#define SWN_SCHEDULER_SERVE_SPAN_TREE_H

#include <stdint.h>

/* Part of the caller's span. offset and bytes are the caller's, and change only while the node is in no tree. */
struct swn_span_node {
    uint64_t offset, bytes;
    uint64_t most; /* bytes of the largest span in the subtree */
    uint64_t priority;
    struct swn_span_node *left, *right;
};

struct swn_span_tree {
    struct swn_span_node *root;
    uint64_t seed; /* any number to begin with */
};

/* Spans of one tree never overlap. */
void swn_span_tree_add(struct swn_span_tree *t, struct swn_span_node *n);
void swn_span_tree_remove(struct swn_span_tree *t, struct swn_span_node *n);
/* The span of the lowest address that has `bytes`; NULL: none has. */
struct swn_span_node *swn_span_tree_first(const struct swn_span_tree *t, uint64_t bytes);

#endif
