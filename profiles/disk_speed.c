/* profiles/disk_speed.c - see disk_speed.h. */
#include "profiles/disk_speed.h"

#define READ_LEAST_NS 20e3
#define WAIT_MOST_NS 20e6
/* With fewer batches, after fading, the speed is unknown. */
#define LEAST 8
/* Reads of a model may all have nearly one size; then a line through them says little. So a fit starts from this many
 * batches of zero bytes at the usual cost of a read. */
#define USUAL 16
/* A slope this many times off the mean is not used. */
#define OTHER_SLOPE 4
/* A read that takes this many times the usual time does not measure the disk: the process, or the machine, was stopped.
 * Only if more than STALLS reads in a row are that slow does the disk count as slow. */
#define STALL 10
#define STALL_NS 20e6
#define STALLS 4
#define SOME 3

/* The mean time per byte, when there are enough samples. */
static double mean_of(const struct swn_online *o)
{
    return o->samples >= SOME && o->x > 0 ? o->y / o->x : 0;
}

static int is_known(const struct swn_online *o)
{
    return o->n >= LEAST && mean_of(o) > 0;
}

/* Whether the time is so long that the process or the machine must have been stopped. */
static int is_stall(double bytes, double ns, double usual)
{
    return ns > STALL * usual * bytes + STALL_NS;
}

static int is_stalled(struct swn_disk_speed *p, double bytes, double ns)
{
    double usual = mean_of(&p->queued) > 0 ? mean_of(&p->queued) : mean_of(&p->alone);
    int stalled = usual > 0 && is_stall(bytes, ns, usual);
    p->stalls = stalled ? p->stalls + 1 : 0;
    return stalled && p->stalls <= STALLS;
}

/* The first samples may themselves come from a stopped process: then they are forgotten. */
static void learn(struct swn_online *o, double bytes, double ns)
{
    if (o->samples && o->samples < 2 * LEAST && is_stall(o->x / o->n, o->y / o->n, ns / bytes))
        *o = (struct swn_online){0};
    swn_online_add(o, bytes, ns);
}

static void end_row(struct swn_disk_speed *p)
{
    double reads = p->batch.reads, bytes = p->batch.bytes, ns = p->batch.ns;
    if (p->batch.alone) {
        double before = p->alone.n > 0 ? p->alone_reads / p->alone.n : 0;
        learn(&p->alone, bytes, ns);
        p->alone_reads = before * (p->alone.n - 1) + reads;
        swn_online_fade(&p->queued); /* where every batch waits for the disk's answer, that is the disk's speed */
    } else if (p->batch.reads == SWN_DISK_SPEED_BATCH) {
        learn(&p->queued, bytes / reads, ns / reads);
    }
    p->batch.reads = 0;
}

void swn_disk_speed_skip(struct swn_disk_speed *p, double done_ns)
{
    p->batch.reads = 0;
    p->done_ns = done_ns > p->done_ns ? done_ns : p->done_ns;
}

void swn_disk_speed_add(struct swn_disk_speed *p, double bytes, double begun_ns, double done_ns)
{
    int alone = begun_ns >= p->done_ns;
    double ns = done_ns - (alone ? begun_ns : p->done_ns);
    if (p->batch.reads && (alone || p->batch.reads == SWN_DISK_SPEED_BATCH))
        end_row(p);
    if (is_stalled(p, bytes, ns)) {
        swn_disk_speed_skip(p, done_ns);
        return;
    }
    if (!p->batch.reads) {
        p->batch.bytes = p->batch.ns = 0;
        p->batch.alone = alone;
    }
    p->batch.bytes += bytes;
    p->batch.ns += ns > 0 ? ns : 0;
    p->batch.reads++;
    p->done_ns = done_ns > p->done_ns ? done_ns : p->done_ns;
}

/* Fits y = c[0] x + c[1]. 0, or 1 when the samples do not determine the line. */
static int line(const struct swn_online *o, double c[2])
{
    double mean = mean_of(o);
    return swn_online_get(o, c) || !(c[0] > 0) || c[0] > OTHER_SLOPE * mean || c[0] < mean / OTHER_SLOPE;
}

static unsigned from_queued(const struct swn_online *o, struct swn_disk_model *out)
{
    struct swn_online with = *o;
    double c[2];
    with.n += USUAL;
    with.y += USUAL * SWN_DISK_READ_NS;
    if (line(&with, c))
        return SWN_DISK_SPEED_SPEED;
    out->bytes_per_ns = 1 / c[0];
    out->read_ns = c[1] < READ_LEAST_NS ? READ_LEAST_NS : c[1];
    return SWN_DISK_SPEED_SPEED | SWN_DISK_SPEED_READ;
}

/* The part of a batch's time that is neither for its bytes nor for its reads. */
static double wait_of(double row_ns, double reads, double read_ns)
{
    double wait = row_ns - reads * read_ns;
    return wait < 0 ? 0 : wait > WAIT_MOST_NS ? WAIT_MOST_NS : wait;
}

unsigned swn_disk_speed_get(const struct swn_disk_speed *p, struct swn_disk_model *out)
{
    const struct swn_online *queued = is_known(&p->queued) ? &p->queued : NULL;
    const struct swn_online *alone = is_known(&p->alone) ? &p->alone : NULL;
    double reads = alone ? p->alone_reads / alone->n : 0, c[2];
    if (!queued && !alone)
        return 0;
    *out = (struct swn_disk_model){.bytes_per_ns = 1 / mean_of(queued ? queued : alone), .read_ns = SWN_DISK_READ_NS};
    if (!queued && line(alone, c))
        return SWN_DISK_SPEED_SPEED;
    unsigned known = queued ? from_queued(queued, out) : SWN_DISK_SPEED_SPEED;
    if (!queued) {
        out->bytes_per_ns = 1 / c[0];
        out->wait_ns = wait_of(c[1], reads, out->read_ns);
    } else if (alone && known & SWN_DISK_SPEED_READ) {
        out->wait_ns = wait_of(alone->y / alone->n - alone->x / alone->n / out->bytes_per_ns, reads, out->read_ns);
    }
    return known | (!queued || (alone && known & SWN_DISK_SPEED_READ) ? SWN_DISK_SPEED_WAIT : 0);
}
