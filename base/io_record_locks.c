/* base/io_record_locks.c - see io_record_locks.h. */
#define _GNU_SOURCE
#include "base/io_record_locks.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

/* With more locked files than that, the descriptors of the others stay open until the process ends. */
#define WAITING_MOST 64
/* Other locks (of open file descriptions) that may lie before the first record lock. */
#define LOOKS_MOST 16

static int (*close_below)(void *ctx, int fd);
static _Atomic int waiting[WAITING_MOST]; /* descriptors + 1; without a lock, so that a fork cannot catch one held */

/* F_GETLK hides the process's own record locks, unless it asks on behalf of an open file description. */
static int has_record_lock(int fd)
{
    off_t from = 0;
    for (int looks = 0; looks < LOOKS_MOST; looks++) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from};
        if (fcntl(fd, F_OFD_GETLK, &lock) || lock.l_type == F_UNLCK)
            return 0;
        if (lock.l_pid != -1)
            return 1;
        if (!lock.l_len)
            return 0;
        from = lock.l_start + lock.l_len;
    }
    return 1;
}

static void wait_in(int fd)
{
    for (int i = 0; i < WAITING_MOST; i++) {
        int none = 0;
        if (atomic_compare_exchange_strong(&waiting[i], &none, fd + 1))
            return;
    }
}

static void close_waiting(void *ctx)
{
    for (int i = 0; i < WAITING_MOST; i++) {
        int fd = atomic_load(&waiting[i]) ? atomic_exchange(&waiting[i], 0) - 1 : -1;
        if (fd >= 0 && has_record_lock(fd))
            wait_in(fd);
        else if (fd >= 0)
            close_below(ctx, fd);
    }
}

static int close_keeping(void *ctx, int fd)
{
    close_waiting(ctx);
    if (!has_record_lock(fd))
        return close_below(ctx, fd);
    wait_in(fd);
    return 0;
}

void swn_keep_locks(struct swn_io *table, const struct swn_io *below)
{
    close_below = below->close;
    *table = *below;
    table->close = close_keeping;
}
