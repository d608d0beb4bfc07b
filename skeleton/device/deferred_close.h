/* skeleton/device/deferred_close.h - memory that a device is to let go of, for which the device has to be waited for:
 * by a thread of ours.
 *
 * Whoever lets go last may be in the middle of anything: what the device has still to do may be a function of the
 * program's (cudaLaunchHostFunc) that waits for a lock he holds, as Python's. So he waits for a moment only.
 *
 * Thread-safe.
 */
#ifndef SWN_SKELETON_DEVICE_DEFERRED_CLOSE_H
#define SWN_SKELETON_DEVICE_DEFERRED_CLOSE_H

struct swn_devclosing {
    /* By that thread, or `here`, by who lets go: waits for the device, and closes it. 0; -EAGAIN: something is being
     * captured, it has to be tried again; or an error, and nobody ever may have that memory. */
    int (*close)(struct swn_devclosing *c, int here);
    /* By that thread, if swn_devclose did not wait for it; after which it is nobody's. */
    void (*later)(struct swn_devclosing *c, int err);
    struct swn_devclosing *next; /* ours */
    struct swn_devwaiter *waiter;
};

/* c is kept until it is closed. 0: it is, and *err is what c->close returned; 1: c->later will be called. Where no
 * thread can be had it is closed here and now, or, as something is being captured, when there is one. */
int swn_devclose(struct swn_devclosing *c, int *err);
void swn_devclose_fork_child(void);

#endif
