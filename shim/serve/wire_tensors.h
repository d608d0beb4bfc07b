/* shim/serve/wire_tensors.h - tensors of a request, as the wire describes them and as PyTorch has them.
 *
 * Internal to the serve backend.
 */
#ifndef SWN_SHIM_SERVE_WIRE_TENSORS_H
#define SWN_SHIM_SERVE_WIRE_TENSORS_H

#include <stdexcept>

#include <ATen/core/Tensor.h>

extern "C" {
#include "scheduler/protocol/engine_wire.h"
}

namespace swn
{

/* The request's fault: names, types, shapes. */
struct BadInput : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* A tensor of its own with the bytes at t.offset from `buffer`: what a model does to its input, no other request sees.
 * Throws BadInput. */
at::Tensor tensor_from_wire(const swn_wire_tensor &t, const char *buffer);

/* Type, shape and bytes of a dense CPU tensor; the name and the offset stay. Throws std::runtime_error for any other.
 */
void describe_tensor(const at::Tensor &t, swn_wire_tensor &out);

swn_element element_of(at::ScalarType type); /* SWN_ELEMENT_NONE: the protocol has no such type */

} // namespace swn
#endif
