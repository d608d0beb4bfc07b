/* skeleton/tape/join.h - whether a layer group runs once for several requests whose tensors are joined along their
 * first dimension, or for one request after the other.
 *
 * Pure: what is known goes in, the number of requests to join comes out. Requests that are joined have equal shapes.
 * Only 2, 4, 8, 16 or 32 requests are joined, so that there is little to find out: seven requests run as four, two and
 * one.
 */
#ifndef SWN_SKELETON_TAPE_JOIN_H
#define SWN_SKELETON_TAPE_JOIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SWN_JOIN_SIZES 5
/* Requests of which a joined run is expected to take longer run one after the other: they can leave in between. */
#define SWN_JOIN_NS_MOST UINT64_C(1000000000)
/* Runs in a row that fail where each request alone may not: then it is no longer tried. */
#define SWN_JOIN_FAILURES 3

enum swn_join_bits {
    SWN_JOIN_EXACT, /* an answer has the bits that its request has alone */
    SWN_JOIN_BATCH, /* it may differ as a batch may */
};

enum swn_join_verdict {
    SWN_JOIN_UNTRIED,
    SWN_JOIN_EQUAL,
    SWN_JOIN_DIFFERS,
    SWN_JOIN_CANNOT, /* the parts of requests cannot be told apart afterwards, or a rule speaks against it */
};

/* One number of requests. */
struct swn_join_case {
    enum swn_join_verdict verdict;
    uint64_t ns; /* what computing them at once takes; 0: not known */
    unsigned runs, failures;
};

/* A layer group, for requests of one shape. */
struct swn_join_group {
    uint64_t alone_ns; /* computing for one request; 0: not known */
    unsigned alone_runs;
    uint64_t peak_bytes; /* that one request's tensors have at once in it */
    struct swn_join_case of[SWN_JOIN_SIZES];
};

struct swn_join_limits {
    enum swn_join_bits bits;
    uint64_t batch_most; /* samples in one run, by the model's configuration */
    uint64_t samples;    /* of one request */
    uint64_t room_bytes; /* for tensors of joined requests; UINT64_MAX: no bound */
};

/* How many requests case i joins. */
uint32_t swn_join_size(unsigned i);

/* Whether that many may be joined, and are expected to take less time so. */
int swn_join_allows(const struct swn_join_group *group, unsigned i, const struct swn_join_limits *limits);

/* Whether a trial of that many may run: it takes the memory and time of a joined run at least. */
int swn_join_may_try(const struct swn_join_group *group, unsigned i, const struct swn_join_limits *limits);

/* Of `count` requests that wait, how many run at once: 1 or the largest number that is allowed. *which: its case. */
uint32_t swn_join_choose(const struct swn_join_group *group, const struct swn_join_limits *limits, uint32_t count,
                         unsigned *which);

/* What case i is expected to take: as measured, or a little less than one after the other, so that it is tried. */
uint64_t swn_join_expected_ns(const struct swn_join_group *group, unsigned i);

/* What is expected is what a run takes that others do not disturb: it becomes less at once, and more slowly. A number
 * of requests that took too long is tried again when many requests have run alone.
 *
 * A joined run took so long, or failed for another reason than memory. What the first run took says nothing: it
 * prepares kernels. */
void swn_join_ran(struct swn_join_case *c, uint64_t ns);
void swn_join_failed(struct swn_join_case *c);
/* The same of a request alone. */
void swn_join_ran_alone(struct swn_join_group *group, uint64_t ns);

#ifdef __cplusplus
}
#endif
#endif
