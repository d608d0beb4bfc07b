/* scheduler/serve/span_tree.c - see span_tree.h. */
#include "scheduler/serve/span_tree.h"

#include <stddef.h>

/* The next of a sequence of random numbers (splitmix64). */
static uint64_t next_priority(struct swn_span_tree *t)
{
    uint64_t z = t->seed += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void measure(struct swn_span_node *n)
{
    n->most = n->bytes;
    if (n->left && n->left->most > n->most)
        n->most = n->left->most;
    if (n->right && n->right->most > n->most)
        n->most = n->right->most;
}

/* Those of lower addresses than `offset`, and the others. */
static void split(struct swn_span_node *n, uint64_t offset, struct swn_span_node **lower, struct swn_span_node **upper)
{
    if (!n) {
        *lower = *upper = NULL;
        return;
    }
    if (n->offset < offset) {
        split(n->right, offset, &n->right, upper);
        *lower = n;
    } else {
        split(n->left, offset, lower, &n->left);
        *upper = n;
    }
    measure(n);
}

/* All of `lower` have lower addresses. */
static struct swn_span_node *merge(struct swn_span_node *lower, struct swn_span_node *upper)
{
    struct swn_span_node *top;

    if (!lower || !upper)
        return lower ? lower : upper;
    if (lower->priority > upper->priority) {
        lower->right = merge(lower->right, upper);
        top = lower;
    } else {
        upper->left = merge(lower, upper->left);
        top = upper;
    }
    measure(top);
    return top;
}

static struct swn_span_node *added(struct swn_span_node *at, struct swn_span_node *n)
{
    if (!at || n->priority > at->priority) {
        split(at, n->offset, &n->left, &n->right);
        at = n;
    } else if (n->offset < at->offset) {
        at->left = added(at->left, n);
    } else {
        at->right = added(at->right, n);
    }
    measure(at);
    return at;
}

static struct swn_span_node *removed(struct swn_span_node *at, const struct swn_span_node *n)
{
    if (at == n)
        return merge(at->left, at->right);
    if (n->offset < at->offset)
        at->left = removed(at->left, n);
    else
        at->right = removed(at->right, n);
    measure(at);
    return at;
}

void swn_span_tree_add(struct swn_span_tree *t, struct swn_span_node *n)
{
    n->priority = next_priority(t);
    t->root = added(t->root, n);
}

void swn_span_tree_remove(struct swn_span_tree *t, struct swn_span_node *n)
{
    t->root = removed(t->root, n);
}

struct swn_span_node *swn_span_tree_first(const struct swn_span_tree *t, uint64_t bytes)
{
    struct swn_span_node *n = t->root;

    if (!n || n->most < bytes)
        return NULL;
    for (;;) { /* n's subtree has one */
        if (n->left && n->left->most >= bytes)
            n = n->left;
        else if (n->bytes >= bytes)
            return n;
        else
            n = n->right;
    }
}
