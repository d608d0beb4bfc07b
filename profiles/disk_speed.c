#include "profiles/disk_speed.h"

#define READ_LEAST_NS 20e3
#define WAIT_MOST_NS 20e6
/* What has faded to less than so many rows is no longer how the disk is. */
#define LEAST 8
/* Reads of a model may all be of nearly one size; then a line through them says little, and less than so many rows of
 * reads of no bytes that cost what such reads usually do. */
#define USUAL 16
/* And this one nothing: its slope is that far from the mean. */
#define OTHER_SLOPE 4
/* A read that takes so many times what it should is none that the disk was slow with: somebody has stopped the process,
 * or the machine. Unless it is so for more than so many reads. */
#define STALL 10
#define STALL_NS 20e6
#define STALLS 4
#define SOME 3

/* Of those of which there are some. */
static double mean_of(const struct swn_online *o)
{
    return o->samples >= SOME && o->x > 0 ? o->y / o->x : 0;
}

static int is_known(const struct swn_online *o)
{
    return o->n >= LEAST && mean_of(o) > 0;
}

/* Whether the process, or the machine, has been stopped meanwhile. */
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

/* What little is known may have been learned in such a time itself: then that is forgotten. */
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
        swn_online_fade(&p->queued); /* where the disk has always to be waited for, that is how fast it is */
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

/* Of y = c[0] x + c[1]. 0, or it says nothing. */
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

/* What of a row's time is neither its bytes' nor its reads'. */
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
