/* skeleton/device/deferred_close.h - closes memory that a device may still use: a thread of the library waits for the
 * device.
 *
 * The thread that drops the last reference may hold any lock, such as Python's, and the device may still have to run a
 * function of the program (cudaLaunchHostFunc) that waits for that lock. So that thread waits for a moment only.
 *
 * Thread-safe.
 */
#ifndef SWN_SKELETON_DEVICE_DEFERRED_CLOSE_H
#define SWN_SKELETON_DEVICE_DEFERRED_CLOSE_H

struct swn_devclosing {
    /* Called by the library's thread, or with `here` by the thread that drops the last reference: waits for the device,
     * and closes the memory. 0; -EAGAIN: a capture is under way, it has to be tried again; another error: the memory
     * may never be used again. */
    int (*close)(struct swn_devclosing *c, int here);
    /* Called by the library's thread if swn_devclose did not wait; afterwards c is not used any more. */
    void (*later)(struct swn_devclosing *c, int err);
    struct swn_devclosing *next; /* ours */
    struct swn_devwaiter *waiter;
};

/* c is kept until it is closed. 0: it is, and *err is what c->close returned; 1: c->later will be called. Where no
 * thread can be started c is closed at once, or, during a capture, when there is a thread. */
int swn_devclose(struct swn_devclosing *c, int *err);
void swn_devclose_fork_child(void);

#endif
