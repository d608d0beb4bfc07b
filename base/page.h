/* base/page.h - the smallest unit that the kernel maps, and the alignment of direct reads and writes. */
#ifndef SWN_BASE_PAGE_H
#define SWN_BASE_PAGE_H

#include <stddef.h>

#define SWN_PAGE ((size_t)4096)

#endif
