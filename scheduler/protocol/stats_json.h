/* scheduler/protocol/stats_json.h - struct swn_stats as a JSON document, schema 1: integers in bytes, keys are the
 * field names. */
#ifndef SWN_SCHEDULER_PROTOCOL_STATS_JSON_H
#define SWN_SCHEDULER_PROTOCOL_STATS_JSON_H

#include "scheduler/protocol/stats.h"

/* One line without its newline; the caller frees it. Unknown strings are null; in strings that are not UTF-8 every byte
 * that is not ASCII becomes '?'. NULL: out of memory. Thread-safe. */
char *swn_stats_to_json(const struct swn_stats *stats);

/* The same, indented, as the new content of `path`: written beside it and renamed, so that a reader sees the old or the
 * new document. A path that exists and is no regular file (/dev/stderr, a fifo) is written to directly. 0 or -errno. */
int swn_stats_write_file(const struct swn_stats *stats, const char *path);

#endif
