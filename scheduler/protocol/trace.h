/* scheduler/protocol/trace.h - a timeline of a run for Perfetto or chrome://tracing.
 *
 * The format is Chrome's JSON array, whose closing bracket is optional: every write(2) ends behind a complete event, so
 * the file loads even if the process dies. Rows: "compute" and "waiting", one each per program thread, and "disk",
 * where reads that overlap get rows of their own ("disk 2", ...). A server's requests have a row each.
 *
 * Thread-safe, bounded memory (about 100 KiB), not async-signal-safe. Times are nanoseconds of CLOCK_MONOTONIC. After a
 * write error the trace records nothing more; flush and close return the first error.
 */
#ifndef SWN_SCHEDULER_PROTOCOL_TRACE_H
#define SWN_SCHEDULER_PROTOCOL_TRACE_H

#include <stdint.h>

#define SWN_TRACE_NAME 48 /* bytes of a name, the final NUL included */

enum swn_track { SWN_TRACK_COMPUTE, SWN_TRACK_DISK, SWN_TRACK_STALL, SWN_TRACK_REQUEST };

struct swn_trace;

/* Creates or truncates `path`. 0 and *out, to be ended by swn_trace_close; or -errno. */
int swn_trace_open(struct swn_trace **out, const char *path);

/* Records [start_ns, end_ns) on a row; `name` is copied and cut after 47 bytes, bytes = 0 leaves the size out. `thread`
 * is the caller's own index of the program thread (0, 1, ...) for COMPUTE and STALL, whose spans must nest within one
 * thread. It is ignored for DISK, where spans may overlap: they are distributed over rows so that the spans of a row do
 * not overlap. For REQUEST it is the request's number, whose span may overlap any other. A NULL trace records nothing.
 * May write to the file when the buffer is full. */
void swn_trace_span(struct swn_trace *t, enum swn_track track, unsigned thread, const char *name, uint64_t start_ns,
                    uint64_t end_ns, uint64_t bytes);

/* Writes the buffered events. 0 or the first -errno. NULL: 0. */
int swn_trace_flush(struct swn_trace *t);

/* Flushes, completes the file, frees. 0 or the first -errno. NULL: 0. No other thread may use t any more. */
int swn_trace_close(struct swn_trace *t);

/* In a forked child: closes the descriptor and frees, writes nothing and takes no lock. NULL: nothing. */
void swn_trace_abandon(struct swn_trace *t);

#endif
