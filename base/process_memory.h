/* base/process_memory.h - how much of a process's memory is not tensors, so that tensors get the rest of a limit.
 *
 * Pure, but for the reading. Bytes.
 */
#ifndef SWN_BASE_PROCESS_MEMORY_H
#define SWN_BASE_PROCESS_MEMORY_H

#include <stdint.h>

/* A process's memory by kind, as the kernel counts it now. Shared memory is left out: the library maps one page of it
 * twice and more. */
struct swn_process_memory_rss {
    uint64_t anon, file;
};

/* From /proc/self/status below `root` ("" outside tests). 0 or -errno. */
int swn_process_memory_read(struct swn_process_memory_rss *out, const char *root);

struct swn_process_memory {
    uint64_t limit;   /* for the whole process */
    uint64_t outside; /* recent peak of the memory outside tensors */
    uint64_t least;   /* lower bound of `outside`: what the process had before there were tensors */
    uint64_t least_file;
};

/* Pages of files count only as far as they were in memory at the start, and a little more for libraries: the rest may
 * be weights that are read through their mappings, which the kernel can take back.
 *
 * Returns the bytes that tensors may take, when `ours` bytes of the anonymous memory are tensors already: the limit
 * less the memory outside, and less a little for its growth between two calls. Memory outside counts at once when it
 * grows, and fades by a 16th at each call. At least `floor`.
 */
uint64_t swn_process_memory_budget(struct swn_process_memory *w, const struct swn_process_memory_rss *rss,
                                   uint64_t ours, uint64_t floor);

#endif
