/* base/page.h - the smallest unit that the kernel maps, and the alignment of direct reads and writes. */
#ifndef SWN_BASE_PAGE_H
#define SWN_BASE_PAGE_H

#include <stddef.h>
#include <stdint.h>

#define SWN_PAGE ((size_t)4096)

/* A store into the page that changes nothing, whatever other threads do to it meanwhile: it has its private copy then.
 * The compiler may not know what is stored: clang makes a load of an operation that it sees to change nothing. */
static inline void swn_page_touch(uintptr_t page)
{
    unsigned char nothing = 0;
    __asm__ volatile("" : "+r"(nothing));
    __atomic_fetch_or((unsigned char *)page, nothing, __ATOMIC_SEQ_CST);
}

#endif
