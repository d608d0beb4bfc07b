/* scheduler/protocol/verify_log.h - compares the results of two runs of a program, as SWAPNET_VERIFY recorded them.
 *
 * A run leaves a directory with a file per process. A file's name begins with its time of creation, so that sorted
 * names are in the order of their first results. A file is a head of SWN_RESULTS_HEAD bytes
 *
 *     swapnet-results 1 peak BYTES cut 0|1 budget BYTES pid PID name NAME
 *
 * (filled up with spaces, ended by a newline), then a line per result
 *
 *     THREAD HASH OPERATOR TYPE[SIZE,...]
 *
 * then zeros. THREAD is the number of the thread in its process, HASH 16 hexadecimal digits of the elements' bytes, or
 * SWN_RESULTS_UNSEEN for bytes that could not be looked at.
 *
 * Not thread-safe; for programs.
 */
#ifndef SWN_SCHEDULER_PROTOCOL_VERIFY_LOG_H
#define SWN_SCHEDULER_PROTOCOL_VERIFY_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "base/errmsg.h"

#define SWN_RESULTS_HEAD 256
#define SWN_RESULTS_MAGIC "swapnet-results 1"
#define SWN_RESULTS_UNSEEN "----------------"

/* The results of one thread of one process, in the thread's order. */
struct swn_result_log_stream {
    unsigned file, thread;
    uint64_t *keys; /* of each result: bytes, operator, type and shape in one number */
    size_t count, room;
};

struct swn_result_log {
    char **files; /* their paths, by when they began */
    size_t file_count;
    struct swn_result_log_stream *streams; /* by file, then thread */
    size_t stream_count;
    size_t total, unseen;  /* number of results; number of those whose bytes could not be read */
    uint64_t peak_bytes;   /* of tensors, in the process with the largest peak; 0: not known */
    uint64_t budget_bytes; /* at swapnet's start; 0: a run without swapnet */
    int cut;               /* a disk was full: some results are missing */
};

/* 0 and *out, to be freed; or -errno and why[]. -EINVAL: a file is no record. */
int swn_result_log_read(struct swn_result_log *out, const char *dir, char why[SWN_ERRMSG]);
void swn_result_log_free(struct swn_result_log *r);

enum swn_result_log_verdict {
    SWN_RESULTS_SAME,
    SWN_RESULTS_OTHER_ORDER, /* each result as often as in the other run, by other threads or at another time */
    SWN_RESULTS_DIFFERENT,
};

struct swn_result_log_difference {
    size_t missing; /* results of `a` that `b` lacks */
    size_t added;   /* results of `b` that `a` lacks */
    /* The first difference: streams of a and b, or -1 where there is no partner, and the place in both. */
    long stream[2];
    size_t place;
    size_t streams_left; /* of `a`, without an equal one in `b` */
};

/* A thread of one run matches a thread of the other run that computed the same, whatever their numbers. *d is set
 * unless the result is SAME. -ENOMEM. */
int swn_result_log_compare(const struct swn_result_log *a, const struct swn_result_log *b,
                           struct swn_result_log_difference *d);

/* "aten::addmm float[1,1000]" for a result; "nothing" behind the last. Returns buf. */
char *swn_result_log_describe(const struct swn_result_log *r, long stream, size_t place, char *buf, size_t size);

#endif
