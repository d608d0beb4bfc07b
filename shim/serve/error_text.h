/* shim/serve/error_text.h - what an exception says, for a message of one line.
 *
 * Internal to the serve backend.
 */
#ifndef SWN_SHIM_SERVE_ERROR_TEXT_H
#define SWN_SHIM_SERVE_ERROR_TEXT_H

#include <exception>

#include <c10/util/Exception.h>

namespace swn
{

/* PyTorch's own what() has a stack trace behind the text. Lives as long as the exception. */
inline const char *error_text(const std::exception &e)
{
    const auto *ours = dynamic_cast<const c10::Error *>(&e);
    return ours ? ours->what_without_backtrace() : e.what();
}

} // namespace swn
#endif
