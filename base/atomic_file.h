/* base/atomic_file.h - a file that appears under its name whole and durable, or not at all.
 *
 * The file is written under a temporary name in the same directory, fsynced, and renamed, and the directory is fsynced.
 * The temporary file is locked (flock) as long as its writer lives. So a writer, in another container too, can tell the
 * remains of a killed writer from a file in the making, and the next writer in that directory removes them. Not
 * thread-safe for one object. Errors are -errno with a text.
 */
#ifndef SWN_BASE_ATOMIC_FILE_H
#define SWN_BASE_ATOMIC_FILE_H

#include <limits.h>
#include <sys/types.h>

#include "base/errmsg.h"
#include "base/io.h"

struct swn_atomic_file {
    struct swn_io_file file; /* direct_fd is -1 where O_DIRECT is refused */
    char path[PATH_MAX], tmp[PATH_MAX], dir[PATH_MAX];
};

/* Cleans up after dead writers, then makes the temporary file beside `path`. -EEXIST: what has that name already is no
 * regular file (a device, a FIFO, a link), which the new file would replace. */
int swn_atomic_file_open(struct swn_atomic_file *f, const struct swn_io *io, const char *path, mode_t mode,
                         char why[SWN_ERRMSG]);
/* Puts the file in place. On an error before the rename the old file is as it was; on one after it, the new one is in
 * place but may not outlast a power loss. The object is closed either way. */
int swn_atomic_file_commit(struct swn_atomic_file *f, const struct swn_io *io, char why[SWN_ERRMSG]);
/* Removes the temporary file. */
void swn_atomic_file_abandon(struct swn_atomic_file *f, const struct swn_io *io);

/* Bytes of the temporary files in `dir`, of living writers and of dead ones. */
void swn_atomic_file_look(const struct swn_io *io, const char *dir, uint64_t *living, uint64_t *dead);
/* Removes the temporary files of dead writers in `dir`. Returns the bytes that living ones have reserved there. */
uint64_t swn_atomic_file_clean(const struct swn_io *io, const char *dir);

#endif
