/* tests/fakes/cuda/standin_priv.h - what the stand-in's own files share. Everything in it is guarded by `standin_lock`.
 */
#ifndef SWN_TESTS_FAKES_CUDA_STANDIN_PRIV_H
#define SWN_TESTS_FAKES_CUDA_STANDIN_PRIV_H

#include <pthread.h>

#include "tests/fakes/cuda/standin.h"

#define EXPORT __attribute__((visibility("default")))
enum {
    OK = 0,
    INVALID = 1,
    NO_MEMORY = 2,
    NOT_READY = 600,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_IMPLICIT = 906,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713
};

struct memory {
    enum standin_kind kind;
    char *base, *device, *view; /* as the processor, a kernel's argument, and the kernel's thread have it */
    size_t bytes;
    unsigned attached;
    unsigned char *mapped; /* of reserved addresses: which granules have memory */
    int pages[2];          /* of registered memory: a pipe that holds some of its pages */
    struct memory *next;
};

extern pthread_mutex_t standin_lock;
extern pthread_cond_t standin_moved; /* something that was launched has ended */
extern struct memory *standin_memories;

__attribute__((noreturn)) void standin_broken(const char *rule, const void *at);
int standin_made_to_fail(void);
/* Takes the lock; gives it back, and returns err, which is the thread's last one then if there is one. */
void standin_begin(void);
int standin_end(int err);
struct memory *standin_find(const void *p, int by_device);
void standin_forget(struct memory *m);
/* call(arg), with the lock, when everything that was launched before it on that stream is done. */
void standin_enqueue(void *stream, void (*call)(void *arg), void *arg);
/* The same; nothing that comes after it on the stream is launched before standin_waits(arg) is 0. */
void standin_enqueue_waiter(void *stream, void (*call)(void *arg), void *arg);
int standin_waits(const void *waiter);
/* A kernel that reads `from` for a while, and leaves it at `to`. */
void standin_copy_back(void *stream, void *to, const void *from, size_t bytes);
/* Registered memory: takes hold of its pages, lets go of them, and ends the program where those behind [p, p + bytes)
 * are others by now. Nobody may be writing there. */
#define STANDIN_PINNED 16 /* pages of each registration, as many as a pipe holds unasked */
int standin_pin(struct memory *m);
void standin_unpin(struct memory *m);
void standin_check_pins(const struct memory *m, const char *p, size_t bytes);
int standin_is_captured(const void *stream);
/* Of a call that concerns all of the device: an error while any stream is being captured, and the end of that capture
 * if the thread's mode is not relaxed. */
int standin_refused(void);
/* Whether the thread's mode is not relaxed. */
int standin_strict(void);
/* Of a call that may wait for the device: whether something is being captured and the thread's mode is not relaxed.
 * That is the end of the capture. */
int standin_unsafe(void);
/* Whether the stream is the legacy one, which waits for the others, and one of them is being captured. */
int standin_legacy_captured(const void *stream);
/* Whether either is the legacy stream, and the other one is to wait for it. */
int standin_legacy(const void *a, const void *b);
/* Nothing is running, and the program knows. */
void standin_settle(void);
/* There is no room on the device for that many bytes. */
int standin_full(size_t bytes);
/* Whether the device has virtual memory management. */
int standin_virtual_memory(void);
extern unsigned standin_changed; /* what standin_changes says */
/* Device memory is made or goes. */
void standin_count(long long bytes);

#endif
