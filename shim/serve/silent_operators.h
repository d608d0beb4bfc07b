/* shim/serve/silent_operators.h - operators of PyTorch's that do more than their schemas say.
 *
 * Internal to the serve backend. What is missing here is found when a step runs (`written` in tape_program.h), as far
 * as schemas say what it writes to.
 */
#ifndef SWN_SHIM_SERVE_SILENT_OPERATORS_H
#define SWN_SHIM_SERVE_SILENT_OPERATORS_H

#include <cstddef>
#include <string>

namespace swn
{

/* Whether the operator may return a tensor that it is given, or a view of one, and does not say so. */
bool returns_silently(const std::string &name);

/* Which arguments an operator writes to, and does not say so. */
struct SilentWrites {
    static constexpr size_t kNone = ~size_t{0};

    const char *name;
    size_t first, last;
    size_t trains; /* the argument that must be true for that, or kNone: always. With it, nothing is written where the
                      first one is none. */
};

/* NULL: it says all. */
const SilentWrites *silent_writes(const std::string &name);

} // namespace swn
#endif
