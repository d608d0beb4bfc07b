/* scheduler/protocol/wire.h - the messages between swapnetd, the processes it serves, and swapnetctl: one JSON object
 * per line.
 *
 * Lines have at most SWN_WIRE_MOST bytes with their newline, nest at most SWN_WIRE_BRACKETS brackets, and are complete
 * within SWN_WIRE_FRAME_MS of their first byte. Fields that a reader does not know are ignored, and so are messages,
 * but for an error in return; a known field of the wrong type or out of range makes the message invalid as a whole.
 * SWN_WIRE_VERSION is named in "hello" and "welcome", and grows when the meaning of a field changes.
 *
 *   process to daemon                                                  daemon to process
 *     hello   version name lease minimum demand weights latency          welcome version total
 *             urgency cap curve resident                                 lease   seq budget
 *     update  any of the same                                            error   text
 *     ack     seq budget resident   now within that lease
 *     refuse  seq minimum lease     cannot; holds `lease`
 *     bye                           the process gives all of it back
 *   swapnetctl to daemon, or to a process (status, set)
 *     status / list / version, set (pid or name) budget urgency, total budget, drain
 * A budget of 0 in "set" and "total": none is set any more.
 *
 * Bytes are integers up to SWN_WIRE_BYTES_MOST, latency is in seconds, a curve is a flat array of bytes, seconds,
 * bytes, seconds, ... with ascending bytes and at most SWN_WIRE_POINTS points.
 */
#ifndef SWN_SCHEDULER_PROTOCOL_WIRE_H
#define SWN_SCHEDULER_PROTOCOL_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "base/size.h"
#include "scheduler/planner/divide.h"

#define SWN_WIRE_VERSION 1
#define SWN_WIRE_MOST 65536
#define SWN_WIRE_FRAME_MS 1000
#define SWN_WIRE_BRACKETS 64
#define SWN_WIRE_BYTES_MOST SWN_MEMORY_MOST_BYTES
#define SWN_WIRE_POINTS 64
#define SWN_WIRE_NAME 64
#define SWN_WIRE_TEXT 256
#define SWN_WIRE_URGENCY_LEAST 0.001
#define SWN_WIRE_URGENCY_MOST 1000.0

enum swn_wire_op {
    SWN_WIRE_UNKNOWN = 0, /* a well-formed message of some other version */
    SWN_WIRE_HELLO,
    SWN_WIRE_UPDATE,
    SWN_WIRE_ACK,
    SWN_WIRE_REFUSE,
    SWN_WIRE_BYE,
    SWN_WIRE_WELCOME,
    SWN_WIRE_LEASE,
    SWN_WIRE_ERROR,
    SWN_WIRE_STATUS,
    SWN_WIRE_LIST,
    SWN_WIRE_ASK_VERSION,
    SWN_WIRE_SET,
    SWN_WIRE_TOTAL,
    SWN_WIRE_DRAIN,
    SWN_WIRE_OPS,
};

/* Bits of swn_wire.has. */
enum swn_wire_field {
    SWN_HAS_VERSION = 1 << 0,
    SWN_HAS_PID = 1 << 1,
    SWN_HAS_NAME = 1 << 2,
    SWN_HAS_SEQ = 1 << 3,
    SWN_HAS_BUDGET = 1 << 4,
    SWN_HAS_LEASE = 1 << 5,
    SWN_HAS_MINIMUM = 1 << 6,
    SWN_HAS_DEMAND = 1 << 7,
    SWN_HAS_WEIGHTS = 1 << 8,
    SWN_HAS_RESIDENT = 1 << 9,
    SWN_HAS_CAP = 1 << 10,
    SWN_HAS_TOTAL = 1 << 11,
    SWN_HAS_LATENCY = 1 << 12,
    SWN_HAS_URGENCY = 1 << 13,
    SWN_HAS_CURVE = 1 << 14,
    SWN_HAS_TEXT = 1 << 15,
};

struct swn_wire {
    enum swn_wire_op op;
    unsigned has; /* the fields that are set */
    uint64_t version, pid, seq;
    uint64_t budget, lease, minimum, demand, weights, resident, cap, total;
    double latency, urgency;
    char name[SWN_WIRE_NAME]; /* UTF-8, no control characters; longer ones are cut */
    char text[SWN_WIRE_TEXT];
    size_t points;
    struct swn_divide_point curve[SWN_WIRE_POINTS];
};

/* Decodes one line of `len` bytes without its newline. 0; -EINVAL with the reason in why[], for a person. No allocation
 * remains. */
int swn_wire_decode(struct swn_wire *out, const char *line, size_t len, char why[SWN_WIRE_TEXT]);
/* Encodes the fields in m->has as one line without its newline, NUL-terminated. Its length, or -ENOMEM, or -EMSGSIZE.
 */
int swn_wire_encode(const struct swn_wire *m, char *buf, size_t size);

/* Splits a stream that arrives in arbitrary pieces into lines. */
struct swn_lines {
    char *buf;
    size_t have, room, used; /* used: bytes of lines already handed out */
    int64_t since_ms;        /* when the incomplete line began, or -1 */
};

void swn_lines_init(struct swn_lines *l);
void swn_lines_free(struct swn_lines *l);
/* Reads from the socket without waiting, at most SWN_WIRE_MOST bytes. The kernel drops descriptors that come along. >
 * 0: bytes came; -EAGAIN, -EPIPE at the end of the stream, -EMSGSIZE for a line that is too long, -ENOMEM, -errno. */
int swn_lines_fill(struct swn_lines *l, int fd, int64_t now_ms);
/* The next whole line, NUL in place of its newline, valid until the next fill; NULL: none. */
char *swn_lines_next(struct swn_lines *l, size_t *len);
/* The deadline of the incomplete line, or -1. */
int64_t swn_lines_deadline(const struct swn_lines *l);

#endif
