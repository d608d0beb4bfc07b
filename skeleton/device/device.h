/* skeleton/device/device.h - the engine's part of tensors that go to a device which shares the host's memory
 * (skeleton/device/unified.h).
 *
 * Thread-safe; no lock may be held. The thread's current device is the one that a call names, but for swn_device_close.
 */
#ifndef SWN_SKELETON_DEVICE_DEVICE_H
#define SWN_SKELETON_DEVICE_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "skeleton/abi/abi.h"
#include "skeleton/engine/config.h"
#include "scheduler/protocol/stats.h"

/* Memory of devices that may not leave, or that only serves speed, leaves one part in this many of SWAPNET_BUDGET to
 * everything else. */
#define SWN_DEVICE_OTHERS 8

/* Whether there is a CUDA runtime in this process and it is to be used: then tensors may go to a device. Initialises
 * nothing. To be called once, before all other functions. */
int swn_device_start(const struct swn_config *config);

/* The members of struct swn_device_services with these names (skeleton/abi/abi.h). */
int swn_device_way(int device, uintptr_t data, size_t bytes, int parameter);
struct swn_device_memory *swn_device_open(int device, enum swn_way way, uintptr_t data, size_t bytes, void **address);
int swn_device_streams(const struct swn_device_memory *m);
int swn_device_swaps(const struct swn_device_memory *m);
int swn_device_begin(struct swn_device_memory *const *m, unsigned n, void *stream, void **addresses, int *captured);
void swn_device_end(struct swn_device_memory *const *m, unsigned n, void *stream, int captured);
int swn_device_capturing(void *stream);
int swn_device_held_up(void);
int swn_device_programs(uintptr_t data);
void *swn_device_stays(const struct swn_device_memory *m);
int swn_device_pin(struct swn_device_memory *m, uintptr_t data, size_t bytes);
void swn_device_aside(int begins);
void swn_device_kept(size_t bytes, const char *operator_name);
int swn_device_close(struct swn_device_memory *m, void (*later)(void *owner, int err), void *owner);
int swn_device_watch(void);
void swn_device_moved(size_t elided, size_t copied);
void swn_device_given_up(void);
void swn_device_refused(const char *why);
void swn_device_lost(const char *what, const char *why) __attribute__((noreturn));

/* SWAPNET_BUDGET has changed. No device may be waiting for the calling thread. */
void swn_device_follow_budget(void);
void swn_device_fork_child(void);
void swn_device_stats(struct swn_stats *out);

#endif
