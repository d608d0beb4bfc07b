/* shim/serve/memory_error.h - whether an exception says that memory was lacking.
 *
 * Internal to the serve backend.
 */
#ifndef SWN_SHIM_SERVE_MEMORY_ERROR_H
#define SWN_SHIM_SERVE_MEMORY_ERROR_H

#include <cstring>
#include <exception>
#include <new>

namespace swn
{

/* PyTorch's allocator says it in words only. */
inline bool is_out_of_memory(const std::exception &e)
{
    const char *what = e.what();
    return dynamic_cast<const std::bad_alloc *>(&e) || strstr(what, "not enough memory") ||
           strstr(what, "can't allocate memory") || strstr(what, "bad_alloc");
}

} // namespace swn
#endif
