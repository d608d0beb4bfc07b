/* shim/serve/symbolic_numbers.h - Python's arithmetic on sizes, which exported programs compute with.
 *
 * Internal to the serve backend.
 */
#ifndef SWN_SHIM_SERVE_SYMBOLIC_NUMBERS_H
#define SWN_SHIM_SERVE_SYMBOLIC_NUMBERS_H

#include <string>

#include <ATen/core/stack.h>

namespace swn
{

using NumberFunction = void (*)(torch::jit::Stack &stack); /* arguments become the result; throws std::runtime_error */

/* "_operator.add", "torch.sym_max", "math.trunc"; nullptr for what is none of them. */
NumberFunction number_function(const std::string &target, size_t arguments);

} // namespace swn
#endif
