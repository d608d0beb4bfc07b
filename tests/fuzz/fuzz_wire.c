/* fuzz_wire - any bytes as a stream of messages to swapnetd: the framing, cut at any places, and the decoder. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/fuzz/memory_io.h"
#include "scheduler/protocol/wire.h"

#define MOST_PIECES 32

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void promise(int kept)
{
    if (!kept)
        abort();
}

static void check_text(const char *text, size_t size)
{
    promise(strnlen(text, size) < size);
    for (; *text; text++)
        promise((unsigned char)*text >= 0x20 && *text != 0x7f);
}

static void check_message(const struct swn_wire *m)
{
    promise(m->op < SWN_WIRE_OPS);
    promise(m->budget <= SWN_WIRE_BYTES_MOST && m->lease <= SWN_WIRE_BYTES_MOST && m->demand <= SWN_WIRE_BYTES_MOST &&
            m->minimum <= SWN_WIRE_BYTES_MOST && m->total <= SWN_WIRE_BYTES_MOST);
    promise(isfinite(m->latency) && m->latency >= 0);
    promise(!(m->has & SWN_HAS_URGENCY) ||
            (m->urgency >= SWN_WIRE_URGENCY_LEAST && m->urgency <= SWN_WIRE_URGENCY_MOST));
    promise(m->points <= SWN_WIRE_POINTS);
    for (size_t i = 0; i < m->points; i++)
        promise(isfinite(m->curve[i].latency_s) && (!i || m->curve[i].budget_bytes > m->curve[i - 1].budget_bytes));
    check_text(m->name, sizeof m->name);
    check_text(m->text, sizeof m->text);
}

/* What was understood can be said again, and means the same. */
static void check_line(const char *line, size_t len)
{
    static struct swn_wire m, again;
    static char out[SWN_WIRE_MOST];
    char why[SWN_WIRE_TEXT] = "";
    if (swn_wire_decode(&m, line, len, why)) {
        promise(why[0] && strlen(why) < sizeof why);
        return;
    }
    check_message(&m);
    int n = swn_wire_encode(&m, out, sizeof out);
    promise(n > 0 && (size_t)n == strlen(out));
    promise(!swn_wire_decode(&again, out, (size_t)n, why));
    promise(again.op == m.op && again.has == m.has);
    promise(!memcmp((char *)&again + offsetof(struct swn_wire, version),
                    (char *)&m + offsetof(struct swn_wire, version), sizeof m - offsetof(struct swn_wire, version)));
}

/* In pieces of `step` bytes, but no more than a few: sending takes most of the time. */
static void check_stream(const uint8_t *data, size_t size, size_t step)
{
    static int ends[2] = {-1, -1};
    struct swn_lines lines;
    size_t len, lines_seen = 0, newlines = 0;
    char *line;
    if (ends[0] < 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        abort();
    swn_lines_init(&lines);
    step = step < size / MOST_PIECES ? size / MOST_PIECES : step;
    for (size_t at = 0; at < size; at += step) {
        size_t n = size - at < step ? size - at : step;
        promise(send(ends[0], data + at, n, 0) == (ssize_t)n);
        int rc;
        while ((rc = swn_lines_fill(&lines, ends[1], 1)) > 0)
            while ((line = swn_lines_next(&lines, &len))) {
                promise(line[len] == '\0');
                check_line(line, len);
                lines_seen++;
            }
        promise(rc == -EAGAIN);
    }
    for (size_t i = 0; i < size; i++)
        newlines += data[i] == '\n';
    promise(lines_seen == newlines);
    promise((swn_lines_deadline(&lines) >= 0) == (size && data[size - 1] != '\n'));
    swn_lines_free(&lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    if (data[0] % 8) /* the decoder is what most can go wrong in, and the socket what takes most time */
        check_line((const char *)data + 1, size - 1);
    else
        check_stream(data + 1, size - 1, (size_t)data[0] * 16 + 1);
    return 0;
}
