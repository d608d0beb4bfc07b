/* profiles/disk_speed.h - how fast a disk is, as its reads come in.
 *
 * A disk serves several reads at once, so the time of one read says little. Batches of reads are measured instead, each
 * from when it was begun, or the batch before was done, to when its last read was done. A batch that was begun when
 * nothing was under way waits for the disk's answer, one that others are queued before does not. The two are told
 * apart, as plans differ in how many of each they have (struct swn_disk_model).
 *
 * Older reads fade. Constant memory, no system calls; not thread-safe. Nanoseconds.
 */
#ifndef SWN_PROFILES_DISK_SPEED_H
#define SWN_PROFILES_DISK_SPEED_H

#include "profiles/least_squares.h"

struct swn_disk_model {
    double bytes_per_ns;
    double read_ns; /* what each read costs beyond its bytes, whatever else is under way */
    double wait_ns; /* what a read takes longer when no other is under way, as it waited for room in the ring: until its
                     * bytes begin to come; 0 where read_ns has it */
    double lend_ns; /* what the program itself spends on each read, to be lent its bytes and to return them */
};

/* What one direct read costs beyond its bytes where it was not measured; NVMe and virtio disks take 50 to 200 us. */
#define SWN_DISK_READ_NS 100e3

/* All zero to begin with. */
struct swn_disk_speed {
    struct swn_online queued; /* of a read, by its bytes: the means of batches */
    struct swn_online alone;  /* of a batch, by its bytes */
    double alone_reads;       /* in all of the latter, faded as they are */
    double done_ns;           /* when the last read was done */
    unsigned stalls;          /* in a row */
    struct {
        double bytes, ns;
        unsigned reads;
        int alone;
    } batch; /* that is not complete */
};

/* Reads of a batch. */
#define SWN_DISK_SPEED_BATCH 4

/* A read of `bytes` was asked for at begun_ns and done at done_ns. Called in the order in which reads are done. */
void swn_disk_speed_add(struct swn_disk_speed *p, double bytes, double begun_ns, double done_ns);
/* A read was done at done_ns that says nothing of the disk's usual speed. */
void swn_disk_speed_skip(struct swn_disk_speed *p, double done_ns);

/* How fast it is, what a read costs, and how long its answer takes. */
enum { SWN_DISK_SPEED_SPEED = 1, SWN_DISK_SPEED_READ = 2, SWN_DISK_SPEED_WAIT = 4 };

/* Which of these it knows. 0: none, and *out stays as it was. Else what is not known is what disks usually have; but
 * without SWN_DISK_SPEED_READ the speed has in it what reads cost. */
unsigned swn_disk_speed_get(const struct swn_disk_speed *p, struct swn_disk_model *out);

#endif
