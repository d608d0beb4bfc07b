/* skeleton/observe/result_log.h - the record that SWAPNET_VERIFY leaves in a directory for `swapnetctl verify`: a line
 * for every result of every outermost operator, in a file per process. scheduler/protocol/verify_log.h reads them.
 *
 * The code is independent of the engine, so that it records runs without the engine as well. Thread-safe.
 */
#ifndef SWN_SKELETON_OBSERVE_RESULT_LOG_H
#define SWN_SKELETON_OBSERVE_RESULT_LOG_H

#include "skeleton/abi/abi.h"

/* To be called once. A process's file is made at its first result. budget_bytes: 0 without the engine. */
void swn_result_log_write_start(const char *dir, uint64_t budget_bytes);

/* swn_torch_backend.watch calls it. Results of threads that have no number (swn_threads_number) are left out. */
void swn_result_log_write_result(const char *op, const struct swn_result *r);

/* Tensor memory that was allocated or freed, where the engine does not count it. */
void swn_result_log_write_memory(long long bytes);

#endif
