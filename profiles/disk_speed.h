/* profiles/disk_speed.h - the speed of a disk, learned from its reads.
 *
 * A disk serves several reads at once, so the time of one read says little. Batches of reads are measured instead. The
 * time of a batch runs from its begin, or the end of the batch before, to the end of its last read. A batch that begins
 * while no read is under way waits for the disk's answer; a batch behind other reads does not. The two kinds are
 * measured separately, as plans differ in how many of each they have (struct swn_disk_model).
 *
 * Older reads fade. Constant memory, no system calls; not thread-safe. Nanoseconds.
 */
#ifndef SWN_PROFILES_DISK_SPEED_H
#define SWN_PROFILES_DISK_SPEED_H

#include "profiles/least_squares.h"

struct swn_disk_model {
    double bytes_per_ns;
    double read_ns; /* the cost of each read beyond its bytes, whatever else is under way */
    double wait_ns; /* how much longer a read takes that had to wait for room in the ring, so that no other read is
                       under way: until its bytes begin to come; 0 where read_ns includes it */
    double lend_ns; /* the program's own time for each read, to borrow its bytes and return them */
};

/* The cost of one direct read beyond its bytes, when it was not measured; NVMe and virtio disks take 50 to 200 us. */
#define SWN_DISK_READ_NS 100e3

/* Zero-initialised. */
struct swn_disk_speed {
    struct swn_online queued; /* time of a read by its bytes: the means of batches behind other reads */
    struct swn_online alone;  /* time of a batch by its bytes, of batches that began alone */
    double alone_reads;       /* number of reads in the latter, faded like them */
    double done_ns;           /* when the last read ended */
    unsigned stalls;          /* in a row */
    struct {
        double bytes, ns;
        unsigned reads;
        int alone;
    } batch; /* the incomplete batch */
};

/* Reads of a batch. */
#define SWN_DISK_SPEED_BATCH 4

/* A read of `bytes` was requested at begun_ns and ended at done_ns. To be called in the order in which reads end. */
void swn_disk_speed_add(struct swn_disk_speed *p, double bytes, double begun_ns, double done_ns);
/* A read ended at done_ns that says nothing about the disk's usual speed. */
void swn_disk_speed_skip(struct swn_disk_speed *p, double done_ns);

/* The speed, the cost of a read, and the wait for the disk's answer. */
enum { SWN_DISK_SPEED_SPEED = 1, SWN_DISK_SPEED_READ = 2, SWN_DISK_SPEED_WAIT = 4 };

/* Which of these are known. 0: none, and *out is unchanged. Otherwise the unknown ones get the usual values of disks;
 * but without SWN_DISK_SPEED_READ the speed includes the cost of reads. */
unsigned swn_disk_speed_get(const struct swn_disk_speed *p, struct swn_disk_model *out);

#endif
