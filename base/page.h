/* base/page.h - the smallest piece of memory that the kernel maps, and what direct reads and writes are aligned to. */
#ifndef SWN_BASE_PAGE_H
#define SWN_BASE_PAGE_H

#include <stddef.h>

#define SWN_PAGE ((size_t)4096)

#endif
