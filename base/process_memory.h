/* base/process_memory.h - what of a process's memory is not tensors, so that tensors get what it leaves of a limit.
 *
 * Pure, but for the reading. Bytes.
 */
#ifndef SWN_BASE_PROCESS_MEMORY_H
#define SWN_BASE_PROCESS_MEMORY_H

#include <stdint.h>

/* Memory of a process, of which the kernel says how much is in it now. Shared memory is left out: of ours, one page is
 * mapped twice and more. */
struct swn_process_memory_rss {
    uint64_t anon, file;
};

/* From /proc/self/status below `root` ("" outside tests). 0 or -errno. */
int swn_process_memory_read(struct swn_process_memory_rss *out, const char *root);

struct swn_process_memory {
    uint64_t limit;   /* for the whole process */
    uint64_t outside; /* recent peak of what the process takes beside tensors */
    uint64_t least;   /* never less than this was: what it had before there were tensors */
    uint64_t least_file;
};

/* Pages of files count as far as they were in memory from the start, and a little more for libraries: the rest may be
 * weights that are read through their mappings, and the kernel can take it back.
 *
 * Returns the bytes that tensors may take, when `ours` bytes of the anonymous memory are theirs: the limit less the
 * memory outside, and less a little for its growth between two calls. Memory outside counts at once when it grows, and
 * fades by a 16th at each call. At least `floor`. */
uint64_t swn_process_memory_budget(struct swn_process_memory *w, const struct swn_process_memory_rss *rss,
                                   uint64_t ours, uint64_t floor);

#endif
