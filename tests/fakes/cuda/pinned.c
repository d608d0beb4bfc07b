/* The pages of registered memory, which the device goes on using whatever becomes of the addresses. They are held the
 * way a driver holds them, by a reference of the kernel's: some of each registration's lie in a pipe. They are put
 * there by system call: the library stands before vmsplice, and nobody stands before what a driver does. */
#define _GNU_SOURCE
#include "tests/fakes/cuda/standin_priv.h"

#include "base/page.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE ((uintptr_t)4096)

/* All of them, or a number of them from the first to the last. */
static unsigned pages_of(const struct memory *m, uintptr_t *out)
{
    uintptr_t first = (uintptr_t)m->base / PAGE, last = ((uintptr_t)m->base + m->bytes - 1) / PAGE;
    uintptr_t pages = last - first + 1, n = pages < STANDIN_PINNED ? pages : STANDIN_PINNED;
    for (uintptr_t i = 0; i < n; i++)
        out[i] = (first + (n > 1 ? i * (pages - 1) / (n - 1) : 0)) * PAGE;
    return (unsigned)n;
}

int standin_pin(struct memory *m)
{
    uintptr_t pages[STANDIN_PINNED];
    struct iovec v[STANDIN_PINNED];
    unsigned n = pages_of(m, pages);
    if (pipe2(m->pages, O_CLOEXEC))
        return -1;
    for (unsigned i = 0; i < n; i++) {
        swn_page_touch(pages[i]); /* the driver is going to write it */
        v[i] = (struct iovec){.iov_base = (void *)pages[i], .iov_len = PAGE};
    }
    if (syscall(SYS_vmsplice, m->pages[1], v, n, 0) == (ssize_t)(n * PAGE))
        return 0;
    standin_unpin(m);
    return -1;
}

void standin_unpin(struct memory *m)
{
    close(m->pages[0]);
    close(m->pages[1]);
}

/* What is in the pages that the device has. */
static unsigned device_sees(const struct memory *m, char *out)
{
    static int copy[2];
    if (!copy[1] && pipe2(copy, O_CLOEXEC))
        standin_broken("there is no pipe", m->base);
    ssize_t bytes = tee(m->pages[0], copy[1], STANDIN_PINNED * PAGE, 0);
    for (ssize_t at = 0, got; at < bytes; at += got)
        if ((got = read(copy[0], out + at, (size_t)(bytes - at))) <= 0)
            standin_broken("a pipe cannot be read", m->base);
    return bytes > 0 ? (unsigned)((size_t)bytes / PAGE) : 0;
}

void standin_check_pins(const struct memory *m, const char *p, size_t bytes)
{
    static char seen[STANDIN_PINNED * PAGE];
    uintptr_t pages[STANDIN_PINNED], lo = (uintptr_t)p, hi = lo + bytes;
    unsigned n = pages_of(m, pages);
    if (device_sees(m, seen) != n)
        standin_broken("registered pages cannot be looked at", p);
    for (unsigned i = 0; i < n; i++) {
        uintptr_t from = pages[i] > lo ? pages[i] : lo, to = pages[i] + PAGE < hi ? pages[i] + PAGE : hi;
        if (from < to && memcmp((const void *)from, seen + i * PAGE + (from - pages[i]), to - from) != 0)
            standin_broken("registered memory is behind other pages than those that the device has", (void *)from);
    }
}
