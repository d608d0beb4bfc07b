/* skeleton/abi/serving.h - what libswapnet.so offers to a process that serves models (swapnet-engine), beside what it
 * does by itself.
 *
 * swapnet-engine finds the table by dlsym; without it, or while the library does nothing, models run all the same. All
 * of it is about speed and memory: no call changes a bit.
 */
#ifndef SWN_SKELETON_ABI_SERVING_H
#define SWN_SKELETON_ABI_SERVING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SWN_SERVING_ABI 8u
#define SWN_SERVING_CONTENT 2 /* numbers that tell a weight's bytes */
#define SWN_SERVING_SYMBOL "swn_serving_services"

#define SWN_ANNOUNCED_MOST 16384 /* reads of weights that an announcement foretells; more are not looked at */

/* A tensor that steps of a model read: the address of its storage, and the storage's bytes. own, where it is announced:
 * of the model that reads it then, a weight that it does not have from another model; 0: there is none. */
struct swn_serving_weight {
    uintptr_t address;
    size_t bytes;
    uintptr_t own;
};

struct swn_serving_services {
    unsigned abi; /* SWN_SERVING_ABI */
    /* Bytes of these weights that are only on the disk now. */
    uint64_t (*missing)(const struct swn_serving_weight *weights, size_t n);
    /* Since the process began: bytes that were read from the disk, and the time for which operators waited for them. */
    void (*progress)(uint64_t *read_bytes, uint64_t *wait_ns);
    /* Bytes of all tensors that are alive, weights among them, wherever their bytes are; *peak: the most since the last
     * call. 0: nothing is counted. */
    uint64_t (*tensors)(uint64_t *peak);
    /* Gives the process another budget and waits up to wait_ms until what it counts is within. 0; -EAGAIN: that goes
     * on; -ERANGE: nothing has changed, and *least_bytes is the least that is possible; -ESRCH: there is no tensor yet,
     * or the library does nothing. */
    int (*set_budget)(uint64_t bytes, unsigned wait_ms, uint64_t *least_bytes);
    /* The weights that operators will read next, in this order, in place of what was announced before. A weight is
     * there once for each time that it will be read. Weights are read ahead in this order, and those leave memory first
     * that it needs last, or not at all. Wrong orders cost time and no more. n = 0: nothing is known, and the order
     * that the library has learned itself counts. own: the address of a weight of the model at work that it does not
     * have from another model; 0: there is none. Any thread; the operators are those of one thread. */
    void (*announce)(const struct swn_serving_weight *weights, size_t n, uintptr_t own);
    /* The process's budget; 0: there is none. */
    uint64_t (*budget)(void);
    /* What the bytes of a weight may be, without reading them: equal for weights with the same bytes, by the checksums
     * of the stores that they are registered from. 1; 0: it is not registered, or was written to, or its store is old.
     */
    int (*content)(uintptr_t address, size_t bytes, uint64_t out[SWN_SERVING_CONTENT]);
    /* 1: both are registered, were not written to, and have the same bytes. Reads them, past the page cache: whoever
     * makes a file can give it the checksums of another one. */
    int (*same)(uintptr_t a, uintptr_t b, size_t bytes);
};

extern const struct swn_serving_services swn_serving_services;

#ifdef __cplusplus
}
#endif
#endif
